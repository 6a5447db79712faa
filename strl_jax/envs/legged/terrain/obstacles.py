"""The component ``engaging_block``: the obstacle that a robot on a terrain has to do with."""

import jax
import jax.numpy as jnp

from strl_jax.types import Array

OBSTACLE_IDS = 5  # 0: none, 2: a gap, 3: a block; as mutex policies count them
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
    """``[B, 8]``: distance, the flags of the ids 0 to 4, extent and height of the obstacle, all in m.

    An obstacle is a square ring about its field's centre, from where the robot sets out, so distances are
    counted in squares as well: a robot is as far out as the greater of its offsets along x and y. The
    distance is that from the base to the near edge, outwards. It falls to 0 at the edge and below it on the
    obstacle, down to -(extent + ``passed_distance``); beyond that, and farther than ``engage_distance``
    before the edge, there is no obstacle: the flag of id 0, the distance ``engage_distance``, and zeros.
    The way that the robot faces does not count.

    Args:
        obstacles: ``[rows, columns, 4]``: id (0: none), inner radius, extent, and height, below 0 for down.
        origins: ``[rows, columns, 3]``, the fields' centres in the world.
        level, column: int ``[B]``, each robot's field.
        position: ``[B, 3]``, of the base in the world.
        engage_distance: how far before its near edge an obstacle begins to count.
        passed_distance: how far beyond its far edge it counts still, for the legs behind the base.
    """
    ids, inner, extent, rise = jnp.moveaxis(obstacles[level, column], -1, 0)
    out = jnp.abs(position[:, :2] - origins[level, column, :2]).max(axis=-1)
    distance = inner - out
    engaged = (ids != 0) & (distance <= engage_distance) & (distance >= -(extent + passed_distance))
    flags = jax.nn.one_hot(jnp.where(engaged, ids, 0).astype(jnp.int32), OBSTACLE_IDS)
    parts = [
        jnp.where(engaged, distance, engage_distance)[:, None],
        flags,
        jnp.where(engaged, extent, 0.0)[:, None],
        jnp.where(engaged, rise, 0.0)[:, None],
    ]
    return jnp.concatenate(parts, axis=-1)
