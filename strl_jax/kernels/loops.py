"""Loops of the generated code: ``scan`` and ``while`` stay loops."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from strl_jax.kernels.arrays import flat
from strl_jax.kernels.graph import Graph, Scalar, Value, type_of


@dataclass(eq=False)
class Loop:
    """A loop over scalars that it carries.

    Attributes:
        number: its place in ``Graph.loops``.
        length: number of iterations; None: until ``condition`` is false.
        carry: nodes that the body reads.
        start: their values before the first iteration.
        end: their values after an iteration.
        condition: computed from ``carry`` before every iteration; None with a length.
        stacked: scalars that every iteration stores; ``stacked`` nodes read them after the loop.
        counter: int32 node, the number of the iteration; only with a length.
    """

    number: int
    length: int | None
    carry: list[Value]
    start: list[Scalar]
    counter: Value
    end: list[Scalar] = field(default_factory=list)
    condition: Scalar | None = None
    stacked: list[Scalar] = field(default_factory=list)

    @property
    def results(self) -> list[Scalar]:
        """All scalars that an iteration computes."""
        return [*self.end, *self.stacked, *([] if self.condition is None else [self.condition])]


def open_loop(graph: Graph, start: Sequence[np.ndarray], avals: Sequence, length: int | None) -> tuple[Loop, list]:
    """A new loop, and the arrays that its body reads as carry."""
    number = len(graph.loops)
    carry = _nodes(graph, "carry", number, avals)
    loop = Loop(number, length, flat(carry), flat(start), graph.node("counter", (number,), "i"))
    graph.loops.append(loop)
    return loop, carry


def finish_loop(graph: Graph, loop: Loop, end: Sequence[np.ndarray], avals: Sequence) -> list[np.ndarray]:
    """Sets what an iteration computes. Returns the carry after the last iteration."""
    loop.end = flat(end)
    return _nodes(graph, "final", loop.number, avals)


def finish_stacks(graph: Graph, loop: Loop, outputs: Sequence[np.ndarray], avals: Sequence) -> list[np.ndarray]:
    """Stores ``outputs`` in every iteration. Returns the arrays ``[length, ...]`` that have them after the loop."""
    first = 0
    results = []
    loop.stacked = flat(outputs)
    width = len(loop.stacked)
    for output, aval in zip(outputs, avals, strict=True):
        result = np.empty((loop.length, *output.shape), object)
        for iteration in range(loop.length):
            for place, position in enumerate(np.ndindex(output.shape)):
                index = iteration * width + first + place
                result[(iteration, *position)] = graph.node("stacked", (loop.number, index), type_of(aval.dtype))
        results.append(result)
        first += output.size
    return results


def _nodes(graph: Graph, op: str, number: int, avals: Sequence) -> list[np.ndarray]:
    place = 0
    arrays = []
    for aval in avals:
        array, type = np.empty(aval.shape, object), type_of(aval.dtype)
        for position in np.ndindex(aval.shape):
            array[position] = graph.node(op, (number, place), type)
            place += 1
        arrays.append(array)
    return arrays
