"""Reads and writes at computed indices."""

import itertools

import numpy as np
from jax.lax import GatherScatterMode

from strl_jax.kernels.arrays import choose, element, is_constant, rows, scalars, settled
from strl_jax.kernels.graph import TYPES, Graph, Scalar, type_of

SMALL = 16  # elements; a larger constant array is read from memory at a computed index


def read(graph: Graph, array: np.ndarray, index: list[Scalar]) -> Scalar:
    """``array[index]``; every index is in range."""
    if all(isinstance(i, np.generic) for i in index):
        return scalars(array)[tuple(map(int, index))] if not is_constant(array) else array[tuple(map(int, index))]
    if is_constant(array) and array.size > SMALL:
        place = np.int32(0)
        for i, size in zip(index, array.shape, strict=True):
            place = graph.emit("mul", place, np.int32(size), type="i")
            place = graph.emit("add", place, i, type="i")
        return graph.node("load", (graph.table(np.ascontiguousarray(array)), place), type_of(array.dtype))
    return _select_along(graph, array, index)


def _select_along(graph: Graph, array: np.ndarray, index: list[Scalar]) -> Scalar:
    """``array[index]`` by comparisons, one axis after the other."""
    for i in index:
        if isinstance(i, np.generic):
            array = array[int(i), ...]
            continue
        parts = rows(array)
        array = parts[-1]
        for number in range(len(parts) - 2, -1, -1):
            array = choose(graph, graph.emit("le", i, np.int32(number), type="b"), array, parts[number])
    return element(array)


def clip(graph: Graph, index: Scalar, last: int) -> Scalar:
    """The index as int32, limited to 0 ... ``last``."""
    if isinstance(index, np.generic):
        return np.int32(min(max(int(index), 0), last))
    if index.type == "u":
        index = graph.emit("convert", graph.emit("min", index, np.uint32(last), type="u"), type="i")
    index = graph.emit("max", index, np.int32(0), type="i")
    return graph.emit("min", index, np.int32(last), type="i")


def _in_range(graph: Graph, index: Scalar, last: int) -> Scalar:
    if isinstance(index, np.generic):
        return np.bool_(0 <= int(index) <= last)
    top = graph.emit("le", index, TYPES[index.type](last), type="b")
    return (
        top if index.type == "u" else graph.emit("and", graph.emit("ge", index, np.int32(0), type="b"), top, type="b")
    )


def _gather(tracer, equation, inputs):
    graph, params, (x, indices) = tracer.graph, equation.params, inputs
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    aval = equation.outvars[0].aval
    fills = params["mode"] in (GatherScatterMode.FILL_OR_DROP, None)
    fixed = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    window = [axis for axis in range(x.ndim) if axis not in fixed]
    indices, result, valid = scalars(indices), np.empty(aval.shape, object), {}
    for position in np.ndindex(result.shape):
        batch = tuple(i for axis, i in enumerate(position) if axis not in numbers.offset_dims)
        if batch not in valid:
            valid[batch] = _starts(graph, x.shape, sizes, indices[batch], numbers, batch)
        inside, start = valid[batch]
        place = list(start)
        for axis, offset in zip(window, [position[axis] for axis in numbers.offset_dims], strict=True):
            place[axis] = graph.emit("add", place[axis], np.int32(offset), type="i")
        value = read(graph, x, place)
        if fills:
            empty = _fill(params, aval.dtype)
            value = graph.emit("select", inside, empty, value, type=type_of(aval.dtype))
        result[position] = value
    return [settled(result, type_of(aval.dtype))]


def _starts(graph, shape, sizes, index, numbers, batch) -> tuple[Scalar, list[Scalar]]:
    """Whether a window is inside the array, and its first position, which is moved inside."""
    inside, start = np.bool_(True), [np.int32(0)] * len(shape)
    for number, axis in enumerate(numbers.start_index_map):
        last = shape[axis] - sizes[axis]
        inside = graph.emit("and", inside, _in_range(graph, index[number], last), type="b")
        start[axis] = clip(graph, index[number], last)
    for axis, place in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True):
        start[axis] = np.int32(batch[place])
    return inside, start


def _fill(params, dtype) -> np.generic:
    value = params.get("fill_value")
    if value is not None:
        return TYPES[type_of(dtype)](value)
    type = type_of(dtype)
    if type == "f":
        return np.float32(np.nan)
    return np.bool_(True) if type == "b" else TYPES[type](np.iinfo(dtype).min if type == "i" else np.iinfo(dtype).max)


SCATTERS = {"scatter": None, "scatter-add": "add", "scatter-mul": "mul", "scatter-min": "min", "scatter-max": "max"}
SCATTERS |= {name.replace("-", "_"): op for name, op in SCATTERS.items()}


def _scatter(tracer, equation, inputs):
    graph, params, (x, indices, updates) = tracer.graph, equation.params, inputs
    numbers, type = params["dimension_numbers"], type_of(equation.outvars[0].aval.dtype)
    op = SCATTERS[equation.primitive.name]
    fixed = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    window = [axis for axis in range(x.ndim) if axis not in fixed]
    sizes = [1] * x.ndim
    for axis, update_axis in zip(window, numbers.update_window_dims, strict=True):
        sizes[axis] = updates.shape[update_axis]
    result, indices, updates = scalars(x).copy(), scalars(indices), scalars(updates)
    for position in np.ndindex(updates.shape):
        batch = tuple(i for axis, i in enumerate(position) if axis not in numbers.update_window_dims)
        offsets = dict(zip(window, [position[axis] for axis in numbers.update_window_dims], strict=True))
        place = _places(graph, x.shape, sizes, indices[batch], numbers, batch, offsets, params["mode"])
        if place is not None:
            _write(graph, result, *place, updates[position], op, type)
    return [settled(result, type)]


def _places(graph, shape, sizes, index, numbers, batch, offsets, mode):
    """Whether an update is inside the array, and the possible positions of each axis as (position, condition)."""
    inside, axes = np.bool_(True), [[(offsets.get(axis, 0), np.bool_(True))] for axis in range(len(shape))]
    for axis, place in zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True):
        axes[axis] = [(batch[place], np.bool_(True))]
    for number, axis in enumerate(numbers.scatter_dims_to_operand_dims):
        last, start = shape[axis] - sizes[axis], index[number]
        if mode == GatherScatterMode.CLIP:
            start = clip(graph, start, last)
        else:
            inside = graph.emit("and", inside, _in_range(graph, start, last), type="b")
            start = clip(graph, start, last)
        offset = offsets.get(axis, 0)
        if isinstance(start, np.generic):
            axes[axis] = [(int(start) + offset, np.bool_(True))]
        else:
            known = [(n, graph.emit("eq", start, np.int32(n), type="b")) for n in range(last + 1)]
            axes[axis] = [(n + offset, condition) for n, condition in known]
    return None if isinstance(inside, np.generic) and not inside else (inside, axes)


def _write(graph, array, inside, axes, value, op, type) -> None:
    for choice in itertools.product(*axes):
        place, condition = tuple(n for n, _ in choice), inside
        for _, one in choice:
            condition = graph.emit("and", condition, one, type="b")
        new = value if op is None else graph.emit(op, array[place], value, type=type)
        array[place] = graph.emit("select", condition, array[place], new, type=type)


def _dynamic_slice(tracer, equation, inputs):
    graph, (x, *starts), sizes = tracer.graph, inputs, equation.params["slice_sizes"]
    starts = [clip(graph, element(i), n - m) for i, n, m in zip(starts, x.shape, sizes, strict=True)]
    if all(isinstance(i, np.generic) for i in starts):
        return [x[tuple(slice(int(i), int(i) + m) for i, m in zip(starts, sizes, strict=True))]]
    result = np.empty(sizes, object)
    for position in np.ndindex(result.shape):
        index = [graph.emit("add", i, np.int32(n), type="i") for i, n in zip(starts, position, strict=True)]
        result[position] = read(graph, x, index)
    return [settled(result, type_of(equation.outvars[0].aval.dtype))]


def _dynamic_update_slice(tracer, equation, inputs):
    graph, (x, update, *starts) = tracer.graph, inputs
    type = type_of(equation.outvars[0].aval.dtype)
    starts = [clip(graph, element(i), n - m) for i, n, m in zip(starts, x.shape, update.shape, strict=True)]
    result = scalars(x).copy()
    if all(isinstance(i, np.generic) for i in starts):
        place = tuple(slice(int(i), int(i) + m) for i, m in zip(starts, update.shape, strict=True))
        result[place] = scalars(update)
        return [settled(result, type)]
    update = scalars(update)
    for position in np.ndindex(update.shape):
        axes = []
        for start, offset, n, m in zip(starts, position, x.shape, update.shape, strict=True):
            places = range(n - m + 1) if not isinstance(start, np.generic) else [int(start)]
            axes.append([(k + offset, graph.emit("eq", start, np.int32(k), type="b")) for k in places])
        _write(graph, result, np.bool_(True), axes, update[position], None, type)
    return [settled(result, type)]


HANDLERS = {
    "gather": _gather,
    **dict.fromkeys(SCATTERS, _scatter),
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
}
