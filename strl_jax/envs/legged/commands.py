"""What the robots are told to do: velocities and a heading, drawn once and read from the draw."""

import jax
import jax.numpy as jnp

from strl_jax.envs.legged.config import CommandsConfig
from strl_jax.envs.legged.config_types import Range
from strl_jax.types import Array

DRAWS = 5  # vx, vy, yaw rate, heading, whether it stands still
GAIN = 0.5  # rad/s of yaw rate for each rad of heading error


def draw(key: Array) -> Array:
    """Uniform numbers in [0, 1) for a command, ``[B, 5]`` for ``key[B]``."""
    return jax.vmap(lambda k: jax.random.uniform(k, (DRAWS,)))(key)


def velocity(config: CommandsConfig, drawn: Array, level: Array, yaw: Array) -> Array:
    """Commanded vx, vy in the base's frame and yaw rate, ``[B, 3]``.

    Args:
        drawn: ``[B, 5]``, of ``draw``.
        level: ``[B]``, the part of the planar ranges that is in use.
        yaw: ``[B]``, the base's heading, rad.
    """
    ranges = config.ranges
    planar = [
        level * _within(ranges.lin_vel_x, drawn[:, 0]),
        level * _within(ranges.lin_vel_y, drawn[:, 1]),
    ]
    rate = _within(ranges.ang_vel_yaw, drawn[:, 2])
    if config.heading_command:
        error = _wrap(_within(ranges.heading, drawn[:, 3]) - yaw)
        rate = jnp.clip(GAIN * error, *ranges.ang_vel_yaw)
    xy = jnp.stack(planar, axis=-1)
    xy = jnp.where(jnp.linalg.norm(xy, axis=-1, keepdims=True) > config.smallest, xy, 0.0)
    command = jnp.concatenate([xy, rate[:, None]], axis=-1)
    return jnp.where((drawn[:, 4] < config.zero_probability)[:, None], 0.0, command)


def first_level(config: CommandsConfig) -> float:
    """The part of the planar ranges that a new environment uses."""
    return config.start if config.curriculum else 1.0


def next_level(config: CommandsConfig, level: Array, tracking: Array) -> Array:
    """``level[B]`` after an episode whose mean ``exp(-error^2 / sigma)`` was ``tracking[B]``."""
    if not config.curriculum:
        return level
    return jnp.where(tracking > 0.8, jnp.minimum(level + config.step, 1.0), level)


def _within(limits: Range, share: Array) -> Array:
    low, high = limits
    return low + (high - low) * share


def _wrap(angle: Array) -> Array:
    """The angle in [-pi, pi)."""
    return jnp.mod(angle + jnp.pi, 2 * jnp.pi) - jnp.pi
