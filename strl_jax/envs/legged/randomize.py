"""What differs between environments, and what disturbs them."""

import jax
import jax.numpy as jnp

from strl_jax.envs.legged.config import DomainRandConfig, Range
from strl_jax.envs.legged.physics import Variation
from strl_jax.types import Array


def variation(config: DomainRandConfig, delay: Range, joints: int, key: Array) -> Variation:
    """The variation of one environment; what has no range stays as in the model."""
    keys = jax.random.split(key, 6)

    def uniform(number: int, limits: Range | None, shape: tuple[int, ...], otherwise: float) -> Array:
        low, high = limits or (otherwise, otherwise)
        return jax.random.uniform(keys[number], shape, minval=low, maxval=high)

    gain_keys = jax.random.split(keys[4])
    gains = [
        jax.random.uniform(k, (), minval=(limits or (1.0, 1.0))[0], maxval=(limits or (1.0, 1.0))[1])
        for k, limits in zip(gain_keys, (config.stiffness_range, config.damping_range), strict=True)
    ]
    return Variation(
        friction=uniform(0, config.friction_range, (), 1.0),
        added_mass=uniform(1, config.added_mass_range, (), 0.0),
        com=uniform(2, config.com_displacement_range, (3,), 0.0),
        strength=uniform(3, config.motor_strength_range, (joints,), 1.0),
        gains=jnp.stack(gains),
        delay=uniform(5, delay, (), 0.0),
    )


def push(config: DomainRandConfig, dt: float, key: Array, age: Array, velocity: Array) -> Array:
    """The base's velocity ``[B, 3]`` with a planar push added every ``push_interval_s``; ``age[B]`` in steps."""
    if config.push_interval_s is None:
        return velocity
    every = max(1, round(config.push_interval_s / dt))
    most = config.max_push_vel_xy
    shove = jax.vmap(lambda k: jax.random.uniform(k, (2,), minval=-most, maxval=most))(key)
    due = (age > 0) & (age % every == 0)
    return velocity.at[:, :2].add(jnp.where(due[:, None], shove, 0.0))
