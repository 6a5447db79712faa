"""The live leaves of a simulator's state: those that the results of later steps depend on.

A simulator's state has many leaves that the next step computes again before it reads
them. Such leaves need not be copied through a scan, reset, or saved in a checkpoint.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import partial_eval

from strl_jax.types import Array


class LiveLeaves:
    """Converts a batch of states to its live leaves and back.

    Args:
        step: ``(state, action) -> (state, outputs)`` of ONE environment; every leaf of
            ``outputs`` is treated as needed.
        state: shapes of one environment's state.
        action: shape of one environment's action.

    Attributes:
        live: one bool for each leaf of the state: whether the outputs of a later step depend on it.
    """

    def __init__(self, step: Callable, state: Any, action: jax.ShapeDtypeStruct):
        self._leaves, self._treedef = jax.tree.flatten(state)
        self.live = _dependencies(step, state, action)

    def pack(self, state: Any) -> tuple[Array, ...]:
        """The live leaves ``[B, ...]`` of a batch of states."""
        return tuple(leaf for leaf, live in zip(jax.tree.leaves(state), self.live, strict=True) if live)

    def unpack(self, packed: tuple[Array, ...], batch: int) -> Any:
        """The batch of states; leaves that are not live are zeros."""
        packed_leaves = iter(packed)
        leaves = [
            next(packed_leaves) if live else jnp.zeros((batch, *leaf.shape), leaf.dtype)
            for leaf, live in zip(self._leaves, self.live, strict=True)
        ]
        return jax.tree.unflatten(self._treedef, leaves)


def _dependencies(step: Callable, state: Any, action: jax.ShapeDtypeStruct) -> tuple[bool, ...]:
    """For each leaf of the state, whether the outputs depend on it, directly or through the state of a later step.

    The set starts empty and grows until dead code elimination adds no leaf: a fixed point.
    """
    jaxpr, shapes = jax.make_jaxpr(step, return_shape=True)(state, action)
    number = len(jax.tree.leaves(state))
    outputs = len(jax.tree.leaves(shapes[1]))
    live = np.zeros(number, bool)
    while True:
        _, used = partial_eval.dce_jaxpr(jaxpr.jaxpr, [*live.tolist(), *[True] * outputs])
        grown = live | np.asarray(used[:number])
        if (grown == live).all():
            break
        live = grown
    sizes = np.asarray([leaf.size for leaf in jax.tree.leaves(state)])
    return tuple((live & (sizes > 0)).tolist())
