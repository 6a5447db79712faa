"""The curriculum of terrains: the field of each robot, and its change to a harder or an easier level."""

import jax
import jax.numpy as jnp
from flax import struct

from strl_jax.envs.legged.config_ground import TerrainConfig
from strl_jax.types import Array


@struct.dataclass
class OnField:
    """The field of each environment, and the distance that its commands require."""

    level: Array  # int32[B], row of the terrain
    column: Array  # int32[B]
    asked: Array  # [B], m, integral of the commanded planar speed over the episode so far


def draw(config: TerrainConfig, key: Array) -> OnField:
    """Random initial fields for ``key[B]``.

    The column is uniform. The row is uniform over 0 to ``max_init_terrain_level`` with the curriculum,
    otherwise over all rows.
    """
    rows = min(config.max_init_terrain_level + 1, config.num_rows) if config.curriculum else config.num_rows
    level_key, column_key = jax.vmap(jax.random.split, out_axes=1)(key)
    level = jax.vmap(lambda k: jax.random.randint(k, (), 0, rows))(level_key)
    column = jax.vmap(lambda k: jax.random.randint(k, (), 0, config.num_cols))(column_key)
    return OnField(level, column, jnp.zeros(key.shape))


def next_field(config: TerrainConfig, field: OnField, walked: Array, fraction: Array, key: Array) -> OnField:
    """The fields of the next episodes. The column stays the same.

    With the curriculum, a robot that walked farther than half a field moves one row up; from the last row it
    moves to a random row. Otherwise a robot that walked less than half of the required distance moves one
    row down. The required distance is that of the whole time limit at the mean commanded speed, so a robot
    that falls early moves down. (legged_gym uses the speed of the last command.)

    Args:
        walked: ``[B]``, m, distance from the centre of the field at the end of the episode.
        fraction: ``[B]``, length of the episode divided by its time limit.
        key: PRNG ``key[B]``, for the random rows.
    """
    level, required = field.level, field.asked / fraction
    if config.curriculum:
        up = walked > config.terrain_length / 2
        down = ~up & (walked < required / 2)
        anywhere = jax.vmap(lambda k: jax.random.randint(k, (), 0, config.num_rows))(key)
        level = jnp.maximum(level + up - down, 0)
        level = jnp.where(level < config.num_rows, level, anywhere)
    return OnField(level, field.column, jnp.zeros_like(field.asked))
