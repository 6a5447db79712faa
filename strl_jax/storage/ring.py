"""The last steps of every environment: a buffer of fixed size whose oldest steps are overwritten.

Everything a ring holds has the environments first, so that it shards over them
like the rest of a rollout's state; what goes in and comes out is time-major.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from strl_jax.types import Array


@struct.dataclass
class Ring:
    """Rows of steps. All environments are written together: their cursors and counts are equal."""

    data: Any  # leaves [B, capacity, ...]; zeros where nothing was written yet
    cursor: Array  # int32[B], row that the next step goes to
    count: Array  # int32[B], valid steps; until it reaches the capacity they are the rows 0 to count - 1

    @property
    def capacity(self) -> int:
        """Rows, which is the largest number of steps kept."""
        return jax.tree.leaves(self.data)[0].shape[1]


def init(capacity: int, example: Any) -> Ring:
    """An empty ring.

    Args:
        capacity: rows, at least 1.
        example: leaves ``[T, B, ...]``, arrays or ``jax.ShapeDtypeStruct``; only shapes and dtypes are read.

    Raises:
        ValueError: no rows, or ``example`` has no leaves.
    """
    if capacity < 1:
        raise ValueError(f"a ring needs a capacity of at least 1, not {capacity}")
    if not jax.tree.leaves(example):
        raise ValueError("a ring needs at least one array to hold")
    num_envs = jax.tree.leaves(example)[0].shape[1]
    data = jax.tree.map(lambda x: jnp.zeros((x.shape[1], capacity, *x.shape[2:]), x.dtype), example)
    return Ring(data=data, cursor=jnp.zeros(num_envs, jnp.int32), count=jnp.zeros(num_envs, jnp.int32))


def push(ring: Ring, data: Any) -> Ring:
    """Write T steps, over the oldest ones once the ring is full.

    Args:
        data: leaves ``[T, B, ...]``, oldest step first, of the dtypes of the ring.

    Raises:
        ValueError: T is more than the capacity, or a shape or dtype is not the ring's.
    """
    capacity, num_steps = ring.capacity, jax.tree.leaves(data)[0].shape[0]
    if num_steps > capacity:
        raise ValueError(f"{num_steps} steps do not fit into a ring of {capacity}")
    jax.tree.map(lambda old, new: _check(old, new, num_steps), ring.data, data)
    rows = (ring.cursor[0] + jnp.arange(num_steps)) % capacity
    written = jax.tree.map(
        lambda old, new: old.at[:, rows].set(jnp.swapaxes(new, 0, 1), mode="promise_in_bounds", unique_indices=True),
        ring.data,
        data,
    )
    cursor, count = (ring.cursor + num_steps) % capacity, jnp.minimum(ring.count + num_steps, capacity)
    return Ring(data=written, cursor=cursor, count=count)


def stored(ring: Ring) -> tuple[Any, Array]:
    """The rows as they were written; in a ring that has wrapped, newer steps lie in front of the oldest one.

    Returns:
        Leaves ``[capacity, B, ...]`` and ``valid``, bool ``[capacity, B]``.
    """
    valid = jnp.arange(ring.capacity)[:, None] < ring.count
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), ring.data), valid


def ordered(ring: Ring) -> tuple[Any, Array]:
    """The same with the oldest step first and the newest in the last row; rows not yet written lie in front.

    Returns:
        Leaves ``[capacity, B, ...]`` and ``valid``, bool ``[capacity, B]``.
    """
    valid = jnp.arange(ring.capacity)[:, None] >= ring.capacity - ring.count
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), _oldest_first(ring)), valid


def untie(ring: Ring) -> Ring:
    """The same steps with the oldest one in row 0; the next step goes there, if the ring is full.

    What st_rl's recurrent minibatches leave behind (``untie_buffer_loop``). A ring
    that is not yet full has never wrapped and stays as it is.
    """
    full = ring.count[0] == ring.capacity
    # Not yet full, the steps start at row 0 already; the order of a full ring starts at its cursor.
    start = jnp.where(full, ring.cursor, 0)
    return ring.replace(data=_oldest_first(ring.replace(cursor=start)), cursor=ring.cursor - start)


def _oldest_first(ring: Ring) -> Any:
    """Leaves ``[B, capacity, ...]`` from the row of the cursor on."""
    rows = (ring.cursor[0] + jnp.arange(ring.capacity)) % ring.capacity
    return jax.tree.map(lambda x: x.at[:, rows].get(mode="promise_in_bounds"), ring.data)


def _check(old: Array, new: Array, num_steps: int):
    """Raises ``ValueError``, unless ``new`` is ``num_steps`` steps for the rows ``old[B, capacity, ...]``."""
    expected = (num_steps, old.shape[0], *old.shape[2:])
    if new.shape != expected or new.dtype != old.dtype:
        raise ValueError(f"the ring takes {old.dtype}{list(expected)}, not {new.dtype}{list(new.shape)}")
