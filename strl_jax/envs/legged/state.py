"""The state of the legged environments, and the record of a step."""

import jax.numpy as jnp
from flax import struct

from strl_jax.envs.legged.physics import Motion, Variation
from strl_jax.envs.legged.rotations import rotate_back
from strl_jax.envs.legged.terrain.levels import OnField
from strl_jax.types import Array


@struct.dataclass
class Legged:
    """Everything that the next step needs; leaves [B, ...] for A joints and F feet."""

    motion: Motion
    variation: Variation
    command: Array  # [B, 5], uniform numbers of commands.draw
    command_level: Array  # [B], see commands.velocity
    limit: Array  # int32[B], steps, the time limit of this environment's episodes
    age: Array  # int32[B], steps since the reset
    tracking: Array  # [B], sum of exp(-error^2 / sigma) over the episode
    action: Array  # [B, A], of the last step
    feet: Array  # [B, F, 3], m, in the world
    contact: Array  # bool[B, F]
    air_time: Array  # [B, F], seconds since each foot was last on the ground
    key: Array  # PRNG key[B]
    field: OnField | None  # None: the ground is flat


@struct.dataclass
class Record:
    """Values of one step for videos, plots and tables; leaves [B, ...]."""

    qpos: Array  # [B, nq], after the step
    command: Array  # [B, 3], m/s, m/s, rad/s
    velocity: Array  # [B, 3], of the base in its frame: m/s, m/s, rad/s
    torque: Array  # [B, A], Nm, at the end of the step
    contact: Array  # bool[B, F]
    fallen: Array  # bool[B]


def body_velocities(motion: Motion) -> tuple[Array, Array, Array]:
    """Linear velocity (m/s), angular velocity (rad/s) and direction of gravity in the base's frame, ``[B, 3]`` each."""
    quaternion = motion.qpos[:, 3:7]
    down = jnp.broadcast_to(jnp.array([0.0, 0.0, -1.0]), (*quaternion.shape[:1], 3))
    return rotate_back(quaternion, motion.qvel[:, :3]), motion.qvel[:, 3:6], rotate_back(quaternion, down)
