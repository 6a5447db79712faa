"""Probe environments that test style rewards: the task has many solutions, and the expert shows one of them.

After the task and style rewards of Peng et al., "AMP: Adversarial Motion Priors" (2021), https://arxiv.org/abs/2104.02180
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from strl_jax.envs.probe.base import Probe, env_state, signs
from strl_jax.types import Array, EnvState


@dataclass(frozen=True)
class Style(Probe):
    """One step, observation -1 or 1; the actions -1 and 1 are equally good, the expert's action is ``prefer``.

    Reward -(|action| - 1)^2. Extras: ``ref_obs[B, 1]`` is the policy's motion, the action
    clipped to [-3, 3]; ``ref_motion[B, 1]`` is the expert's motion, ``prefer`` plus noise of
    standard deviation 0.1. Both are 0 at a reset. Without a style reward mean = -1 or 1 at
    random; with it mean = prefer for both observations. Metric ``tracking_error`` =
    |action - prefer|.
    """

    prefer: float = 1.0

    def __post_init__(self):
        if self.prefer not in (-1.0, 1.0):
            raise ValueError(f"prefer is {self.prefer}; it must be -1 or 1")

    def reset(self, key: Array) -> EnvState:
        sign_key, noise_key = jax.vmap(jax.random.split, out_axes=1)(key)
        sign = signs(sign_key)
        zero = jnp.zeros_like(sign)
        extras = {"ref_obs": zero[:, None], "ref_motion": zero[:, None]}
        physics, metrics = {"sign": sign, "key": noise_key}, {"tracking_error": zero}
        return env_state(physics, sign, 0.0, terminated=False, metrics=metrics, extras=extras)

    def step(self, state: EnvState, action: Array) -> EnvState:
        next_key, noise_key = jax.vmap(jax.random.split, out_axes=1)(state.physics["key"])
        noise = jax.vmap(lambda key: jax.random.normal(key, (1,)))(noise_key)
        sign, action_value = state.physics["sign"], action[:, 0]
        reward = -jnp.square(jnp.abs(action_value) - 1.0)
        physics, metrics = {"sign": sign, "key": next_key}, {"tracking_error": jnp.abs(action_value - self.prefer)}
        extras = {"ref_obs": jnp.clip(action, -3.0, 3.0), "ref_motion": self.prefer + 0.1 * noise}
        return env_state(physics, sign, reward, terminated=True, metrics=metrics, extras=extras)


TURN = 0.5  # rad, the rotation of the expert's phase in one step


@dataclass(frozen=True)
class Gait(Probe):
    """Reward 1 at every step for every action; the action rotates ``phase[B, 2]``, the expert by 0.5 rad per step.

    ``phase`` is (cos, sin) of an angle. A reset draws the angle, a step adds the action, clipped
    to [-1, 1], in rad. ``state`` is 0. Only the time limit ends an episode. ``expert_pairs``
    returns the expert's motion as pairs of ``phase`` before and after a step. A learner with a
    style reward for such pairs learns mean = 0.5 at every phase. Without it V = 1 / (1 - gamma),
    and all means are equally good. Metric ``tracking_error`` = |action - 0.5| of the clipped action.
    """

    observation_shapes = {"state": (1,), "phase": (2,)}  # noqa: RUF012 (read only)
    episode_length = 8

    def reset(self, key: Array) -> EnvState:
        angle = jax.vmap(lambda k: jax.random.uniform(k, (), minval=-jnp.pi, maxval=jnp.pi))(key)
        zero = jnp.zeros_like(angle)
        return env_state(angle, zero, 0.0, terminated=False, metrics={"tracking_error": zero}, phase=_phase(angle))

    def step(self, state: EnvState, action: Array) -> EnvState:
        turn = jnp.clip(action[:, 0], -1.0, 1.0)
        angle = state.physics + turn
        metrics = {"tracking_error": jnp.abs(turn - TURN)}
        return env_state(angle, 0 * angle, 1.0, terminated=False, metrics=metrics, phase=_phase(angle))


def expert_pairs(number: int, seed: int) -> np.ndarray:
    """The motion of the expert of ``gait``: ``phase`` before and after a step, float32 ``[number, 4]``."""
    before = np.random.default_rng(seed).uniform(-np.pi, np.pi, number)
    after = before + TURN
    return np.stack([np.cos(before), np.sin(before), np.cos(after), np.sin(after)], axis=1).astype(np.float32)


def _phase(angle: Array) -> Array:
    """(cos, sin) ``[B, 2]`` of angles ``[B]``."""
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)
