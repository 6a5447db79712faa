"""Which sub-policy acts, what it sees, and how the outputs are mixed: the pure steps of ``MutexPolicy``.

A selection is a one-hot row, or weights, over the columns ``[B, S]``. Column i belongs to sub-policy i;
there may be columns without a sub-policy. Sums take the place of matrix products, which lose digits on
accelerators.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from strl_jax.types import Array

OBSTACLE_IDS = 5  # columns 1 to 5 of engaging_block flag the obstacle ids 0 to 4; 0 is no obstacle
JUMP_ID = 3
COMMAND = 9  # entry of proprioception: the commanded forward velocity


def flag_first(block: Array) -> Array:
    """``engaging_block[..., K]`` whose flag of id 0 is 1 where no id is flagged."""
    none = ~(block[..., 1 : 1 + OBSTACLE_IDS] != 0).any(-1)
    return block.at[..., 1].set(jnp.where(none, 1.0, block[..., 1]))


def select_field(block: Array) -> Array:
    """One-hot ``[..., 5]``: the flagged obstacle id of ``engaging_block[..., K]``, id 0 where none is flagged."""
    return (flag_first(block)[..., 1 : 1 + OBSTACLE_IDS] != 0).astype(block.dtype)


def select_climb(block: Array) -> Array:
    """One-hot ``[..., 6]``: as ``select_field``, but id 3 only jumps up; column 5 jumps down.

    Up is where the last column of ``engaging_block`` is above 0.
    """
    ids = select_field(block)
    jump, up = ids[..., JUMP_ID], block[..., -1] > 0
    return jnp.concatenate([ids.at[..., JUMP_ID].set(jump * up), (jump * ~up)[..., None]], axis=-1)


def recover_last_action(proprioception: Array, selection: Array, ratios: Array) -> Array:
    """Last actions in the units of the selected sub-policy.

    Args:
        proprioception: ``[B, P]``, the last ``A`` entries are the last actions.
        selection: ``[B, S]``; weights give the weighted mean of the factors.
        ratios: ``[N, A]``, N <= S: the environment's action scale over each sub-policy's.
    """
    chosen = selection[:, : len(ratios), None]
    factor = 1 + jnp.sum(chosen * (ratios - 1), axis=1)
    return proprioception.at[:, -ratios.shape[1] :].multiply(factor)


def override_command(proprioception: Array, selection: Array, command: Array, named: Sequence[bool]) -> Array:
    """Proprioception ``[B, P]`` with the velocity command of the selected sub-policy, if that has one.

    Args:
        selection: ``[B, S]``; weights give the weighted mean of the commands.
        command: ``[B, N]``, N <= S, in the units of the observation.
        named: which of the N sub-policies have a command of their own.
    """
    chosen = selection[:, : len(named)] * jnp.asarray(named)
    mixed = jnp.sum(chosen * command, axis=1) + (1 - jnp.sum(chosen, axis=1)) * proprioception[:, COMMAND]
    return proprioception.at[:, COMMAND].set(mixed)


def draw_commands(ranges: Sequence[tuple[float, float]], keys: Array) -> Array:
    """Velocities ``[B, N]``, uniform within each of N ranges, from the keys ``[B]`` of the environments."""
    low, high = jnp.asarray(ranges, jnp.float32).T
    return jax.vmap(lambda key: low + (high - low) * jax.random.uniform(key, low.shape))(keys)


def push(buffer: Array, selection: Array, fill: Array) -> Array:
    """The buffer ``[B, L, S]`` with ``selection[B, S]`` as its newest, last row; all of its rows where ``fill[B]``."""
    moved = jnp.concatenate([buffer[:, 1:], selection[:, None]], axis=1)
    return jnp.where(fill[:, None, None], selection[:, None], moved)


def mix(outputs: Sequence[Array], buffer: Array, ratios: Array) -> Array:
    """Actions ``[B, A]``: the sum of the N outputs ``[B, A]``, in the environment's units, by their mean selection.

    Args:
        buffer: the last selections ``[B, L, S]``, N <= S.
        ratios: ``[N, A]``: the environment's action scale over each sub-policy's.
    """
    weights = buffer.mean(axis=1)
    return sum(out * weights[:, i, None] / ratios[i] for i, out in enumerate(outputs))


def find_idle(rule: str | bool, buffer: Array, count: int) -> Array:
    """Which of ``count`` sub-policies start afresh after a step, bool ``[B, count]``.

    ``all``: those that no row of the buffer ``[B, L, S]`` selects. ``when_skill``: all
    but the first, where the newest row selects neither them nor the first. False: none.
    """
    selected = buffer[..., :count] != 0
    if rule == "all":
        return ~selected.any(axis=1)
    if rule == "when_skill":
        now = selected[:, -1]
        return ~(now | now[:, :1]) & (jnp.arange(count) > 0)
    return jnp.zeros((buffer.shape[0], count), bool)


def zero_where(where: Array, carry: dict) -> dict:
    """Leaves ``[B, ...]`` with zeros where ``where[B]``."""
    return jax.tree.map(lambda x: jnp.where(where.reshape(-1, *(1,) * (x.ndim - 1)), 0, x), carry)


def as_range(velocity: float | tuple[float, float]) -> tuple[float, float]:
    """A velocity as the range that holds only it; a range as it is."""
    return (velocity, velocity) if isinstance(velocity, (int, float)) else tuple(velocity)
