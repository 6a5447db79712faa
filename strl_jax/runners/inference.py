"""Inference: the trained policy as a function of observations."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from strl_jax.algorithms import losses
from strl_jax.algorithms.base import Algorithm
from strl_jax.modules import estimators, normalizer
from strl_jax.modules.mutex import MutexPolicy
from strl_jax.modules.policy import Policy
from strl_jax.types import Array, Obs


@struct.dataclass
class Inference:
    """One step of a policy for B environments."""

    action: Array  # [B, A], sampled if a key was given, otherwise the mean
    mean: Array  # [B, A]
    std: Array  # [B, A]
    log_prob: Array | None  # [B], log-density of the action; None for a deterministic policy
    estimates: dict[str, Any]  # stage (estimator, adaptor) -> component -> [B, *shape], see ``named_estimates``
    latents: dict[str, Any]  # component -> [B, L], outputs of the actor's encoders; of a mutex policy by sub-policy
    carry: dict[str, Any]  # memory -> state after the step, leaves [B, layers, H]; {} without a memory


class InferencePolicy:
    """``policy(obs) -> mean action [B, A]``.

    A recurrent policy keeps its hidden states between calls; ``reset`` clears them.

    Args:
        algorithm: the policy and its observation groups.
        variables, stats: parameters and statistics. They are copied: later training does not change this policy.
        device: the device that computes; None: that of ``variables``.
    """

    def __init__(self, algorithm: Algorithm, variables: dict, stats: dict, device: jax.Device | None = None):
        self._algorithm, self._device = algorithm, device
        kept = (variables, stats)
        self._variables, self._stats = (
            jax.tree.map(jnp.copy, kept) if device is None else jax.device_put(jax.device_get(kept), device)
        )
        self._carry: dict | None = None
        self._reset: Array | None = None
        self._act = jax.jit(self._step, static_argnames="details")

    def __call__(self, obs: Obs | Array, *, key: Array | None = None, details: bool = False) -> Array | Inference:
        """Actions ``[B, A]``, or all outputs of the policy.

        Args:
            obs: component -> ``[B, *shape]``, not normalised, or one array ``[B, D]`` with the
                actor's components flattened and concatenated in their order.
            key: a PRNG key, with which the actions are sampled; None: mean actions. The actions of a
                deterministic policy are the mean in any case.
            details: return an ``Inference``.

        Raises:
            ValueError: a component is missing or has another shape, or the hidden states
                belong to another number of environments.
        """
        obs = self._named(obs)
        if self._device is not None:
            obs = jax.device_put(obs, self._device)
        batch = len(next(iter(obs.values())))
        if self._carry is None or (not self._carry and len(self._reset) != batch):  # no hidden state: any B fits
            self._carry, self._reset = self._algorithm.policy.initial_carry(batch), jnp.ones(batch, bool)
        elif len(self._reset) != batch:
            raise ValueError(
                f"observations of {batch} environments, but hidden states of {len(self._reset)}; call reset"
            )
        result, self._carry = self._act(
            self._variables, self._stats, obs, self._carry, self._reset, key, details=details
        )
        self._reset = jnp.zeros_like(self._reset)
        return result

    def act_inference(self, obs: Obs | Array) -> Array:
        """Mean actions ``[B, A]``; st_rl's name of a call without options."""
        return self(obs)

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

    def _step(
        self, variables: dict, stats: dict, obs: Obs, carry: dict, reset: Array, key: Array | None, *, details: bool
    ) -> tuple[Array | Inference, dict]:
        algorithm, policy = self._algorithm, self._algorithm.policy
        groups = algorithm.pack(stats, obs, groups=algorithm.act_groups)
        output = policy.apply(variables, groups, carry, reset, method="infer")
        action = output.mean
        if key is not None and not policy.deterministic:
            action = output.mean + output.std * jax.random.normal(key, output.mean.shape)
        if not details:
            return action, output.carry
        log_prob = None if policy.deterministic else losses.log_prob(action, output.mean, output.std)
        estimates = named_estimates(algorithm, stats, output.estimates)
        found = Inference(action, output.mean, output.std, log_prob, estimates, output.latents, output.carry)
        return found, output.carry


def named_estimates(algorithm: Algorithm, stats: dict, estimates: dict[str, Any]) -> dict[str, Any]:
    """The estimates of a policy by component, in the units of the observation.

    Args:
        stats: statistics of the observation groups; those of the critic, which has the estimated components,
            are used.
        estimates: stage -> ``[..., E]``, as the policy computes them; of a mutex policy, sub-policy -> stage -> ...

    Returns:
        Stage -> component -> ``[..., *shape]``. Of a mutex policy, sub-policy -> stage -> component -> ..., in the
        units of the run that trained the sub-policy: normalised if that run normalises its observations.
    """
    policy = algorithm.policy
    if isinstance(policy, MutexPolicy):
        subs = {f"submodules_{i}": sub.policy for i, sub in enumerate(policy.sub_policies)}
        return {name: _by_component(subs[name], value) for name, value in estimates.items()}
    moments, eps = stats.get("critic", {}), algorithm.config.normalization_eps
    named = _by_component(policy, estimates)
    return {
        stage: {
            name: normalizer.denormalize(moments[name], value, eps) if name in moments else value
            for name, value in parts.items()
        }
        for stage, parts in named.items()
    }


def _by_component(policy: Policy, estimates: dict[str, Array]) -> dict[str, dict[str, Array]]:
    """Stage -> component -> ``[..., *shape]``."""
    split = partial(estimators.split_estimate, actor=policy.actor_obs, critic=policy.critic_obs)
    return {name: split(getattr(policy, name), estimate=estimate) for name, estimate in estimates.items()}
