"""Inference: the trained policy as a function of observations."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from strl_jax.algorithms.base import Algorithm
from strl_jax.types import Array, Obs


class InferencePolicy:
    """``policy(obs) -> mean action [B, A]``.

    A recurrent policy keeps its hidden states between calls; ``reset`` clears them.

    Args:
        algorithm: the policy and its observation groups.
        variables, stats: parameters and statistics. They are copied: later training does not change this policy.
    """

    def __init__(self, algorithm: Algorithm, variables: dict, stats: dict):
        self._algorithm = algorithm
        self._variables, self._stats = jax.tree.map(jnp.copy, (variables, stats))
        self._carry: dict | None = None
        self._reset: Array | None = None
        self._act = jax.jit(self._step)

    def __call__(self, obs: Obs | Array) -> Array:
        """Mean actions ``[B, A]``.

        Args:
            obs: component -> ``[B, *shape]``, not normalised, or one array ``[B, D]`` with the
                actor's components flattened and concatenated in their order.

        Raises:
            ValueError: a component is missing or has another shape, or the hidden states
                belong to another number of environments.
        """
        obs = self._named(obs)
        batch = len(next(iter(obs.values())))
        if self._carry is None or (not self._carry and len(self._reset) != batch):  # no hidden state: any B fits
            self._carry, self._reset = self._algorithm.policy.initial_carry(batch), jnp.ones(batch, bool)
        elif len(self._reset) != batch:
            raise ValueError(
                f"observations of {batch} environments, but hidden states of {len(self._reset)}; call reset"
            )
        mean, self._carry = self._act(self._variables, self._stats, obs, self._carry, self._reset)
        self._reset = jnp.zeros_like(self._reset)
        return mean

    def _named(self, obs: Obs | Array) -> Obs:
        """The components that the policy reads, each ``[B, *shape]``."""
        actor = self._algorithm.groups["actor"]
        if not isinstance(obs, Mapping):
            if np.ndim(obs) != 2 or np.shape(obs)[1] != actor.size:
                raise ValueError(f"an observation array is [B, {actor.size}], not {list(np.shape(obs))}")
            obs = {name: actor.select(jnp.asarray(obs), name) for name in actor.names}
        groups = [self._algorithm.groups[name] for name in self._algorithm.act_groups]
        wanted = {name: shape for group in groups for name, shape in zip(group.names, group.shapes, strict=True)}
        batch = next((len(obs[name]) for name in wanted if name in obs and np.ndim(obs[name])), 0)
        for name, shape in wanted.items():
            if name not in obs:
                raise ValueError(f"component {name!r} is missing from the observation, which has {', '.join(obs)}")
            if np.shape(obs[name]) != (batch, *shape):
                raise ValueError(f"component {name!r} is [B, *{shape}], not {list(np.shape(obs[name]))}")
        return {name: obs[name] for name in wanted}

    def reset(self, dones: Array | None = None) -> None:
        """Clears the hidden states where ``dones[B]`` (bool or 0/1) is true; without ``dones`` all of them.

        Raises:
            ValueError: ``dones`` has another shape.
        """
        if dones is None:
            self._carry = None
        elif self._carry:
            marks = np.asarray(dones).astype(bool)
            if marks.shape != self._reset.shape:
                raise ValueError(
                    f"dones has shape {marks.shape}, but there are hidden states of {len(self._reset)} environments"
                )
            self._reset |= marks

    def _step(self, variables: dict, stats: dict, obs: Obs, carry: dict, reset: Array) -> tuple[Array, dict]:
        groups = self._algorithm.pack(stats, obs, groups=self._algorithm.act_groups)
        mean, _, carry = self._algorithm.policy.apply(variables, groups, carry, reset, method="act")
        return mean, carry
