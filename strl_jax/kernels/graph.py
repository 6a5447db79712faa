"""The graph of a function's scalar operations, with constant folding and shared subexpressions.

Every element of an array is a ``Scalar``: either a numpy scalar (a constant) or a ``Value`` (a node of the graph).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from strl_jax.kernels import folding

TYPES = {"f": np.float32, "i": np.int32, "u": np.uint32, "b": np.bool_}
COMMUTATIVE = frozenset(("add", "mul", "max", "min", "and", "or", "xor", "eq", "ne"))


class Unsupported(Exception):
    """The function has an operation or a type that no kernel can compute; the message names it."""


class Value:
    """A node of the graph.

    Attributes:
        index: position in ``Graph.nodes``; operands have lower ones.
        op: operation, for example ``add``; ``in``, ``carry``, ``final``, ``counter``, ``load``, ``element`` and
            ``stacked`` are the values that no arithmetic computes.
        args: operands, or the position of such a value.
        type: ``f`` (float32), ``i`` (int32), ``u`` (uint32) or ``b`` (bool).
    """

    __slots__ = ("args", "index", "op", "type")

    def __init__(self, index: int, op: str, args: tuple, type: str):
        self.index, self.op, self.args, self.type = index, op, args, type


Scalar = Value | np.generic


@dataclass
class Graph:
    """The nodes in the order of their creation; equal operations on equal operands are one node.

    Attributes:
        nodes: all nodes.
        loops: loops by their number, see ``loops.Loop``.
        tables: constant arrays that the code reads at an index that is not constant.
        arrays: local arrays by their number: their elements.
    """

    nodes: list[Value] = field(default_factory=list)
    loops: list = field(default_factory=list)
    tables: list[np.ndarray] = field(default_factory=list)
    arrays: list[list[Scalar]] = field(default_factory=list)
    _known: dict = field(default_factory=dict)

    def node(self, op: str, args: tuple, type: str) -> Value:
        """The node of an operation; a new one if there is none yet."""
        key = (op, type, *[_key(a) for a in args])
        value = self._known.get(key)
        if value is None:
            value = self._known[key] = Value(len(self.nodes), op, args, type)
            self.nodes.append(value)
        return value

    def emit(self, op: str, *args: Scalar, type: str) -> Scalar:
        """The result of one scalar operation: a constant, an operand, or a node.

        Simplifications are exact for finite numbers (``x * 0`` is 0).
        """
        if not any(isinstance(a, Value) for a in args):
            with np.errstate(all="ignore"):
                return TYPES[type](folding.FOLD[op](*args))
        simpler = folding.simplified(self, op, args, type)
        if simpler is not None:
            return simpler
        if op in COMMUTATIVE and isinstance(args[0], Value) and isinstance(args[1], Value):
            args = tuple(sorted(args, key=lambda a: a.index))
        return self.node(op, args, type)

    def table(self, array: np.ndarray) -> int:
        """The number of a constant array; equal arrays have one number."""
        for number, known in enumerate(self.tables):
            if known.dtype == array.dtype and known.shape == array.shape and (known == array).all():
                return number
        self.tables.append(array)
        return len(self.tables) - 1

    def array(self, elements: Iterable[Scalar]) -> int:
        """The number of a new local array with these elements."""
        self.arrays.append(list(elements))
        return len(self.arrays) - 1


def _key(arg):
    """What makes an operand equal to another; -0.0 differs from 0.0, and NaN equals NaN."""
    if isinstance(arg, Value):
        return arg.index
    return (arg.dtype.char, arg.tobytes()) if isinstance(arg, np.generic) else ("number", arg)


def type_of(dtype) -> str:
    """The type of a numpy dtype.

    Raises:
        Unsupported: the dtype has no type.
    """
    for name, known in TYPES.items():
        if dtype == known:
            return name
    raise Unsupported(f"type {dtype}")


def scalar_type(scalar: Scalar) -> str:
    """The type of a scalar."""
    return scalar.type if isinstance(scalar, Value) else type_of(scalar.dtype)
