"""Observation components of the legged environments."""

import jax
import jax.numpy as jnp
import numpy as np

from strl_jax.envs.legged.config import LeggedConfig
from strl_jax.envs.legged.physics import Variation
from strl_jax.envs.legged.terrain import obstacles
from strl_jax.envs.legged.terrain.heights import Terrain
from strl_jax.types import Array, Obs

SIZES = {"lin_vel": 3, "ang_vel": 3, "gravity": 3, "commands": 3}  # then joint positions, velocities, last action


def shapes(config: LeggedConfig, joints: int, feet: int) -> dict[str, tuple[int, ...]]:
    """Component -> shape. ``proprioception`` is noisy and in st_rl's order; all others are exact.

    The 43 numbers of ``amp``: joint positions, feet in the base's frame, linear and angular velocity of
    the base in its frame, joint velocities, height over the ground; in SI units.
    """
    terrain = config.terrain
    points = len(terrain.measured_points_x) * len(terrain.measured_points_y)
    scan = {"height_scan": (points,)} if terrain.measure_heights else {}
    block = {} if terrain.mesh_type == "plane" else {"engaging_block": (obstacles.SIZE,)}
    camera = config.camera
    image = {} if camera is None else {"forward_depth": (1, camera.height, camera.width)}
    return {
        "proprioception": (sum(SIZES.values()) + 3 * joints,),
        "base_velocity": (3,),
        "contact": (feet,),
        "friction": (1,),
        "base_mass": (1,),
        "base_com": (3,),
        "motor_strength": (joints,),
        "gains": (2,),
        "amp": (joints + 3 * feet + 3 + 3 + joints + 1,),
        **scan,
        **block,
        **image,
    }


def noise_scales(config: LeggedConfig, joints: int) -> np.ndarray:
    """Greatest error of each number of ``proprioception``, after scaling; commands and actions have none."""
    size, scale = config.noise.noise_scales, config.normalization.obs_scales
    level = config.noise.noise_level if config.noise.add_noise else 0.0
    parts = [
        (3, size.lin_vel * scale.lin_vel),
        (3, size.ang_vel * scale.ang_vel),
        (3, size.gravity),
        (3, 0.0),
        (joints, size.dof_pos * scale.dof_pos),
        (joints, size.dof_vel * scale.dof_vel),
        (joints, 0.0),
    ]
    return level * np.concatenate([np.full(count, value, np.float32) for count, value in parts])


def proprioception(
    config: LeggedConfig,
    lin_vel: Array,
    ang_vel: Array,
    gravity: Array,
    command: Array,
    angles: Array,
    rates: Array,
    action: Array,
    key: Array,
) -> Array:
    """st_rl's order: linear and angular velocity, gravity, commands, joint angles from the default, rates, action.

    Args:
        key: ``[B]``, of the noise.
    """
    scale, limit = config.normalization.obs_scales, config.normalization.clip_observations
    parts = [
        lin_vel * scale.lin_vel,
        ang_vel * scale.ang_vel,
        gravity,
        command * jnp.array([scale.lin_vel, scale.lin_vel, scale.ang_vel]),
        angles * scale.dof_pos,
        rates * scale.dof_vel,
        action,
    ]
    clean = jnp.concatenate(parts, axis=-1)
    noise = jax.vmap(lambda k: jax.random.uniform(k, clean.shape[1:], minval=-1.0, maxval=1.0))(key)
    return jnp.clip(clean + noise * noise_scales(config, action.shape[-1]), -limit, limit)


def privileged(config: LeggedConfig, lin_vel: Array, contact: Array, variation: Variation) -> Obs:
    """What only the simulator knows."""
    return {
        "base_velocity": lin_vel * config.normalization.obs_scales.lin_vel,
        "contact": contact.astype(jnp.float32),
        "friction": variation.friction[:, None],
        "base_mass": variation.added_mass[:, None],
        "base_com": variation.com,
        "motor_strength": variation.strength,
        "gains": variation.gains,
    }


def amp(joints: Array, feet: Array, lin_vel: Array, ang_vel: Array, rates: Array, height: Array) -> Array:
    """``[B, 43]`` for 12 joints and 4 feet; ``feet[B, F, 3]`` in the base's frame."""
    return jnp.concatenate([joints, feet.reshape(len(feet), -1), lin_vel, ang_vel, rates, height[:, None]], axis=-1)


def height_scan(config: LeggedConfig, terrain: Terrain | None, base: Array, yaw: Array) -> Array:
    """``[B, P]``: how far the base is over points of the ground that turn with its heading.

    Less 0.5 m, clipped to 1 m, times ``height_measurements``, as in legged_gym; the points' x counts slowest.

    Args:
        base: ``[B, 3]``, its place in the world.
        yaw: ``[B]``, rad.
    """
    x, y = np.meshgrid(config.terrain.measured_points_x, config.terrain.measured_points_y, indexing="ij")
    x, y = x.reshape(-1).astype(np.float32), y.reshape(-1).astype(np.float32)
    over = jnp.broadcast_to(base[:, 2:], (len(base), len(x)))
    if terrain is not None:
        cos, sin = jnp.cos(yaw)[:, None], jnp.sin(yaw)[:, None]
        place = jnp.stack([cos * x - sin * y, sin * x + cos * y], axis=-1) + base[:, None, :2]
        over -= terrain.height(place)
    return jnp.clip(over - 0.5, -1.0, 1.0) * config.normalization.obs_scales.height_measurements
