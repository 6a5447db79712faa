"""Probe environments that show a sign once and ask for it later."""

from dataclasses import dataclass

import jax.numpy as jnp

from strl_jax.envs.probe.base import Probe, check_whole, env_state, signs
from strl_jax.types import Array, EnvState


@dataclass(frozen=True)
class Delayed(Probe):
    """Episodes of ``delay`` + 1 steps."""

    delay: int = 4

    def __post_init__(self):
        check_whole("delay", self.delay, 1)

    @property
    def episode_length(self) -> int:
        return int(self.delay) + 1


@dataclass(frozen=True)
class Remember(Delayed):
    """``state_action`` with a delay: the sign is seen at the first step only, 0 after it.

    An episode has ``delay`` + 1 steps, of which only the last is rewarded, with
    -(action - sign)^2; metric ``tracking_error`` = |action - sign| there, 0 before. With a
    memory, the last step's mean = sign and V = -gamma^n std^2 with n steps to go after this
    one (std of the actions). Without one the sign is lost: the last step's mean = 0 and
    V = -gamma^n (1 + std^2).
    """

    def reset(self, key: Array) -> EnvState:
        sign = signs(key)
        zero = jnp.zeros_like(sign)
        return env_state({"sign": sign, "age": zero}, sign, 0.0, terminated=False, tracking_error=zero)

    def step(self, state: EnvState, action: Array) -> EnvState:
        sign, age = state.physics["sign"], state.physics["age"] + 1.0
        last = age > self.delay
        error = jnp.where(last, action[:, 0] - sign, 0.0)
        physics = {"sign": sign, "age": age}
        return env_state(physics, 0 * sign, -jnp.square(error), terminated=last, tracking_error=jnp.abs(error))


@dataclass(frozen=True)
class Teacher(Delayed):
    """``remember`` with every step rewarded, and with ``sign`` for a teacher and the critic.

    ``state`` is the sign at the first step, 0 after it; ``sign`` is the sign at every step. An
    episode has ``delay`` + 1 steps, each with reward -(action - sign)^2. A teacher that sees
    ``sign`` finds mean = sign, and so does a student that sees ``state`` alone but has a memory.
    A student without one finds the sign at the first step and mean = 0 after it. Metric
    ``tracking_error`` = |action - sign|.
    """

    observation_shapes = {"state": (1,), "sign": (1,)}  # noqa: RUF012 (read only)

    def reset(self, key: Array) -> EnvState:
        sign = signs(key)
        zero = jnp.zeros_like(sign)
        physics = {"sign": sign, "age": zero}
        return env_state(physics, sign, 0.0, terminated=False, tracking_error=zero, sign=sign[:, None])

    def step(self, state: EnvState, action: Array) -> EnvState:
        sign, age = state.physics["sign"], state.physics["age"] + 1.0
        error = action[:, 0] - sign
        return env_state(
            {"sign": sign, "age": age},
            0 * sign,
            -jnp.square(error),
            terminated=age > self.delay,
            tracking_error=jnp.abs(error),
            sign=sign[:, None],
        )
