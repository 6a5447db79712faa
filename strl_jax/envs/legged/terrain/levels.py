"""Which field of a terrain each robot is on, and when it goes on to a harder or back to an easier one."""

import jax
import jax.numpy as jnp
from flax import struct

from strl_jax.envs.legged.config_ground import TerrainConfig
from strl_jax.types import Array


@struct.dataclass
class OnField:
    """Each environment's field, and the way that it was told to go on it."""

    level: Array  # int32[B], row of the terrain
    column: Array  # int32[B]
    asked: Array  # [B], m, the sum of commanded speed times time over the episode


def draw(config: TerrainConfig, key: Array) -> OnField:
    """Fields for new environments, ``key[B]``: any column, with the curriculum one of the first rows."""
    rows = min(config.max_init_terrain_level + 1, config.num_rows) if config.curriculum else config.num_rows
    level_key, column_key = jax.vmap(jax.random.split, out_axes=1)(key)
    level = jax.vmap(lambda k: jax.random.randint(k, (), 0, rows))(level_key)
    column = jax.vmap(lambda k: jax.random.randint(k, (), 0, config.num_cols))(column_key)
    return OnField(level, column, jnp.zeros(key.shape))


def next_field(config: TerrainConfig, field: OnField, walked: Array, share: Array, key: Array) -> OnField:
    """The field of the next episode, by legged_gym's rule: the same column, and without the curriculum the same row.

    A row up for who got farther than half a field from its middle; from the last one to any. Else a row down
    for who got less than half as far as its commands asked for: at their mean speed, in the whole time
    limit, so that an early fall leads down.

    Args:
        walked: ``[B]``, m from the field's middle at the episode's end.
        share: ``[B]``, the part of its time limit that the episode lasted.
        key: ``[B]``.
    """
    level, asked = field.level, field.asked / share
    if config.curriculum:
        up = walked > config.terrain_length / 2
        down = ~up & (walked < asked / 2)
        anywhere = jax.vmap(lambda k: jax.random.randint(k, (), 0, config.num_rows))(key)
        level = jnp.maximum(level + up - down, 0)
        level = jnp.where(level < config.num_rows, level, anywhere)
    return OnField(level, field.column, jnp.zeros_like(field.asked))
