"""Operations that move elements, and reductions."""

import math

import numpy as np

from strl_jax.kernels.arrays import elementwise, is_constant, rows, scalars, settled, stack
from strl_jax.kernels.graph import TYPES, type_of


def _reshape(tracer, equation, inputs):
    return [inputs[0].reshape(equation.outvars[0].aval.shape)]


def _broadcast(tracer, equation, inputs):
    shape = [1] * len(equation.params["shape"])
    for axis, target in enumerate(equation.params["broadcast_dimensions"]):
        shape[target] = inputs[0].shape[axis]
    return [np.broadcast_to(inputs[0].reshape(shape), equation.params["shape"])]


def _transpose(tracer, equation, inputs):
    return [inputs[0].transpose(equation.params["permutation"])]


def _concatenate(tracer, equation, inputs):
    parts = inputs if all(map(is_constant, inputs)) else [scalars(x) for x in inputs]
    return [np.concatenate(parts, axis=equation.params["dimension"])]


def _stack(tracer, equation, inputs):
    params = equation.params
    return [np.moveaxis(stack(inputs), 0, params.get("axis", params.get("dimension", 0)))]


def _unstack(tracer, equation, inputs):
    return rows(inputs[0], equation.params["axis"])


def _split(tracer, equation, inputs):
    ends = np.cumsum(equation.params["sizes"])[:-1]
    return np.split(inputs[0], ends, axis=equation.params["axis"])


def _tile(tracer, equation, inputs):
    return [np.tile(inputs[0], equation.params["reps"])]


def _slice(tracer, equation, inputs):
    params = equation.params
    strides = params["strides"] or [1] * inputs[0].ndim
    ranges = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    return [inputs[0][tuple(slice(*bounds) for bounds in ranges)]]


def _rev(tracer, equation, inputs):
    return [np.flip(inputs[0], equation.params["dimensions"])]


def _pad(tracer, equation, inputs):
    x, value = inputs
    both = is_constant(x) and is_constant(value)
    x, value = (x, value) if both else (scalars(x), scalars(value))
    wide = np.empty([n + (n - 1) * inner if n else 0 for n, (*_, inner) in _padded(equation, x)], x.dtype)
    wide[...] = value[()]
    wide[tuple(slice(None, None, inner + 1) for _, (*_, inner) in _padded(equation, x))] = x
    result = np.empty(equation.outvars[0].aval.shape, x.dtype)
    result[...] = value[()]
    source, target = [], []
    for size, (low, _, _), total in zip(wide.shape, equation.params["padding_config"], result.shape, strict=True):
        first, last = max(low, 0), min(low + size, total)
        target.append(slice(first, max(last, first)))
        source.append(slice(first - low, max(last, first) - low))
    result[tuple(target)] = wide[tuple(source)]
    return [result]


def _padded(equation, x):
    return list(zip(x.shape, equation.params["padding_config"], strict=True))


def _iota(tracer, equation, inputs):
    params = equation.params
    shape = [1] * len(params["shape"])
    shape[params["dimension"]] = -1
    numbers = np.arange(params["shape"][params["dimension"]]).reshape(shape)
    type_of(params["dtype"])
    return [np.broadcast_to(numbers, params["shape"]).astype(params["dtype"])]


def _empty(tracer, equation, inputs):
    aval = equation.outvars[0].aval
    return [np.zeros(aval.shape, aval.dtype)]


REDUCTIONS = {
    "reduce_sum": "add",
    "reduce_prod": "mul",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_and": "and",
    "reduce_or": "or",
    "reduce_xor": "xor",
}


def _reduce(tracer, equation, inputs):
    (x,), axes = inputs, equation.params["axes"]
    op, type = REDUCTIONS[equation.primitive.name], type_of(equation.outvars[0].aval.dtype)
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    shape = [x.shape[axis] for axis in kept]
    length = math.prod(x.shape[axis] for axis in axes)
    if length == 0:
        return [np.full(shape, _neutral(op, type))]
    result, *others = rows(x.transpose([*axes, *kept]).reshape([length, *shape]))
    for other in others:
        result = elementwise(tracer.graph, op, type, result, other)
    return [result]


def _neutral(op: str, type: str) -> np.generic:
    """The value that an operation starts from."""
    dtype = TYPES[type]
    if op in ("max", "min"):
        if type == "f":
            return dtype(-np.inf if op == "max" else np.inf)
        return dtype(getattr(np.iinfo(dtype), "min" if op == "max" else "max"))
    if op == "and":
        return dtype(True) if type == "b" else dtype(np.iinfo(dtype).max if type == "u" else -1)
    return dtype(1 if op == "mul" else 0)


CUMULATIVE = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}


def _cumulative(tracer, equation, inputs):
    op, params = CUMULATIVE[equation.primitive.name], equation.params
    parts, type = rows(inputs[0], params["axis"]), type_of(equation.outvars[0].aval.dtype)
    parts = parts[::-1] if params["reverse"] else parts
    for number in range(1, len(parts)):
        parts[number] = elementwise(tracer.graph, op, type, parts[number - 1], parts[number])
    return [np.moveaxis(stack(parts[::-1] if params["reverse"] else parts), 0, params["axis"])]


def _arg(tracer, equation, inputs):
    graph, smallest = tracer.graph, equation.primitive.name == "argmin"
    type = type_of(equation.invars[0].aval.dtype)
    number_type = type_of(equation.outvars[0].aval.dtype)
    best, *others = rows(inputs[0], equation.params["axes"][0])
    index = np.zeros(best.shape, TYPES[number_type])
    for number, other in enumerate(others, 1):
        better = elementwise(graph, "lt" if smallest else "gt", "b", other, best)
        if type == "f":  # the first NaN is the result, as in XLA
            nan = elementwise(graph, "ne", "b", other, other)
            known = elementwise(graph, "eq", "b", best, best)
            better = elementwise(graph, "or", "b", better, elementwise(graph, "and", "b", nan, known))
        best = elementwise(graph, "select", type, better, best, other)
        here = np.full(index.shape, number, TYPES[number_type])
        index = elementwise(graph, "select", number_type, better, index, here)
    return [index]


def _sort(tracer, equation, inputs):
    """A stable network of neighbours; the first ``num_keys`` operands are the keys, in that order."""
    graph, params = tracer.graph, equation.params
    types = [type_of(v.aval.dtype) for v in equation.invars]
    columns = [rows(x, params["dimension"]) for x in inputs]
    length = len(columns[0])
    for turn in range(length):
        for place in range(length - 1 - turn):
            swap = _after(graph, [c[place] for c in columns], [c[place + 1] for c in columns], params["num_keys"])
            for column, type in zip(columns, types, strict=True):
                low, high = column[place], column[place + 1]
                column[place] = elementwise(graph, "select", type, swap, low, high)
                column[place + 1] = elementwise(graph, "select", type, swap, high, low)
    return [np.moveaxis(settled(stack(c), t), 0, params["dimension"]) for c, t in zip(columns, types, strict=True)]


def _after(graph, left, right, keys):
    """bool: the row ``left`` comes after the row ``right``; NaN comes last."""
    result = np.zeros(left[0].shape, np.bool_)
    for a, b in reversed(list(zip(left[:keys], right[:keys], strict=True))):
        nan_a, nan_b = (elementwise(graph, "ne", "b", x, x) for x in (a, b))
        greater = elementwise(graph, "gt", "b", a, b)
        number = elementwise(graph, "not", "b", nan_b)
        greater = elementwise(graph, "or", "b", greater, elementwise(graph, "and", "b", nan_a, number))
        both_nan = elementwise(graph, "and", "b", nan_a, nan_b)
        equal = elementwise(graph, "or", "b", elementwise(graph, "eq", "b", a, b), both_nan)
        result = elementwise(graph, "or", "b", greater, elementwise(graph, "and", "b", equal, result))
    return result


HANDLERS = {
    **dict.fromkeys(("reshape", "squeeze", "expand_dims"), _reshape),
    "broadcast_in_dim": _broadcast,
    "transpose": _transpose,
    "concatenate": _concatenate,
    "stack": _stack,
    "unstack": _unstack,
    "split": _split,
    "tile": _tile,
    "slice": _slice,
    "rev": _rev,
    "pad": _pad,
    "iota": _iota,
    "empty": _empty,
    **dict.fromkeys(REDUCTIONS, _reduce),
    **dict.fromkeys(CUMULATIVE, _cumulative),
    **dict.fromkeys(("argmin", "argmax"), _arg),
    "sort": _sort,
}
