"""The component ``engaging_block``: the obstacle that a robot on a terrain meets."""

import jax
import jax.numpy as jnp

from strl_jax.types import Array

OBSTACLE_IDS = 5  # ids 0 to 4; 0: none, 2: gap, 3: block, as in modules/mutex_selection.py
SIZE = 1 + OBSTACLE_IDS + 2  # distance, flags, extent, height


def engaging_block(
    obstacles: Array,
    origins: Array,
    level: Array,
    column: Array,
    position: Array,
    engage_distance: float,
    passed_distance: float,
) -> Array:
    """``[B, 8]``: distance, one-hot id (0 to 4), extent and height of the obstacle; lengths in m.

    An obstacle is a square ring around the centre of a field, where the robot starts. The distance of the
    robot from the centre is the greater of its offsets along x and y. The first number is the distance from
    the base outwards to the ring's inner edge: 0 at the edge, negative on the obstacle. The obstacle
    is engaged while this distance is between -(extent + ``passed_distance``) and ``engage_distance``.
    Otherwise the result is ``engage_distance``, id 0, and zeros. The robot's heading has no influence.

    Args:
        obstacles: ``[rows, columns, 4]``: id (0: none), inner radius, extent, and height (negative: down).
        origins: ``[rows, columns, 3]``, the centres of the fields in the world.
        level, column: int ``[B]``, the field of each robot.
        position: ``[B, 3]``, of the base in the world.
        engage_distance: an obstacle is engaged from this distance before its inner edge.
        passed_distance: an obstacle is engaged up to this distance behind its outer edge, for the rear legs.
    """
    ids, inner, extent, rise = jnp.moveaxis(obstacles[level, column], -1, 0)
    radius = jnp.abs(position[:, :2] - origins[level, column, :2]).max(axis=-1)
    distance = inner - radius
    engaged = (ids != 0) & (distance <= engage_distance) & (distance >= -(extent + passed_distance))
    flags = jax.nn.one_hot(jnp.where(engaged, ids, 0).astype(jnp.int32), OBSTACLE_IDS)
    parts = [
        jnp.where(engaged, distance, engage_distance)[:, None],
        flags,
        jnp.where(engaged, extent, 0.0)[:, None],
        jnp.where(engaged, rise, 0.0)[:, None],
    ]
    return jnp.concatenate(parts, axis=-1)
