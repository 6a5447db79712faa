"""Input of a discriminator: the states of the policy and of the expert."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from strl_jax.algorithms.hooks import Collected, part_of
from strl_jax.observations import Segments
from strl_jax.types import Array, EnvState, Obs

POLICY, EXPERT = "ref_obs", "ref_motion"  # st_rl's names of their states in the extras of environment and batch


@dataclass(frozen=True)
class AmpInput:
    """The input of a discriminator: flat states of length ``size``.

    Attributes:
        group: the policy's state is the observation of this group before a step and that after it,
            concatenated; None: the environment's extras ``ref_obs``.
        from_env: the expert's state is the environment's extras ``ref_motion``; else it
            is drawn from ``data["expert"]``, ``[N, size]``.
        size: length D of a state.
    """

    group: Segments | None
    from_env: bool
    size: int

    @property
    def components(self) -> tuple[str, ...]:
        """Components whose terminal observations are part of a state."""
        return () if self.group is None else self.group.names

    def policy_states(self, collected: Collected, *, after_reset: bool = False) -> Array:
        """The policy's states of a rollout, ``[T, B, D]``.

        Args:
            after_reset: at the end of an episode, the second half of a pair is the first observation of the
                next episode; False: the observation after the step, before the reset.
        """
        if self.group is None:
            return _flat(collected.extras[POLICY], collected.valid.shape)
        return self._pair(collected.obs, collected.next_obs if after_reset else collected.terminal_obs)

    def expert_states(self, collected: Collected) -> Array:
        """An expert's state for every step, ``[T, B, D]``: that of the environment, or one drawn with replacement."""
        if self.from_env:
            return _flat(collected.extras[EXPERT], collected.valid.shape)
        expert = jnp.asarray(part_of(collected.data, "expert"))
        return expert[jax.random.randint(collected.key, collected.valid.shape, 0, expert.shape[0])]

    def reached(self, obs: Obs, after: EnvState) -> Array:
        """The policy's states ``[B, D]`` of one step, from the observation before it and the environment after it."""
        if self.group is None:
            return _flat(after.extras[POLICY], after.reward.shape)
        return self._pair(obs, after.obs)

    def _pair(self, before: Obs, after: Obs) -> Array:
        return jnp.concatenate([self.group.flatten(before), self.group.flatten(after)], axis=-1)


def make_input(
    amp_obs_dim: int | None,
    group: Segments | None,
    extras: Mapping[str, tuple[int, ...]],
    expert_size: int | None = None,
) -> AmpInput:
    """The input for an environment, a config and an expert's motion.

    Args:
        amp_obs_dim: length of a state by the config, or None.
        group: components of the pair, or None.
        extras: name -> shape, without the batch, of the environment's extras.
        expert_size: length of the states in ``data["expert"]``; None: the environment's extras hold the expert.

    Raises:
        ValueError: there are no states of the policy or of the expert, or the sizes are different.
    """
    policy_size = _size(extras, POLICY, "amp group") if group is None else 2 * group.size
    from_env = expert_size is None
    expert_size = _size(extras, EXPERT, "expert data") if from_env else expert_size
    if policy_size != expert_size or amp_obs_dim not in (None, policy_size):
        raise ValueError(
            f"amp_obs_dim is {amp_obs_dim}, the policy's states have {policy_size} numbers and the expert's "
            f"{expert_size}; they must be the same"
        )
    return AmpInput(group, from_env, policy_size)


def _size(extras: Mapping[str, tuple[int, ...]], name: str, other: str) -> int:
    if name not in extras:
        raise ValueError(f"amp_obs_dim is unknown: the environment has no extras {name!r} and there is no {other}")
    return math.prod(extras[name])


def _flat(x: Array, batch: tuple[int, ...]) -> Array:
    return x.reshape(*batch, -1)
