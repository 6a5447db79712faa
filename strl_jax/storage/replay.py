"""Random samples from a ring: st_rl's ``ReplayBuffer``."""

from typing import Any

import jax
import jax.numpy as jnp

from strl_jax.storage.ring import Ring
from strl_jax.types import Array


def sample(ring: Ring, key: Array, number: int) -> Any:
    """Draws entries uniformly, with replacement, from all valid steps of all environments of this shard.

    Args:
        ring: leaves ``[B, capacity, ...]``. An empty ring (``count`` 0) gives zeros.
        key: PRNG key, different in each shard.
        number: number of entries.

    Returns:
        Leaves ``[number, ...]``; entry i of all leaves comes from the same step of the same environment.
    """
    env_key, row_key = jax.random.split(key)
    env = jax.random.randint(env_key, (number,), 0, ring.count.shape[0])
    row = jax.random.randint(row_key, (number,), 0, jnp.maximum(ring.count[0], 1))
    return jax.tree.map(lambda x: x.at[env, row].get(mode="promise_in_bounds"), ring.data)
