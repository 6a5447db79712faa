"""Solutions of symmetric positive definite systems, with few operations where the matrix has zeros.

JAX solves such a system by a Cholesky factor and two triangular systems. The rows of a robot's matrices come from
the base to the feet, and in that order the factor has no zeros: the base connects all legs. Here the unknown with
the fewest neighbours is eliminated first (minimum degree), so that the legs stay separate.
"""

from dataclasses import dataclass, field

import numpy as np

from strl_jax.kernels.graph import Graph, Scalar, Value


@dataclass
class Factor:
    """The factors L and D of ``L D L^T``, in the order of elimination.

    Attributes:
        pivots: index of an unknown, 1 / D, and the entries of L below it by their index.
    """

    pivots: list[tuple[int, Scalar, dict[int, Scalar]]] = field(default_factory=list)


def factorize(graph: Graph, matrix: np.ndarray) -> Factor:
    """The factor of a symmetric matrix ``[n, n]``, of which the lower triangle is read."""
    size, result = len(matrix), Factor()
    rows = [{j: matrix[max(i, j), min(i, j)] for j in range(size)} for i in range(size)]
    rows = [{j: x for j, x in row.items() if j == i or not _is_zero(x)} for i, row in enumerate(rows)]
    remaining = set(range(size))
    while remaining:
        pivot = min(remaining, key=lambda i: (len(rows[i]), -i))
        column = rows[pivot]
        inverse = graph.emit("div", np.float32(1), column.pop(pivot), type="f")
        lower = {i: graph.emit("mul", x, inverse, type="f") for i, x in sorted(column.items())}
        for i in lower:
            del rows[i][pivot]
            for j in lower:
                if j <= i:
                    product = graph.emit("mul", lower[i], column[j], type="f")
                    rest = graph.emit("sub", rows[i].get(j, np.float32(0)), product, type="f")
                    rows[i][j] = rows[j][i] = rest
        remaining.discard(pivot)
        result.pivots.append((pivot, inverse, lower))
    return result


def solve(graph: Graph, factor: Factor, right: np.ndarray) -> np.ndarray:
    """The solution ``[n]`` for a right side ``[n]``."""

    def less(a, b, c):
        return graph.emit("sub", a, graph.emit("mul", b, c, type="f"), type="f")

    x = list(right)
    for pivot, _, lower in factor.pivots:
        for i, entry in lower.items():
            x[i] = less(x[i], entry, x[pivot])
    for pivot, inverse, lower in reversed(factor.pivots):
        x[pivot] = graph.emit("mul", x[pivot], inverse, type="f")
        for i, entry in lower.items():
            x[pivot] = less(x[pivot], entry, x[i])
    result = np.empty(len(x), object)
    result[:] = x
    return result


@dataclass
class Solutions:
    """Recognises the pair of triangular systems that solves a system by its Cholesky factor.

    Attributes:
        graph: the graph.
    """

    graph: Graph
    _matrices: dict = field(default_factory=dict)  # entries of a Cholesky factor -> the matrix
    _factors: dict = field(default_factory=dict)
    _right: dict = field(default_factory=dict)  # solution of the first triangular system -> its right side

    def add(self, matrix: np.ndarray, lower: np.ndarray) -> None:
        """Records a Cholesky factor."""
        self._matrices[_entries(lower)] = matrix

    def first(self, lower: np.ndarray, right: np.ndarray, solution: np.ndarray) -> None:
        """Records the solution of ``lower solution = right``, vectors."""
        key = _entries(lower)
        if key in self._matrices:
            self._right[key, _names(solution)] = right.copy()

    def second(self, lower: np.ndarray, right: np.ndarray) -> np.ndarray | None:
        """The solution of the whole system if ``lower^T x = right`` is its second half."""
        key = _entries(lower)
        original = self._right.get((key, _names(right)))
        if original is None:
            return None
        if key not in self._factors:
            self._factors[key] = factorize(self.graph, self._matrices[key])
        return solve(self.graph, self._factors[key], original)


def _entries(lower: np.ndarray) -> tuple:
    """What makes two lower triangles equal."""
    return _names(lower[np.tril_indices(len(lower))])


def _is_zero(scalar: Scalar) -> bool:
    return isinstance(scalar, np.generic) and scalar == 0


def _name(scalar: Scalar):
    return scalar.index if isinstance(scalar, Value) else scalar.tobytes()


def _names(array: np.ndarray) -> tuple:
    return tuple(map(_name, array))
