"""Probe environments that test the critic: no action changes the reward."""

from dataclasses import dataclass

import jax.numpy as jnp

from strl_jax.envs.probe.base import Probe, env_state, signs
from strl_jax.types import Array, EnvState


@dataclass(frozen=True)
class Constant(Probe):
    """One step, reward 1, observation 0. V = 1."""

    terminates = True

    def reset(self, key: Array) -> EnvState:
        zero = jnp.zeros(key.shape[0])
        return env_state(zero, zero, zero, terminated=False)

    def step(self, state: EnvState, action: Array) -> EnvState:
        return env_state(state.physics, state.physics, 1.0, terminated=self.terminates)


@dataclass(frozen=True)
class ObservedReward(Probe):
    """One step, observation -1 or 1, reward = observation. V = observation."""

    def reset(self, key: Array) -> EnvState:
        sign = signs(key)
        return env_state(sign, sign, 0.0, terminated=False)

    def step(self, state: EnvState, action: Array) -> EnvState:
        return env_state(state.physics, state.physics, state.physics, terminated=True)


@dataclass(frozen=True)
class Discounted(Probe):
    """Two steps; the observation is the step count, the second step has reward 1. V(0) = gamma, V(1) = 1."""

    def reset(self, key: Array) -> EnvState:
        age = jnp.zeros(key.shape[0])
        return env_state(age, age, 0.0, terminated=False)

    def step(self, state: EnvState, action: Array) -> EnvState:
        age = state.physics + 1.0
        last = age >= 2.0
        return env_state(age, age, last.astype(jnp.float32), terminated=last)


@dataclass(frozen=True)
class Timeout(Constant):
    """Reward 1 at every step, observation 0; only the time limit ends an episode.

    V = 1 / (1 - gamma) if the learner adds gamma V at a time-out, lower if it treats the time-out as a termination.
    """

    terminates = False


@dataclass(frozen=True)
class Cycle(ObservedReward):
    """The observation alternates between 1 and -1; a step from 1 has reward 1, a step from -1 has reward 0.

    The first observation is 1 or -1 at random; only the time limit ends an episode.
    V(1) = 1 / (1 - gamma^2), V(-1) = gamma V(1). With a time limit of one step, a
    learner that adds gamma V(s_t) at a time-out learns 1 / (1 - gamma) and 0; a learner
    that adds gamma V of the observation after the reset learns values between the two.
    """

    episode_length = 1

    def step(self, state: EnvState, action: Array) -> EnvState:
        sign = state.physics
        return env_state(-sign, -sign, (sign > 0).astype(jnp.float32), terminated=False)
