"""Conversion of JAX primitives to ONNX operators (opset 17).

A converter gets the graph, the equation and its values (names or NumPy constants), adds
nodes and returns the names of the results. Shapes can have one symbolic size, the batch.
"""

from collections.abc import Callable

import numpy as np
from onnx import helper

from strl_jax.interop.deploy import DeployError


def _same(op: str) -> Callable:
    """Converter of a primitive with the same inputs and output in ONNX, without parameters."""
    return lambda graph, equation, *values: graph.add(op, *values)


def _integers(values) -> np.ndarray:
    return np.asarray(values, np.int64)


def _axes(equation) -> list[int]:
    return list(equation.params["axes"])


def _one(equation) -> np.ndarray:
    return np.ones((), equation.outvars[0].aval.dtype)


def _refuse(equation, why: str):
    raise DeployError(f"the policy's operation {equation.primitive.name} cannot be exported to ONNX: {why}")


def _select(graph, equation, which, *cases):
    if len(cases) != 2:
        _refuse(equation, f"it selects among {len(cases)}")
    return graph.add("Where", which, cases[1], cases[0])


def _cast(graph, equation, x):
    return graph.add("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(equation.params["new_dtype"])))


def _broadcast(graph, equation, x):
    """Adds axes of size 1. A constant with a symbolic shape is stored with size 1 in place of the symbolic size."""
    shape, places = equation.params["shape"], equation.params["broadcast_dimensions"]
    before = equation.invars[0].aval.shape
    narrow = [1] * len(shape)
    for size, place in zip(before, places, strict=True):
        narrow[place] = size
    if isinstance(x, np.ndarray):
        return [x.reshape([1 if not isinstance(size, int) else size for size in narrow])]
    if tuple(narrow) != tuple(shape):
        _refuse(equation, f"it repeats {before} to {shape}")
    axes = [axis for axis in range(len(shape)) if axis not in places]
    return graph.add("Unsqueeze", x, _integers(axes)) if axes else [x]


def _reshape(graph, equation, x):
    sizes = [size if isinstance(size, int) else -1 for size in equation.params["new_sizes"]]
    if sizes.count(-1) > 1:
        _refuse(equation, f"two sizes of {equation.params['new_sizes']} depend on the batch")
    return graph.add("Reshape", x, _integers(sizes))


def _stack(graph, equation, *values):
    axis = equation.params["axis"]
    parts = [graph.add("Unsqueeze", value, _integers([axis]))[0] for value in values]
    return graph.add("Concat", *parts, axis=axis)


def _split(graph, equation, x):
    sizes = equation.params["sizes"]
    return graph.add("Split", x, _integers(sizes), outputs=len(sizes), axis=equation.params["axis"])


def _cut(graph, x, shape, starts, ends, steps=None):
    """Slices ``x`` of ``shape`` from ``starts`` to ``ends``; complete axes, such as the batch, are not sliced."""
    steps = steps or [1] * len(shape)
    axes = [i for i, size in enumerate(shape) if (starts[i], ends[i], steps[i]) != (0, size, 1)]
    if not axes:
        return x
    starts, ends, steps = (_integers([part[i] for i in axes]) for part in (starts, ends, steps))
    return graph.add("Slice", x, starts, ends, _integers(axes), steps)[0]


def _slice(graph, equation, x):
    parts = (equation.params[name] for name in ("start_indices", "limit_indices", "strides"))
    return [_cut(graph, x, equation.invars[0].aval.shape, *parts)]


def _gather(graph, equation, x, indices):
    """One slice at a constant index: ``x[0]``, ``x[:, 1]``."""
    numbers, shape = equation.params["dimension_numbers"], equation.invars[0].aval.shape
    sizes = equation.params["slice_sizes"]
    if not isinstance(indices, np.ndarray) or indices.ndim != 1 or numbers.operand_batching_dims:
        _refuse(equation, "it reads several slices or from variable indices")
    starts = [0] * len(shape)
    for axis, index in zip(numbers.start_index_map, indices.tolist(), strict=True):
        starts[axis] = index
    ends = [start + size if start else size for start, size in zip(starts, sizes, strict=True)]
    window = _cut(graph, x, shape, starts, ends)
    dropped = numbers.collapsed_slice_dims
    return graph.add("Squeeze", window, _integers(dropped)) if dropped else [window]


def _scatter(graph, equation, x, indices, update):
    """Sets one slice at a constant index along one axis: ``x.at[..., 1:3].set(update)``."""
    numbers, shape = equation.params["dimension_numbers"], equation.invars[0].aval.shape
    places = numbers.scatter_dims_to_operand_dims
    if not isinstance(indices, np.ndarray) or indices.shape != (1,) or numbers.inserted_window_dims or len(places) != 1:
        _refuse(equation, "it sets several slices or variable indices")
    axis, start = places[0], int(indices[0])
    end = start + equation.invars[2].aval.shape[axis]
    zeros = [0] * len(shape)
    before = _cut(graph, x, shape, zeros, [*shape[:axis], start, *shape[axis + 1 :]])
    after = _cut(graph, x, shape, [*zeros[:axis], end, *zeros[axis + 1 :]], shape)
    parts = [before] * (start > 0) + [update] + [after] * (end < shape[axis])
    return graph.add("Concat", *parts, axis=axis)


def _dot(graph, equation, x, y):
    ((left, right), batch) = equation.params["dimension_numbers"]
    ranks = [len(atom.aval.shape) for atom in equation.invars]
    if (tuple(left), tuple(right), ranks[1]) != ((ranks[0] - 1,), (0,), 2) or any(batch):
        _refuse(equation, f"it contracts {left} with {right}")
    return graph.add("MatMul", x, y)


def _conv(graph, equation, x, kernel):
    params = equation.params
    numbers = params["dimension_numbers"]
    if params["batch_group_count"] != 1 or set(params["lhs_dilation"]) != {1} or not isinstance(kernel, np.ndarray):
        _refuse(equation, "only a plain convolution can be converted")
    image = graph.add("Transpose", x, perm=list(numbers.lhs_spec))
    pads = [pair[i] for i in (0, 1) for pair in params["padding"]]
    result = graph.add(
        "Conv",
        *image,
        np.ascontiguousarray(kernel.transpose(numbers.rhs_spec)),
        strides=list(params["window_strides"]),
        pads=pads,
        dilations=list(params["rhs_dilation"]),
        group=params["feature_group_count"],
    )
    return graph.add("Transpose", *result, perm=np.argsort(numbers.out_spec).tolist())


# These operators broadcast like NumPy.
ELEMENTWISE = {
    "abs": _same("Abs"),
    "add": _same("Add"),
    "convert_element_type": _cast,
    "copy": lambda graph, equation, x: [x],
    "div": _same("Div"),
    "erfc": lambda graph, equation, x: graph.add("Sub", _one(equation), *graph.add("Erf", x)),
    "exp": _same("Exp"),
    "expm1": lambda graph, equation, x: graph.add("Sub", *graph.add("Exp", x), _one(equation)),
    "ge": _same("GreaterOrEqual"),
    "gt": _same("Greater"),
    "log": _same("Log"),
    "log1p": lambda graph, equation, x: graph.add("Log", *graph.add("Add", x, _one(equation))),
    "logistic": _same("Sigmoid"),
    "lt": _same("Less"),
    "max": _same("Max"),
    "min": _same("Min"),
    "mul": _same("Mul"),
    "ne": lambda graph, equation, x, y: graph.add("Not", *graph.add("Equal", x, y)),
    "neg": _same("Neg"),
    "not": _same("Not"),
    "rsqrt": lambda graph, equation, x: graph.add("Reciprocal", *graph.add("Sqrt", x)),
    "select_n": _select,
    "sqrt": _same("Sqrt"),
    "square": lambda graph, equation, x: graph.add("Mul", x, x),
    "stop_gradient": lambda graph, equation, x: [x],
    "sub": _same("Sub"),
    "tanh": _same("Tanh"),
}
BROADCASTING = {*ELEMENTWISE, "broadcast_in_dim"}
PRIMITIVES = ELEMENTWISE | {
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda graph, equation, *parts: graph.add("Concat", *parts, axis=equation.params["dimension"]),
    "conv_general_dilated": _conv,
    "dot_general": _dot,
    "gather": _gather,
    "reduce_max": lambda graph, equation, x: graph.add("ReduceMax", x, axes=_axes(equation), keepdims=0),
    "reduce_sum": lambda graph, equation, x: graph.add("ReduceSum", x, _integers(_axes(equation)), keepdims=0),
    "reshape": _reshape,
    "scatter": _scatter,
    "slice": _slice,
    "split": _split,
    "squeeze": lambda graph, equation, x: graph.add("Squeeze", x, _integers(equation.params["dimensions"])),
    "stack": _stack,
    "transpose": lambda graph, equation, x: graph.add("Transpose", x, perm=list(equation.params["permutation"])),
}
