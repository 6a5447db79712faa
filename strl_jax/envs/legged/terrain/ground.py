"""The ground under all robots: where they start on it, how high they are over it, on which field they go on."""

import jax
import jax.numpy as jnp

from strl_jax.envs.legged.config_ground import TerrainConfig
from strl_jax.envs.legged.state import Legged
from strl_jax.envs.legged.terrain import levels, obstacles
from strl_jax.envs.legged.terrain.heights import Terrain
from strl_jax.envs.legged.terrain.levels import OnField
from strl_jax.types import Array


class Ground:
    """Flat ground at height 0, or a terrain with its fields.

    Args:
        config: the rules of the fields.
        terrain: None: flat.
    """

    def __init__(self, config: TerrainConfig, terrain: Terrain | None):
        self.config, self.terrain = config, terrain

    def draw(self, key: Array) -> OnField | None:
        """Fields for new environments, ``key[B]``; None on flat ground."""
        return None if self.terrain is None else levels.draw(self.config, key)

    def start(self, key: Array, field: OnField | None) -> Array | None:
        """A place ``[2]`` on the platform of ONE environment's field; None on flat ground: the origin."""
        if field is None:
            return None
        most = self.config.start_offset
        offset = jax.random.uniform(key, (2,), minval=-most, maxval=most)
        return jnp.asarray(self.terrain.origins)[field.level, field.column, :2] + offset

    def clearance(self, qpos: Array) -> Array:
        """Height ``[B]`` of the base over the ground under it, ``qpos[B, nq]``."""
        height = qpos[:, 2]
        return height if self.terrain is None else height - self.terrain.height(qpos[:, :2])

    def outside(self, qpos: Array) -> Array:
        """bool ``[B]``: the base is beyond the terrain's edge."""
        if self.terrain is None:
            return jnp.zeros(len(qpos), bool)
        return ~self.terrain.inside(qpos[:, :2])

    def asked(self, field: OnField | None, way: Array) -> OnField | None:
        """The fields with the commanded way ``[B]`` of a step, in m, added."""
        return None if field is None else field.replace(asked=field.asked + way)

    def go_on(self, old: Legged, fresh: Legged) -> Legged:
        """``fresh`` on the field that follows for each environment: all platforms are flat, so it is only moved."""
        if self.terrain is None:
            return fresh
        origins = jnp.asarray(self.terrain.origins)
        here = origins[old.field.level, old.field.column]
        walked = jnp.linalg.norm(old.motion.qpos[:, :2] - here[:, :2], axis=-1)
        share = jnp.maximum(old.age, 1) / old.limit
        key = jax.vmap(lambda k: jax.random.fold_in(k, 1))(old.key)
        field = levels.next_field(self.config, old.field, walked, share, key)
        shift = origins[field.level, field.column] - origins[fresh.field.level, fresh.field.column]
        motion = fresh.motion.replace(qpos=fresh.motion.qpos.at[:, :3].add(shift))
        return fresh.replace(motion=motion, feet=fresh.feet + shift[:, None], field=field)

    def engaging_block(self, state: Legged) -> Array:
        """The component ``[B, 8]`` on a terrain."""
        return obstacles.engaging_block(
            jnp.asarray(self.terrain.obstacles),
            jnp.asarray(self.terrain.origins),
            state.field.level,
            state.field.column,
            state.motion.qpos[:, :3],
            self.config.engage_distance,
            self.config.passed_distance,
        )
