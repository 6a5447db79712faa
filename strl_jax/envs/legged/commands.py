"""Commands: velocities and a heading, computed from uniform random numbers that the state keeps."""

import jax
import jax.numpy as jnp

from strl_jax.envs.legged.config import CommandsConfig
from strl_jax.envs.legged.config_types import Range
from strl_jax.types import Array

DRAWS = 5  # vx, vy, yaw rate, heading, standing still
GAIN = 0.5  # rad/s of yaw rate per rad of heading error


def draw(key: Array) -> Array:
    """Uniform numbers in [0, 1) for one command per environment: ``[B, 5]`` for ``key[B]``."""
    return jax.vmap(lambda k: jax.random.uniform(k, (DRAWS,)))(key)


def velocity(config: CommandsConfig, drawn: Array, level: Array, yaw: Array) -> Array:
    """Commanded vx and vy (m/s) and yaw rate (rad/s) in the base's frame, ``[B, 3]``.

    Args:
        drawn: result of ``draw``, ``[B, 5]``.
        level: ``[B]``, factor of the planar ranges: the curriculum.
        yaw: ``[B]``, the base's heading, rad.
    """
    ranges = config.ranges
    planar = [level * _in_range(limits, drawn[:, i]) for i, limits in enumerate((ranges.lin_vel_x, ranges.lin_vel_y))]
    rate = _in_range(ranges.ang_vel_yaw, drawn[:, 2])
    if config.heading_command:
        error = _wrap(_in_range(ranges.heading, drawn[:, 3]) - yaw)
        rate = jnp.clip(GAIN * error, *ranges.ang_vel_yaw)
    xy = jnp.stack(planar, axis=-1)
    xy = jnp.where(jnp.linalg.norm(xy, axis=-1, keepdims=True) > config.smallest, xy, 0.0)
    command = jnp.concatenate([xy, rate[:, None]], axis=-1)
    return jnp.where((drawn[:, 4] < config.zero_probability)[:, None], 0.0, command)


def first_level(config: CommandsConfig) -> float:
    """The level of a new environment."""
    return config.start if config.curriculum else 1.0


def next_level(config: CommandsConfig, level: Array, tracking: Array) -> Array:
    """The level ``[B]`` of the next episode.

    Args:
        level: ``[B]``, of the last episode.
        tracking: ``[B]``, sum of exp(-error^2 / sigma) over the episode, divided by its time limit in steps.
    """
    if not config.curriculum:
        return level
    return jnp.where(tracking > 0.8, jnp.minimum(level + config.step, 1.0), level)


def _in_range(limits: Range, fraction: Array) -> Array:
    low, high = limits
    return low + (high - low) * fraction


def _wrap(angle: Array) -> Array:
    """The same angle in [-pi, pi)."""
    return jnp.mod(angle + jnp.pi, 2 * jnp.pi) - jnp.pi
