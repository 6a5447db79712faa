"""Earlier rollouts that the update learns from: a queue of their batches, and the rings of reward hooks."""

from typing import Any

import chex
import jax
import jax.numpy as jnp

from strl_jax.algorithms import returns
from strl_jax.algorithms.base import Algorithm
from strl_jax.algorithms.prepare import bootstrapped_reward, prepare, without_invalid
from strl_jax.storage import ring
from strl_jax.storage.ring import Ring
from strl_jax.types import Array, Batch, Rollout

QUEUE, CARRIES = "queue", "carries"


def init(algorithm: Algorithm, rollout: Rollout, data: dict | None) -> dict[str, Ring]:
    """Empty memories; ``{}`` for an algorithm that learns only from the last rollout.

    Args:
        rollout: arrays or shapes ``[T, B, ...]``.
        data: constant data of the hooks, arrays or shapes.
    """
    rows = jax.eval_shape(lambda rollout, data: _rows(algorithm, rollout, data, None), rollout, data)
    num_steps = rollout.steps.reward.shape[0]
    return {name: ring.init(_capacity(algorithm, name, num_steps), example) for name, example in rows.items()}


def needed(algorithm: Algorithm) -> bool:
    """Whether the algorithm keeps a part of earlier rollouts."""
    return algorithm.queue > 1 or any(hook.memory_size for hook in algorithm.reward_hooks)


def remember(
    algorithm: Algorithm,
    memory: dict[str, Ring],
    rollout: Rollout,
    *,
    data: dict | None = None,
    axis_name: str | None = None,
) -> dict[str, Ring]:
    """The memories with a rollout added; a full memory overwrites its oldest steps."""
    rows = _rows(algorithm, rollout, data, axis_name) if memory else {}
    if algorithm.compat.looped_returns and algorithm.policy.is_recurrent and QUEUE in memory:
        memory = memory | {QUEUE: ring.untie(memory[QUEUE])}  # as after st_rl's recurrent minibatches
    return {name: ring.push(memory[name], new) for name, new in rows.items()}


def recall(
    algorithm: Algorithm,
    memory: dict[str, Ring],
    rollout: Rollout,
    *,
    data: dict | None = None,
    axis_name: str | None = None,
) -> Batch:
    """The batch to learn from.

    Without a queue it is that of ``rollout``, leaves ``[T, B, ...]``. With a queue, whose newest part is
    ``rollout``, it has leaves ``[capacity, B, ...]``, and weight 0 in rows that are not filled yet.
    """
    if QUEUE not in memory:
        return prepare(algorithm, rollout, data=data, axis_name=axis_name)
    kept, recurrent = memory[QUEUE], algorithm.policy.is_recurrent
    rows, valid = ring.ordered(kept) if recurrent else ring.stored(kept)
    batch = without_invalid(rows["batch"], valid)
    if algorithm.compat.looped_returns:
        advantage, return_ = _looped(algorithm, kept, rollout.last_value, axis_name)
        batch = batch.replace(advantage=advantage, return_=return_)
    if recurrent:
        oldest, _ = ring.ordered(memory[CARRIES])
        batch = batch.replace(carry=jax.tree.map(lambda leaf: leaf[0], oldest))
    return batch


def _looped(algorithm: Algorithm, kept: Ring, last_value: Array, axis_name: str | None) -> tuple[Array, Array]:
    """st_rl's normalised advantages and returns over the rows of the queue, in the order of the ring."""
    rows, valid = ring.stored(kept)
    batch, config = rows["batch"], algorithm.config
    done, count = rows["done"], kept.count
    advantage, return_ = looped_returns(
        rows["reward"], rows["value"], done, last_value, count, gamma=config.gamma, lam=config.lam
    )
    where = valid & (batch.weight > 0)
    advantage = returns.normalize_advantages(advantage, where=where, axis_name=axis_name)
    if algorithm.policy.is_recurrent:  # ring.ordered has the empty rows first, not last
        advantage, return_ = (jnp.roll(x, kept.capacity - count[0], axis=0) for x in (advantage, return_))
    return advantage, return_


def _rows(algorithm: Algorithm, rollout: Rollout, data: dict | None, axis_name: str | None) -> dict[str, Any]:
    """The rows that a rollout adds to each memory, leaves ``[T, B, ...]``."""
    rows = {hook.name: hook.remember(rollout.steps) for hook in algorithm.reward_hooks if hook.memory_size}
    if algorithm.queue == 1:
        return rows
    batch = prepare(algorithm, rollout, data=data, axis_name=axis_name).replace(carry={})
    rows[QUEUE] = {"batch": batch}
    if algorithm.compat.looped_returns:
        steps = rollout.steps
        # A step that is not valid ends its episode; with its value as the reward, delta = reward - value is 0.
        reward = jnp.where(steps.valid, bootstrapped_reward(algorithm, steps), steps.value)
        rows[QUEUE] |= {"reward": reward, "value": steps.value, "done": steps.done}
    if algorithm.policy.is_recurrent:
        rows[CARRIES] = jax.tree.map(lambda leaf: leaf[None], _carry(algorithm, rollout))
    return rows


def _carry(algorithm: Algorithm, rollout: Rollout) -> Any:
    """The policy's carry before the first step of a full queue whose oldest rollout is this one."""
    num_steps = rollout.steps.reward.shape[0]
    offset = -queue_steps(algorithm.queue, num_steps) % num_steps
    return jax.tree.map(lambda leaf: leaf[offset], rollout.carries) if offset else rollout.carry0


def _capacity(algorithm: Algorithm, name: str, num_steps: int) -> int:
    if name not in (QUEUE, CARRIES):
        return next(hook.memory_size for hook in algorithm.reward_hooks if hook.name == name)
    steps = queue_steps(algorithm.queue, num_steps)
    return steps if name == QUEUE else -(-steps // num_steps)


def queue_steps(ratio: float, num_steps: int) -> int:
    """Steps that a queue keeps: ``int(ratio * num_steps)``.

    Args:
        ratio: ``buffer_dilation_ratio``.
        num_steps: steps of one rollout.

    Raises:
        ValueError: the ratio is below 1, so that one rollout would not fit.
    """
    if ratio < 1:
        raise ValueError(f"buffer_dilation_ratio must be at least 1, not {ratio}")
    return int(ratio * num_steps)


def looped_returns(
    reward: Array,
    value: Array,
    done: Array,
    last_value: Array,
    count: Array,
    *,
    gamma: float,
    lam: float,
) -> tuple[Array, Array]:
    """Returns over the rows of a ring in storage order, as st_rl computes them.

    This is wrong where the ring has wrapped: the newest step gets the oldest one as its successor, and
    ``last_value`` is used at the last row. It exists to repeat runs of st_rl; by default the returns
    of each rollout are computed before it is added.

    Args:
        reward, value, done: ``[capacity, B]``, from ``ring.stored``; time-outs already bootstrapped.
        last_value: ``[B]``, V after the newest step.
        count: int ``[B]``, number of valid rows; the step in row count - 1 is followed by ``last_value``.
        gamma, lam: discount factor, and lambda of GAE.

    Returns:
        Advantage, 0 in the rows that are not valid, and return (advantage + value), each ``[capacity, B]``.

    Raises:
        AssertionError: the shapes do not match.
    """
    chex.assert_equal_shape([reward, value, done])
    chex.assert_shape([last_value, count], reward.shape[1:])
    valid = jnp.arange(reward.shape[0])[:, None] < count
    successor = jnp.where(valid, value, last_value)  # only row count - 1 reads a row that is not valid
    advantage, _ = returns.gae(reward, successor, done, last_value, gamma=gamma, lam=lam, valid=valid)
    return advantage, advantage + value
