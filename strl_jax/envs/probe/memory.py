"""Probe environments that test memory: the observation shows a sign once, the reward needs it later."""

from dataclasses import dataclass

import jax.numpy as jnp

from strl_jax.envs.probe.base import Probe, check_whole, signs, tracking_state
from strl_jax.types import Array, EnvState


@dataclass(frozen=True)
class Delayed(Probe):
    """Episodes of ``delay`` + 1 steps. The action must be the sign, which ``state`` shows only at the first step."""

    delay: int = 4

    def __post_init__(self):
        check_whole("delay", self.delay, 1)

    @property
    def episode_length(self) -> int:
        return int(self.delay) + 1

    def reset(self, key: Array) -> EnvState:
        sign = signs(key)
        zero = jnp.zeros_like(sign)
        return self._state_of(sign, zero, sign, zero)

    def step(self, state: EnvState, action: Array) -> EnvState:
        sign, age = state.physics["sign"], state.physics["age"] + 1.0
        return self._state_of(sign, age, 0 * sign, action[:, 0] - sign)

    def _state_of(self, sign: Array, age: Array, shown: Array, error: Array, /, **components: Array) -> EnvState:
        physics = {"sign": sign, "age": age}
        return tracking_state(physics, shown, error, terminated=age > self.delay, **components)


@dataclass(frozen=True)
class Remember(Delayed):
    """``state_action`` with a delay: the observation is the sign (-1 or 1) at the first step and 0 after it.

    An episode has ``delay`` + 1 steps. Only the last has a reward, -(action - sign)^2; metric
    ``tracking_error`` = |action - sign| at this step, 0 before it. With std the standard
    deviation of the actions and n the number of steps after the current one, a policy with
    memory learns mean = sign at the last step and V = -gamma^n std^2. A policy without memory
    cannot know the sign: it learns mean = 0 at the last step and V = -gamma^n (1 + std^2).
    """

    def _state_of(self, sign: Array, age: Array, shown: Array, error: Array) -> EnvState:
        return super()._state_of(sign, age, shown, jnp.where(age > self.delay, error, 0.0))


@dataclass(frozen=True)
class Teacher(Delayed):
    """``remember`` with a reward at every step, and with the component ``sign`` for a teacher and the critic.

    ``state`` is the sign at the first step and 0 after it; ``sign`` is the sign at every step. An
    episode has ``delay`` + 1 steps, each with reward -(action - sign)^2. A teacher that observes
    ``sign`` learns mean = sign, and so does a student that observes only ``state`` but has memory.
    A student without memory learns mean = sign at the first step and mean = 0 after it. Metric
    ``tracking_error`` = |action - sign|.
    """

    observation_shapes = {"state": (1,), "sign": (1,)}  # noqa: RUF012 (read only)

    def _state_of(self, sign: Array, age: Array, shown: Array, error: Array) -> EnvState:
        return super()._state_of(sign, age, shown, error, sign=sign[:, None])
