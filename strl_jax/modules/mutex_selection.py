"""Pure functions of ``MutexPolicy``: selection, observation of the sub-policies, mean of their actions.

A selection ``[B, S]`` is a one-hot row, or weights, for each environment. Column i belongs to sub-policy i;
columns beyond the number of sub-policies N are allowed. Weighted means are written as elementwise sums,
because matrix products have a lower precision on accelerators.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from strl_jax.types import Array

OBSTACLE_IDS = 5  # columns 1 to 5 of engaging_block are the flags of the obstacle ids 0 to 4; id 0 is no obstacle
JUMP_ID = 3  # obstacle id of jumps
COMMAND = 9  # index of the commanded forward velocity in proprioception


def flag_first(block: Array) -> Array:
    """``engaging_block[..., K]`` with the flag of id 0 set to 1 where no id is flagged."""
    none = ~(block[..., 1 : 1 + OBSTACLE_IDS] != 0).any(-1)
    return block.at[..., 1].set(jnp.where(none, 1.0, block[..., 1]))


def select_field(block: Array) -> Array:
    """One-hot ``[..., 5]``: the flagged obstacle id of ``engaging_block[..., K]``, id 0 where none is flagged."""
    return (flag_first(block)[..., 1 : 1 + OBSTACLE_IDS] != 0).astype(block.dtype)


def select_climb(block: Array) -> Array:
    """One-hot ``[..., 6]``: as ``select_field``, but column 3 is jump-up only, and column 5 is jump-down.

    A jump is upwards where the last column of ``engaging_block`` is above 0.
    """
    ids = select_field(block)
    jump, up = ids[..., JUMP_ID], block[..., -1] > 0
    return jnp.concatenate([ids.at[..., JUMP_ID].set(jump * up), (jump * ~up)[..., None]], axis=-1)


def recover_last_action(proprioception: Array, selection: Array, ratios: Array) -> Array:
    """Proprioception ``[B, P]`` with the last actions converted to the units of the selected sub-policy.

    Args:
        proprioception: ``[B, P]``; the last A entries are the last actions.
        selection: ``[B, S]``; weights give the weighted mean of the ratios.
        ratios: ``[N, A]``, N <= S: action scale of the environment divided by that of each sub-policy.
    """
    chosen = selection[:, : len(ratios), None]
    factor = 1 + jnp.sum(chosen * (ratios - 1), axis=1)
    return proprioception.at[:, -ratios.shape[1] :].multiply(factor)


def override_command(proprioception: Array, selection: Array, command: Array, has_command: Sequence[bool]) -> Array:
    """Proprioception ``[B, P]`` with the velocity command of the selected sub-policy, if it has one.

    Args:
        selection: ``[B, S]``; weights give the weighted mean of the commands.
        command: ``[B, N]``, N <= S, in the units of the observation.
        has_command: which of the N sub-policies have their own command.
    """
    chosen = selection[:, : len(has_command)] * jnp.asarray(has_command)
    mixed = jnp.sum(chosen * command, axis=1) + (1 - jnp.sum(chosen, axis=1)) * proprioception[:, COMMAND]
    return proprioception.at[:, COMMAND].set(mixed)


def draw_commands(ranges: Sequence[tuple[float, float]], keys: Array) -> Array:
    """Velocities ``[B, N]``, uniform in each of N ranges ``(low, high)``, drawn with one PRNG key per environment."""
    low, high = jnp.asarray(ranges, jnp.float32).T
    return jax.vmap(lambda key: low + (high - low) * jax.random.uniform(key, low.shape))(keys)


def push(buffer: Array, selection: Array, fill: Array) -> Array:
    """The buffer ``[B, L, S]`` with ``selection[B, S]`` appended and the oldest row dropped.

    Where ``fill[B]`` is set, the selection is written to all rows.
    """
    shifted = jnp.concatenate([buffer[:, 1:], selection[:, None]], axis=1)
    return jnp.where(fill[:, None, None], selection[:, None], shifted)


def mix(outputs: Sequence[Array], buffer: Array, ratios: Array) -> Array:
    """Actions ``[B, A]`` in the units of the environment: the weighted sum of the sub-policies' actions.

    Args:
        outputs: N actions ``[B, A]``, in the units of each sub-policy.
        buffer: the last selections ``[B, L, S]``, N <= S; their mean over L gives the weights.
        ratios: ``[N, A]``: action scale of the environment divided by that of each sub-policy.
    """
    weights = buffer.mean(axis=1)
    return sum(out * weights[:, i, None] / ratios[i] for i, out in enumerate(outputs))


def find_idle(rule: str | bool, buffer: Array, count: int) -> Array:
    """Which of ``count`` sub-policies have their memory set to zero after a step, bool ``[B, count]``.

    Args:
        rule: ``all``: every sub-policy that no row of the buffer selects. ``when_skill``: every
            sub-policy except the first, if the newest row selects neither it nor the first. False: none.
        buffer: the last selections ``[B, L, S]``, newest last.
        count: number of sub-policies.
    """
    selected = buffer[..., :count] != 0
    if rule == "all":
        return ~selected.any(axis=1)
    if rule == "when_skill":
        newest = selected[:, -1]
        return ~(newest | newest[:, :1]) & (jnp.arange(count) > 0)
    return jnp.zeros((buffer.shape[0], count), bool)


def zero_where(where: Array, carry: dict) -> dict:
    """The carry, leaves ``[B, ...]``, set to zero in the environments ``where[B]``."""
    return jax.tree.map(lambda x: jnp.where(where.reshape(-1, *(1,) * (x.ndim - 1)), 0, x), carry)


def as_range(velocity: float | tuple[float, float]) -> tuple[float, float]:
    """A velocity v as the range (v, v); a range unchanged."""
    return (velocity, velocity) if isinstance(velocity, (int, float)) else tuple(velocity)
