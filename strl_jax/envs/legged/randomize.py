"""Domain randomisation: differences between environments, and pushes."""

import jax
import jax.numpy as jnp

from strl_jax.envs.legged.config import DomainRandConfig
from strl_jax.envs.legged.config_types import Range
from strl_jax.envs.legged.physics import Variation
from strl_jax.types import Array


def variation(config: DomainRandConfig, delay: Range, joints: int, key: Array) -> Variation:
    """The random properties of ONE environment; without a range, a property has the value of the model.

    Args:
        delay: range of the actions' delay, s.
        joints: number of joints.
    """
    fraction = jax.random.uniform(key, (8 + joints,))

    def in_range(limits: Range | None, part: slice, default: float) -> Array:
        low, high = limits or (default, default)
        return low + (high - low) * fraction[part]

    stiffness = in_range(config.stiffness_range, slice(5, 6), 1.0)
    damping = in_range(config.damping_range, slice(6, 7), 1.0)
    return Variation(
        friction=in_range(config.friction_range, slice(0, 1), 1.0)[0],
        added_mass=in_range(config.added_mass_range, slice(1, 2), 0.0)[0],
        com=in_range(config.com_displacement_range, slice(2, 5), 0.0),
        strength=in_range(config.motor_strength_range, slice(8, 8 + joints), 1.0),
        gains=jnp.concatenate([stiffness, damping]),
        delay=in_range(delay, slice(7, 8), 0.0)[0],
    )


def check_mass(config: DomainRandConfig, mass: float) -> None:
    """Raises ``ValueError`` if a base of ``mass`` kg can get a mass <= 0."""
    added = config.added_mass_range
    if added is not None and added[0] <= -mass:
        limit = f"its first number must be above {-mass:g}, as the base has {mass:g} kg"
        raise ValueError(f"domain_rand.added_mass_range: {list(added)} is not allowed; {limit}")


def push(max_change: float, interval: int, key: Array, age: Array, velocity: Array) -> Array:
    """The base's velocity ``[B, 3]`` in the world, m/s, with a random planar push every ``interval`` steps.

    Args:
        max_change: greatest change of the velocity along x and along y, m/s.
        key: PRNG ``key[B]``.
        age: ``[B]``, steps since the reset.
        velocity: ``[B, 3]``, before the push.
    """
    change = jax.vmap(lambda k: jax.random.uniform(k, (2,), minval=-max_change, maxval=max_change))(key)
    due = (age > 0) & (age % interval == 0)
    return velocity.at[:, :2].add(jnp.where(due[:, None], change, 0.0))
