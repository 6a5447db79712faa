"""Samples of the past: st_rl's ``ReplayBuffer`` as draws from a ring."""

from typing import Any

import jax
import jax.numpy as jnp

from strl_jax.storage.ring import Ring
from strl_jax.types import Array


def num_samples(ring: Ring) -> Array:
    """Valid entries of all environments of this shard, int32 scalar."""
    return jnp.sum(ring.count)


def sample(ring: Ring, key: Array, number: int) -> Any:
    """Entries drawn uniformly and with replacement from all valid steps of all environments of this shard.

    Args:
        ring: leaves ``[B, capacity, ...]``. An empty one gives the zeros that it was made of: where that
            matters, ask ``num_samples`` first.
        key: PRNG key, another one for each shard.
        number: entries to draw.

    Returns:
        Leaves ``[number, ...]``; one entry is the same step of the same environment in all of them.
    """
    env_key, row_key = jax.random.split(key)
    env = jax.random.randint(env_key, (number,), 0, ring.count.shape[0])
    row = jax.random.randint(row_key, (number,), 0, jnp.maximum(ring.count[0], 1))
    return jax.tree.map(lambda x: x.at[env, row].get(mode="promise_in_bounds"), ring.data)
