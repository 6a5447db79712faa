"""Ring buffer of the last steps of every environment: it has a fixed size, and new steps overwrite the oldest.

The stored arrays have the environment axis first, so that they are sharded over it
like the rest of the rollout state. The functions take and return time-major arrays.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from strl_jax.types import Array


@struct.dataclass
class Ring:
    """Steps of all environments, one row per step. Cursor and count are equal in all environments."""

    data: Any  # leaves [B, capacity, ...]; zeros in rows that were never written
    cursor: Array  # int32[B], the row that the next step is written to
    count: Array  # int32[B], number of valid steps; while it is below the capacity they are rows 0 to count - 1

    @property
    def capacity(self) -> int:
        """Number of rows: the largest number of steps that the ring can hold."""
        return jax.tree.leaves(self.data)[0].shape[1]


def init(capacity: int, example: Any) -> Ring:
    """An empty ring.

    Args:
        capacity: number of rows, at least 1.
        example: leaves ``[T, B, ...]``, arrays or ``jax.ShapeDtypeStruct``; only shapes and dtypes are read.

    Raises:
        ValueError: the capacity is below 1, or ``example`` has no leaves.
    """
    if capacity < 1:
        raise ValueError(f"a ring needs a capacity of at least 1, not {capacity}")
    if not jax.tree.leaves(example):
        raise ValueError("a ring needs at least one array to hold")
    num_envs = jax.tree.leaves(example)[0].shape[1]
    data = jax.tree.map(lambda x: jnp.zeros((x.shape[1], capacity, *x.shape[2:]), x.dtype), example)
    return Ring(data=data, cursor=jnp.zeros(num_envs, jnp.int32), count=jnp.zeros(num_envs, jnp.int32))


def push(ring: Ring, data: Any) -> Ring:
    """Writes T steps; in a full ring they overwrite the oldest ones.

    Args:
        data: leaves ``[T, B, ...]``, oldest step first, with the dtypes of the ring.

    Raises:
        ValueError: T is above the capacity, or a shape or dtype differs from the ring's.
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
    """The rows in storage order; in a ring that has wrapped, newer steps come before the oldest one.

    Returns:
        Leaves ``[capacity, B, ...]`` and ``valid``, bool ``[capacity, B]``.
    """
    valid = jnp.arange(ring.capacity)[:, None] < ring.count
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), ring.data), valid


def ordered(ring: Ring) -> tuple[Any, Array]:
    """The rows in order of time: rows that were never written, then the oldest to the newest step.

    Returns:
        Leaves ``[capacity, B, ...]`` and ``valid``, bool ``[capacity, B]``.
    """
    valid = jnp.arange(ring.capacity)[:, None] >= ring.capacity - ring.count
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), _oldest_first(ring)), valid


def untie(ring: Ring) -> Ring:
    """A ring with the same steps and the oldest one in row 0, as after st_rl's ``untie_buffer_loop``.

    A ring that is not full has not wrapped, and is returned unchanged.
    """
    full = ring.count[0] == ring.capacity
    # The oldest step of a full ring is at the cursor; if the ring is not full, it is in row 0.
    start = jnp.where(full, ring.cursor, 0)
    return ring.replace(data=_oldest_first(ring.replace(cursor=start)), cursor=ring.cursor - start)


def _oldest_first(ring: Ring) -> Any:
    """The data, leaves ``[B, capacity, ...]``, rotated so that the row of the cursor is first."""
    rows = (ring.cursor[0] + jnp.arange(ring.capacity)) % ring.capacity
    return jax.tree.map(lambda x: x.at[:, rows].get(mode="promise_in_bounds"), ring.data)


def _check(old: Array, new: Array, num_steps: int):
    """Raises ``ValueError`` if ``new`` is not ``[num_steps, B, ...]`` with the dtype of ``old[B, capacity, ...]``."""
    expected = (num_steps, old.shape[0], *old.shape[2:])
    if new.shape != expected or new.dtype != old.dtype:
        raise ValueError(f"the ring takes {old.dtype}{list(expected)}, not {new.dtype}{list(new.shape)}")
