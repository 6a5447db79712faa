"""The order of a graph's operations as statements of a program with loops.

An operation is placed in the outermost loop body that its operands allow, directly before its first use.
"""

from dataclasses import dataclass, field

import numpy as np

from strl_jax.kernels.graph import Graph, Scalar, Value
from strl_jax.kernels.loops import Loop


@dataclass(frozen=True)
class Let:
    """Computes a node."""

    value: Value


@dataclass(frozen=True)
class Fill:
    """Declares a local array and stores its elements."""

    number: int
    elements: list[Scalar]


@dataclass(frozen=True)
class Begin:
    """Declares what a loop carries, and opens its body."""

    loop: Loop


@dataclass(frozen=True)
class Test:
    """Leaves the loop if its condition is false."""

    loop: Loop


@dataclass(frozen=True)
class End:
    """Stores the results of an iteration, and closes the body."""

    loop: Loop


@dataclass(frozen=True)
class Store:
    """Writes an output."""

    place: int
    scalar: Scalar


Statement = Let | Fill | Begin | Test | End | Store
CARRIED = ("carry", "counter")


@dataclass
class Schedule:
    """Builds the statements.

    Attributes:
        statements: the program.
    """

    graph: Graph
    statements: list[Statement] = field(default_factory=list)

    def __post_init__(self):
        self._loops_of = _loops_of_nodes(self.graph)
        self._done: set[int] = set()
        self._opened: set[int] = set()
        self._filled: set[int] = set()
        self._inside: set[int] = set()

    def store(self, results: list[Scalar]) -> "Schedule":
        """Adds all that the results need, and the statements that write them."""
        for scalar in results:
            self._visit(scalar)
        self.statements += [Store(place, scalar) for place, scalar in enumerate(results)]
        return self

    def _visit(self, root: Scalar) -> None:
        stack = [(root, False)]
        while stack:
            value, ready = stack.pop()
            if isinstance(value, np.generic) or value.index in self._done:
                continue
            if value.op in CARRIED:
                self._done.add(value.index)
            elif value.op in ("final", "stacked"):
                self._loop(self.graph.loops[value.args[0]])
                self._done.add(value.index)
            elif ready:
                self._done.add(value.index)
                self._let(value)
            else:
                stack.append((value, True))
                stack.extend((x, False) for x in reversed(_operands(value)))

    def _let(self, value: Value) -> None:
        if value.op == "element" and value.args[0] not in self._filled:
            self._fill(value.args[0])
        self.statements.append(Let(value))

    def _fill(self, number: int) -> None:
        self._filled.add(number)
        for scalar in self.graph.arrays[number]:
            self._visit(scalar)
        self.statements.append(Fill(number, self.graph.arrays[number]))

    def _loop(self, loop: Loop) -> None:
        if loop.number in self._opened:
            return
        self._opened.add(loop.number)
        for scalar in loop.start:
            self._visit(scalar)
        self._visit_invariants(loop)
        self.statements.append(Begin(loop))
        self._inside.add(loop.number)
        if loop.condition is not None:
            self._visit(loop.condition)
            self.statements.append(Test(loop))
        for scalar in (*loop.end, *loop.stacked):
            self._visit(scalar)
        self.statements.append(End(loop))
        self._inside.discard(loop.number)

    def _visit_invariants(self, loop: Loop) -> None:
        """Computes before the loop what its body needs and no iteration changes."""
        seen, stack = set(), [x for x in loop.results if isinstance(x, Value)]
        while stack:
            value = stack.pop()
            if value.index in seen:
                continue
            seen.add(value.index)
            if self._loops_of[value.index] <= self._inside:
                self._visit(value)
            else:
                if value.op == "element" and value.args[0] not in self._filled:
                    self._fill(value.args[0])
                stack.extend(_sources(self.graph, value))


def _operands(value: Value) -> list[Value]:
    """The nodes that an operation reads."""
    if value.op in ("in", *CARRIED, "final", "stacked"):
        return []
    return [x for x in value.args if isinstance(x, Value)]


def _sources(graph: Graph, value: Value) -> list[Value]:
    """The nodes that a node depends on; of the result of a loop, all that the loop reads."""
    if value.op in ("final", "stacked"):
        loop = graph.loops[value.args[0]]
        return [x for x in (*loop.start, *loop.results) if isinstance(x, Value)]
    elements = graph.arrays[value.args[0]] if value.op == "element" else ()
    return [x for x in (*_operands(value), *elements) if isinstance(x, Value)]


def _loops_of_nodes(graph: Graph) -> list[frozenset[int]]:
    """For each node, the loops whose iterations change it."""
    none: frozenset[int] = frozenset()
    of_loop: dict[int, frozenset[int]] = {}
    result: list[frozenset[int]] = []
    for value in graph.nodes:  # operands come first
        if value.op in CARRIED:
            result.append(frozenset((value.args[0],)))
        elif value.op in ("final", "stacked"):
            number = value.args[0]
            if number not in of_loop:
                inner = [result[x.index] for x in _sources(graph, value)]
                of_loop[number] = none.union(*inner) - {number}
            result.append(of_loop[number])
        else:
            result.append(none.union(*[result[x.index] for x in _sources(graph, value)]))
    return result
