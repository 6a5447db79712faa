"""The component ``engaging_block``: the obstacle that a robot on a terrain meets."""

import jax
import jax.numpy as jnp

from strl_jax.envs.legged.config_ground import TerrainConfig
from strl_jax.envs.legged.terrain.levels import OnField
from strl_jax.types import Array

OBSTACLE_IDS = 5  # ids 0 to 4; 0: none, 2: gap, 3: block, as in modules/mutex_selection.py
SIZE = 1 + OBSTACLE_IDS + 2  # distance, flags, extent, height


def engaging_block(config: TerrainConfig, obstacles: Array, origins: Array, field: OnField, position: Array) -> Array:
    """``[B, 8]``: distance, one-hot id (0 to 4), extent and height of the obstacle; lengths in m.

    An obstacle is a square ring around the centre of a field, where the robot starts. The distance of the
    robot from the centre is the greater of its offsets along x and y. The first number is the distance from
    the base outwards to the ring's inner edge: 0 at the edge, negative on the obstacle. The obstacle
    is engaged while this distance is between -(extent + ``passed_distance``) and ``engage_distance``.
    Otherwise the result is ``engage_distance``, id 0, and zeros. The robot's heading has no influence.

    Args:
        config: has ``engage_distance``, from which an obstacle is engaged before its inner edge, and
            ``passed_distance``, up to which it is engaged behind its outer edge, for the rear legs.
        obstacles: ``[rows, columns, 4]``: id (0: none), inner radius, extent, and height (negative: down).
        origins: ``[rows, columns, 3]``, the centres of the fields in the world.
        field: the field of each robot.
        position: ``[B, 3]``, of the base in the world.
    """
    ids, inner, extent, rise = jnp.moveaxis(obstacles[field.level, field.column], -1, 0)
    radius = jnp.abs(position[:, :2] - origins[field.level, field.column, :2]).max(axis=-1)
    distance = inner - radius
    engaged = (ids != 0) & (distance <= config.engage_distance) & (distance >= -(extent + config.passed_distance))
    flags = jax.nn.one_hot(jnp.where(engaged, ids, 0).astype(jnp.int32), OBSTACLE_IDS)
    distance = jnp.where(engaged, distance, config.engage_distance)[:, None]
    size = jnp.where(engaged[:, None], jnp.stack([extent, rise], axis=-1), 0.0)
    return jnp.concatenate([distance, flags, size], axis=-1)
