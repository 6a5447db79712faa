"""Matrix products, Cholesky factors and triangular systems, unrolled."""

import numpy as np

from strl_jax.kernels.arrays import elementwise, is_constant, scalars, settled
from strl_jax.kernels.graph import Graph, Scalar, type_of


def _dot_general(tracer, equation, inputs):
    (left_sum, right_sum), (left_batch, right_batch) = equation.params["dimension_numbers"]
    left, right = inputs
    left_free = [axis for axis in range(left.ndim) if axis not in (*left_sum, *left_batch)]
    right_free = [axis for axis in range(right.ndim) if axis not in (*right_sum, *right_batch)]
    shape = [left.shape[axis] for axis in (*left_batch, *left_free)] + [right.shape[axis] for axis in right_free]
    type = type_of(equation.outvars[0].aval.dtype)
    left, right = (_as_type(tracer.graph, x, v.aval.dtype, type) for x, v in zip(inputs, equation.invars, strict=True))
    batch, length = _size(left, left_batch), _size(left, left_sum)
    rows, columns = _size(left, left_free), _size(right, right_free)
    left = left.transpose([*left_batch, *left_free, *left_sum]).reshape(batch, rows, length)
    right = right.transpose([*right_batch, *right_sum, *right_free]).reshape(batch, length, columns)
    if is_constant(left) and is_constant(right):
        return [np.matmul(left, right).reshape(shape)]
    left, right = scalars(left), scalars(right)
    result = np.empty((batch, rows, columns), object)
    for b, row, column in np.ndindex(result.shape):
        result[b, row, column] = _dot(tracer.graph, left[b, row], right[b, :, column], type)
    return [settled(result.reshape(shape), type)]


def _as_type(graph: Graph, array: np.ndarray, dtype, type: str) -> np.ndarray:
    """The array in the type of the product; the factors can have other types."""
    return array if type_of(dtype) == type else elementwise(graph, "convert", type, array)


def _size(array: np.ndarray, axes) -> int:
    return int(np.prod([array.shape[axis] for axis in axes], dtype=int))


def _dot(graph: Graph, left, right, type: str) -> Scalar:
    zero = np.float32(0) if type == "f" else np.int32(0) if type == "i" else np.uint32(0)
    total = zero
    for a, b in zip(left, right, strict=True):
        total = graph.emit("add", total, graph.emit("mul", a, b, type=type), type=type)
    return total


def _less_dot(graph: Graph, start: Scalar, left, right) -> Scalar:
    """``start`` minus the dot product, term by term."""
    for a, b in zip(left, right, strict=True):
        start = graph.emit("sub", start, graph.emit("mul", a, b, type="f"), type="f")
    return start


def _cholesky(tracer, equation, inputs):
    (x,) = inputs
    result = np.zeros(x.shape, np.float32)
    result = scalars(result)
    for batch in np.ndindex(x.shape[:-2]):
        _factor(tracer.graph, scalars(x)[batch], result[batch])
        tracer.solutions.add(scalars(x)[batch], result[batch])
    return [settled(result, "f")]


def _factor(graph: Graph, matrix: np.ndarray, lower: np.ndarray) -> None:
    for j in range(len(matrix)):
        pivot = _less_dot(graph, matrix[j, j], lower[j, :j], lower[j, :j])
        inverse = graph.emit("rsqrt", pivot, type="f")
        lower[j, j] = graph.emit("mul", pivot, inverse, type="f")
        for i in range(j + 1, len(matrix)):
            rest = _less_dot(graph, matrix[i, j], lower[i, :j], lower[j, :j])
            lower[i, j] = graph.emit("mul", rest, inverse, type="f")


def _triangular_solve(tracer, equation, inputs):
    params, (a, b) = equation.params, inputs
    a, b, lower = scalars(a), scalars(b), params["lower"]
    transposed = bool(int(params["transpose_a"]))
    if not params["left_side"]:  # x a = b is a^T x^T = b^T
        b, transposed = np.swapaxes(b, -1, -2), not transposed
    if transposed:
        a, lower = np.swapaxes(a, -1, -2), not lower
    result = np.empty(b.shape, object)
    for batch in np.ndindex(b.shape[:-2]):
        for column in range(b.shape[-1]):
            right, place = b[batch][:, column], (*batch, slice(None), column)
            solution = None if lower else tracer.solutions.second(a[batch].T, right)
            if solution is None:
                solution = _substitute(tracer.graph, a[batch], right, lower, params["unit_diagonal"])
            if lower:
                tracer.solutions.first(a[batch], right, solution)
            result[place] = solution
    if not params["left_side"]:
        result = np.swapaxes(result, -1, -2)
    return [settled(result, "f")]


def _substitute(graph: Graph, a: np.ndarray, b: np.ndarray, lower: bool, unit: bool) -> np.ndarray:
    """The solution ``[n]`` of a triangular system with the right side ``b[n]``."""
    size, x = len(a), np.empty(len(a), object)
    for i in range(size) if lower else range(size - 1, -1, -1):
        done = slice(0, i) if lower else slice(i + 1, size)
        x[i] = _less_dot(graph, b[i], a[i, done], x[done])
        if not unit:
            x[i] = graph.emit("mul", x[i], graph.emit("div", np.float32(1), a[i, i], type="f"), type="f")
    return x


HANDLERS = {
    "dot_general": _dot_general,
    "cholesky": _cholesky,
    "triangular_solve": _triangular_solve,
}
