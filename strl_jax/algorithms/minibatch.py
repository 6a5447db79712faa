"""Minibatches: the samples of each weight update."""

import jax
import jax.numpy as jnp
import numpy as np

from strl_jax.types import Array, Batch


def plan(
    key: Array, num_samples: int, num_mini_batches: int, num_epochs: int, *, reuse: bool = False, shuffle: bool = True
) -> Array:
    """Indices of every update, ``int32[num_epochs * num_mini_batches, M]``.

    An index is t * B + e for a feed-forward policy, and the environment e for a recurrent one.
    M = num_samples // num_mini_batches; a remainder is dropped.

    Args:
        key: PRNG key.
        num_samples: T * B; B for a recurrent policy.
        reuse: one permutation for all epochs, as in st_rl; else a new one for each.
        shuffle: False: the samples in order, the same in every epoch.
    """
    size = num_samples // num_mini_batches
    if not shuffle:
        order = jnp.arange(size * num_mini_batches, dtype=jnp.int32).reshape(-1, size)
        return jnp.tile(order, (num_epochs, 1))
    keys = jax.random.split(key, 1 if reuse else num_epochs)
    order = jax.vmap(lambda k: jax.random.permutation(k, num_samples))(keys).astype(jnp.int32)
    order = order[:, : size * num_mini_batches].reshape(-1, size)
    return jnp.tile(order, (num_epochs, 1)) if reuse else order


def gather(batch: Batch, index: Array) -> Batch:
    """The samples ``index[M]`` of a feed-forward batch ``[T, B, ...]``."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[index], batch)


def gather_envs(batch: Batch, index: Array) -> Batch:
    """The environments ``index[M]`` of a batch ``[T, B, ...]``, with all their steps and their carry."""
    steps = jax.tree.map(lambda x: x[:, index], batch.replace(carry={}))
    return steps.replace(carry=jax.tree.map(lambda x: x[index], batch.carry))


def spread(total: int, fraction: float) -> np.ndarray:
    """Evenly spread rows, a ``fraction`` of ``total`` samples: ``int32[max(1, int(fraction * total))]``."""
    number = max(1, int(fraction * total))
    return (np.arange(number, dtype=np.int64) * total // number).astype(np.int32)
