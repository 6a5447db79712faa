"""The one environment protocol: a batch of environments as pure functions."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from strl_jax.types import Array, EnvState


class Env(ABC):
    """A batch of environments. Subclass it, or offer the same attributes.

    Attributes:
        observation_shapes: component name -> shape of one environment's component.
        action_size: number of actions.
        dt: seconds of one step.
        episode_length: default time limit in steps.
    """

    observation_shapes: Mapping[str, tuple[int, ...]]
    action_size: int
    dt: float
    episode_length: int

    @abstractmethod
    def reset(self, key: Array) -> EnvState:
        """Fresh environments, one for each key of ``key[B]``."""

    @abstractmethod
    def step(self, state: EnvState, action: Array) -> EnvState:
        """One step of all environments, with no reset. ``action`` is ``[B, action_size]``.

        Of ``state`` only ``physics`` and ``obs`` are there; see ``carried``.
        """

    def merge(self, done: Array, fresh: EnvState, state: EnvState) -> EnvState:
        """``fresh`` where ``done[B]``, else ``state``, both ``carried``. Override to keep what outlives an episode."""
        return where(done, fresh, state)

    def evaluated(self) -> "Env":
        """The environments of an evaluation: override to leave out what only training needs, such as pushes."""
        return self

    def scores(self, means: dict[str, Array]) -> dict[str, Array]:
        """What an evaluation reports beside the metrics; runners know ``tracking_error`` and ``CoT``.

        Args:
            means: scalars, each metric's mean over all steps of all episodes.
        """
        return {}

    def simulator(self) -> tuple[Callable, Callable]:
        """The bare simulator, for benchmarks: ``reset(key[B]) -> state`` and ``step(state, action) -> state``.

        Adapters that wrap a simulator give its own functions, over its own whole state.
        """
        return self.reset, self.step

    def finite(self, state: EnvState) -> Array:
        """bool[B]: nothing in the environment's physics is NaN or infinite."""
        return finite(state.physics, state.reward.shape[0])


def carried(state: EnvState) -> EnvState:
    """The part of a state that goes from step to step: physics and observation.

    What belongs to one step alone (reward, ends, metrics, extras) would be reset,
    copied through the rollout's loop and saved for nothing.
    """
    return state.replace(reward=None, terminated=None, timeout=None, metrics={}, extras={})


def where(condition: Array, chosen, other):
    """Tree of ``chosen`` where ``condition[B]``, else ``other``; leaves ``[B, ...]``, PRNG keys too."""

    def pick(a, b):
        return jnp.where(condition.reshape(condition.shape + (1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(pick, chosen, other)


LARGEST = 1e9  # a simulator passes through finite numbers beyond any quantity of a robot before it gives NaN


def finite(tree, batch: int, limit: float = jnp.inf) -> Array:
    """bool[B]: every floating-point leaf ``[B, ...]`` of the tree is finite and under ``limit`` in size."""
    result = jnp.ones(batch, bool)
    for leaf in jax.tree.leaves(tree):
        if jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.size:
            sane = jnp.isfinite(leaf) & (jnp.abs(leaf) < limit)
            result &= sane.reshape(batch, -1).all(axis=1)
    return result
