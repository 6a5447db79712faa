"""Training on more than the last rollout: a ring of several, and what st_rl computes over it.

st_rl's ``QueueRolloutStorage`` and ``ActionLabelRollout`` grow from one rollout
to ``buffer_dilation_ratio`` rollouts and then loop; here a ring of the full
size counts how much of it is filled. Labels are one more leaf of its data.
"""

from collections.abc import Callable

import chex
import jax.numpy as jnp

from strl_jax.types import Array


def capacity(ratio: float, num_steps: int) -> int:
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
    gae: Callable[..., tuple[Array, Array]],
) -> tuple[Array, Array]:
    """Returns over the rows of a ring as they lie, a habit of st_rl.

    Where the ring has wrapped, the newest step takes the oldest one for its
    successor, and ``last_value`` goes to whatever lies in the last row. Right are
    returns computed for each rollout before it is pushed; this is for runs that
    must repeat st_rl's.

    Args:
        reward, value, done: ``[capacity, B]``, from ``ring.stored``; time-outs already bootstrapped.
        last_value: ``[B]``, V after the newest step.
        count: int ``[B]``, valid rows; the row count - 1 is bootstrapped.
        gamma, lam: discount and trace.
        gae: ``algorithms.returns.gae``.

    Returns:
        Advantage, 0 in the rows that are not valid, and return (advantage + value), each ``[capacity, B]``.

    Raises:
        AssertionError: other shapes.
    """
    chex.assert_equal_shape([reward, value, done])
    chex.assert_shape([last_value, count], reward.shape[1:])
    valid = jnp.arange(reward.shape[0])[:, None] < count
    successor = jnp.where(valid, value, last_value)  # only row count - 1 looks at a row that is not valid
    advantage, _ = gae(reward, successor, done, last_value, gamma=gamma, lam=lam, valid=valid)
    return advantage, advantage + value
