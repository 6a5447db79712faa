"""What differs between environments, and what disturbs them."""

import jax
import jax.numpy as jnp

from strl_jax.envs.legged.config import DomainRandConfig
from strl_jax.envs.legged.config_types import Range
from strl_jax.envs.legged.physics import Variation
from strl_jax.types import Array


def variation(config: DomainRandConfig, delay: Range, joints: int, key: Array) -> Variation:
    """The variation of one environment; what has no range stays as in the model."""
    share = jax.random.uniform(key, (8 + joints,))

    def within(limits: Range | None, part: slice, otherwise: float) -> Array:
        low, high = limits or (otherwise, otherwise)
        return low + (high - low) * share[part]

    stiffness = within(config.stiffness_range, slice(5, 6), 1.0)
    damping = within(config.damping_range, slice(6, 7), 1.0)
    return Variation(
        friction=within(config.friction_range, slice(0, 1), 1.0)[0],
        added_mass=within(config.added_mass_range, slice(1, 2), 0.0)[0],
        com=within(config.com_displacement_range, slice(2, 5), 0.0),
        strength=within(config.motor_strength_range, slice(8, 8 + joints), 1.0),
        gains=jnp.concatenate([stiffness, damping]),
        delay=within(delay, slice(7, 8), 0.0)[0],
    )


def push(most: float, every: int, key: Array, age: Array, velocity: Array) -> Array:
    """The base's velocity ``[B, 3]`` with a planar push of at most ``most`` along an axis every ``every`` steps.

    Args:
        age: ``[B]``, steps of the episode so far.
    """
    shove = jax.vmap(lambda k: jax.random.uniform(k, (2,), minval=-most, maxval=most))(key)
    due = (age > 0) & (age % every == 0)
    return velocity.at[:, :2].add(jnp.where(due[:, None], shove, 0.0))
