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
    """Component -> shape for one environment.

    ``proprioception`` has noise, and the order of st_rl. The other components are exact, except for the
    camera's own noise. See the function of each component.
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
    """Amplitude of the noise of ``proprioception``, after scaling, ``[12 + 3 A]``; 0 for commands and actions."""
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
    joint_offset: Array,
    joint_vel: Array,
    action: Array,
    key: Array,
) -> Array:
    """Noisy measurements in the order of the arguments, which is st_rl's: ``[B, 12 + 3 A]``.

    All but gravity and action are multiplied by their scales in ``normalization.obs_scales``. The noise is added
    after that, and the sum is clipped to ``clip_observations``.

    Args:
        lin_vel, ang_vel: ``[B, 3]``, of the base in its frame, m/s and rad/s.
        gravity: ``[B, 3]``, direction of gravity in the base's frame.
        command: ``[B, 3]``, m/s, m/s, rad/s.
        joint_offset: ``[B, A]``, joint angle minus the angle at action 0, rad.
        joint_vel: ``[B, A]``, rad/s.
        action: ``[B, A]``, of the last step.
        key: ``[B]``, of the noise.
    """
    scale, limit = config.normalization.obs_scales, config.normalization.clip_observations
    parts = [
        lin_vel * scale.lin_vel,
        ang_vel * scale.ang_vel,
        gravity,
        command * jnp.array([scale.lin_vel, scale.lin_vel, scale.ang_vel]),
        joint_offset * scale.dof_pos,
        joint_vel * scale.dof_vel,
        action,
    ]
    clean = jnp.concatenate(parts, axis=-1)
    noise = jax.vmap(lambda k: jax.random.uniform(k, clean.shape[1:], minval=-1.0, maxval=1.0))(key)
    return jnp.clip(clean + noise * noise_scales(config, action.shape[-1]), -limit, limit)


def privileged(config: LeggedConfig, lin_vel: Array, contact: Array, variation: Variation) -> Obs:
    """The components that a real robot cannot measure; ``[B, ...]``.

    ``base_mass`` is the added mass in kg, ``base_com`` the displacement in m. ``motor_strength`` and ``gains`` are
    factors. ``base_velocity`` is ``lin_vel``, in the base's frame, times ``obs_scales.lin_vel``.
    """
    return {
        "base_velocity": lin_vel * config.normalization.obs_scales.lin_vel,
        "contact": contact.astype(jnp.float32),
        "friction": variation.friction[:, None],
        "base_mass": variation.added_mass[:, None],
        "base_com": variation.com,
        "motor_strength": variation.strength,
        "gains": variation.gains,
    }


def amp(joints: Array, feet: Array, lin_vel: Array, ang_vel: Array, joint_vel: Array, height: Array) -> Array:
    """The motion for a discriminator, in the order of the arguments and in SI units; ``[B, 43]`` for 12 joints, 4 feet.

    Args:
        joints, joint_vel: ``[B, A]``, joint angles and velocities.
        feet: ``[B, F, 3]``, positions in the base's frame.
        lin_vel, ang_vel: ``[B, 3]``, of the base in its frame.
        height: ``[B]``, of the base above the ground.
    """
    return jnp.concatenate([joints, feet.reshape(len(feet), -1), lin_vel, ang_vel, joint_vel, height[:, None]], axis=-1)


def height_scan(config: LeggedConfig, terrain: Terrain | None, base: Array, yaw: Array) -> Array:
    """Height of the base above P points of the ground, ``[B, P]``, as in legged_gym.

    The points are fixed to the base's position and heading; y varies fastest. The number is the height
    in m minus 0.5, clipped to [-1, 1], times ``obs_scales.height_measurements``.

    Args:
        terrain: None: flat ground at height 0.
        base: ``[B, 3]``, position of the base in the world, m.
        yaw: ``[B]``, heading of the base, rad.
    """
    x, y = np.meshgrid(config.terrain.measured_points_x, config.terrain.measured_points_y, indexing="ij")
    x, y = x.reshape(-1).astype(np.float32), y.reshape(-1).astype(np.float32)
    above = jnp.broadcast_to(base[:, 2:], (len(base), len(x)))
    if terrain is not None:
        cos, sin = jnp.cos(yaw)[:, None], jnp.sin(yaw)[:, None]
        points = jnp.stack([cos * x - sin * y, sin * x + cos * y], axis=-1) + base[:, None, :2]
        above -= terrain.height(points)
    return jnp.clip(above - 0.5, -1.0, 1.0) * config.normalization.obs_scales.height_measurements
