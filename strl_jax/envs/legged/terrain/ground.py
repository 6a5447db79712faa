"""The ground of a batch of robots: start positions, heights above the ground, the next field of the curriculum."""

import jax
import jax.numpy as jnp

from strl_jax.envs.legged.config_ground import TerrainConfig
from strl_jax.envs.legged.state import Legged
from strl_jax.envs.legged.terrain import levels
from strl_jax.envs.legged.terrain.heights import Terrain
from strl_jax.envs.legged.terrain.levels import OnField
from strl_jax.types import Array


class Ground:
    """Flat ground at height 0, or a terrain with its fields.

    Args:
        config: the terrain's config.
        terrain: None: flat ground.
    """

    def __init__(self, config: TerrainConfig, terrain: Terrain | None):
        self.config, self.terrain = config, terrain

    def draw(self, key: Array) -> OnField | None:
        """Initial fields of environments, for ``key[B]``; None on flat ground."""
        return None if self.terrain is None else levels.draw(self.config, key)

    def start(self, key: Array, field: OnField | None) -> Array | None:
        """Random position ``[2]`` on the platform of ONE environment's field, m; None (the origin) on flat ground."""
        if field is None:
            return None
        limit = self.config.start_offset
        offset = jax.random.uniform(key, (2,), minval=-limit, maxval=limit)
        return jnp.asarray(self.terrain.origins)[field.level, field.column, :2] + offset

    def clearance(self, qpos: Array) -> Array:
        """Height ``[B]`` of the base above the ground, m; ``qpos`` is ``[B, nq]``."""
        height = qpos[:, 2]
        return height if self.terrain is None else height - self.terrain.height(qpos[:, :2])

    def outside(self, qpos: Array) -> Array:
        """bool ``[B]``: the base is outside the terrain; ``qpos`` is ``[B, nq]``."""
        if self.terrain is None:
            return jnp.zeros(len(qpos), bool)
        return ~self.terrain.inside(qpos[:, :2])

    def add_distance(self, field: OnField | None, distance: Array) -> OnField | None:
        """``field`` with the commanded distance ``[B]`` of one step (m) added to its sum."""
        return None if field is None else field.replace(asked=field.asked + distance)

    def move_to_next_field(self, old: Legged, fresh: Legged) -> Legged:
        """``fresh``, moved to the next field of each environment.

        All platforms are flat, so a translation is enough.

        Args:
            old: states at the end of an episode.
            fresh: initial states.
        """
        if self.terrain is None:
            return fresh
        origins = jnp.asarray(self.terrain.origins)
        old_origin = origins[old.field.level, old.field.column]
        walked = jnp.linalg.norm(old.motion.qpos[:, :2] - old_origin[:, :2], axis=-1)
        fraction = jnp.maximum(old.age, 1) / old.limit
        key = jax.vmap(lambda k: jax.random.fold_in(k, 1))(old.key)
        field = levels.next_field(self.config, old.field, walked, fraction, key)
        shift = origins[field.level, field.column] - origins[fresh.field.level, fresh.field.column]
        motion = fresh.motion.replace(qpos=fresh.motion.qpos.at[:, :3].add(shift))
        return fresh.replace(motion=motion, feet=fresh.feet + shift[:, None], field=field)
