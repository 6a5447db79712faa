"""The environment protocol: a batch of environments as pure functions."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from strl_jax.types import Array, EnvState


class Env(ABC):
    """A batch of environments. Subclass it, or provide the same attributes.

    B is the number of environments; it is the first axis of every array.

    Attributes:
        observation_shapes: component name -> shape of the component for one environment.
        action_size: number of actions A.
        dt: duration of one step in seconds.
        episode_length: default time limit in steps.
        resets_alone: the initial state of an environment depends on its key alone, not on its place in the batch.
    """

    resets_alone: bool = True
    observation_shapes: Mapping[str, tuple[int, ...]]
    action_size: int
    dt: float
    episode_length: int

    @abstractmethod
    def reset(self, key: Array) -> EnvState:
        """Initial states of B environments, one for each PRNG key of ``key[B]``."""

    @abstractmethod
    def step(self, state: EnvState, action: Array) -> EnvState:
        """One step of all environments, without resets. ``action`` is ``[B, A]``.

        Only ``physics`` and ``obs`` of ``state`` have values; see ``carried``.
        """

    def merge(self, done: Array, fresh: EnvState, state: EnvState) -> EnvState:
        """``fresh`` where ``done[B]``, otherwise ``state``; both are ``carried``.

        Override it to keep values that continue after the end of an episode, such as a curriculum.
        """
        return where(done, fresh, state)

    def evaluated(self) -> "Env":
        """The environments for an evaluation. Override it to remove what only training needs, such as pushes."""
        return self

    def at_iteration(self, iteration: Array) -> "Env":
        """The environments for one iteration. Override it if ``reset`` or ``step`` depend on the progress of the run.

        It is called inside the compiled program, so no iteration compiles again. A frozen dataclass can return
        ``dataclasses.replace(self, iteration=iteration)``. Shapes and types must not depend on the iteration.

        Args:
            iteration: int32[], number of finished iterations; also in evaluations.
        """
        return self

    def scores(self, means: dict[str, Array]) -> dict[str, Array]:
        """Scalars that an evaluation reports in addition to the metrics.

        The runners show ``tracking_error`` and ``CoT`` (cost of transport).

        Args:
            means: metric -> scalar, its mean over all steps of all episodes.
        """
        return {}

    def simulator(self) -> tuple[Callable, Callable]:
        """The simulator alone, for benchmarks: ``reset(key[B]) -> state`` and ``step(state, action) -> state``.

        An adapter returns the functions of its simulator, which use the simulator's complete state.
        """
        return self.reset, self.step

    def finite(self, state: EnvState) -> Array:
        """bool[B]: the environment's physics has no NaN and no infinity."""
        return finite(state.physics, state.reward.shape[0])


def carried(state: EnvState) -> EnvState:
    """The part of a state that the next step needs: physics and observation.

    The other fields (reward, ends, metrics, extras) belong to one step. Without them
    the rollout's loop copies less, a reset writes less and a checkpoint is smaller.
    """
    return state.replace(reward=None, terminated=None, timeout=None, metrics={}, extras={})


def where(condition: Array, chosen, other):
    """Tree with ``chosen`` where ``condition[B]``, otherwise ``other``; leaves ``[B, ...]``, PRNG keys too.

    The condition can have several axes; they are the first axes of all leaves.
    """

    def pick(a, b):
        return jnp.where(jax.lax.expand_dims(condition, range(condition.ndim, a.ndim)), a, b)

    return jax.tree.map(pick, chosen, other)


LARGEST = 1e9  # no quantity of a robot is so large, but a simulator that diverges passes it before it returns NaN


def finite(tree, batch: int, limit: float = jnp.inf) -> Array:
    """bool[B]: every floating-point leaf ``[B, ...]`` of the tree is finite, and its magnitude is below ``limit``."""
    result = jnp.ones(batch, bool)
    for leaf in jax.tree.leaves(tree):
        if jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.size:
            valid = jnp.isfinite(leaf) & (jnp.abs(leaf) < limit)
            result &= valid.reshape(batch, -1).all(axis=1)
    return result
