"""Which leaves of a simulator's state the future depends on.

A simulator's state holds much that the next step computes anew before it reads
it. Such leaves need no copy through a scan, no reset and no place in a checkpoint.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import partial_eval

from strl_jax.types import Array


class LiveLeaves:
    """Packs a batch of states into its live leaves and back.

    Args:
        step: ``(state, action) -> (state, outputs)`` of ONE environment; everything in
            ``outputs`` counts as wanted.
        state: shapes of one environment's state.
        action: shape of one environment's action.

    Attributes:
        live: for every leaf of the state, whether some later step's outputs depend on it.
    """

    def __init__(self, step: Callable, state: Any, action: jax.ShapeDtypeStruct):
        self._leaves, self._treedef = jax.tree.flatten(state)
        self.live = _live(step, state, action)

    def pack(self, state: Any) -> tuple[Array, ...]:
        """Live leaves ``[B, ...]`` of a batch of states."""
        return tuple(leaf for leaf, live in zip(jax.tree.leaves(state), self.live, strict=True) if live)

    def unpack(self, packed: tuple[Array, ...], batch: int) -> Any:
        """The batch of states, with zeros in the leaves that nothing reads."""
        live = iter(packed)
        leaves = [
            next(live) if keep else jnp.zeros((batch, *leaf.shape), leaf.dtype)
            for leaf, keep in zip(self._leaves, self.live, strict=True)
        ]
        return jax.tree.unflatten(self._treedef, leaves)


def _live(step: Callable, state: Any, action: jax.ShapeDtypeStruct) -> tuple[bool, ...]:
    """Smallest set of leaves that outputs depend on, now or through the set itself."""
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
