"""Returns and advantages."""

import chex
import jax
import jax.numpy as jnp

from strl_jax.sharding import axis_size, psum
from strl_jax.types import Array

UNROLL = 8  # steps that one loop iteration of a scan over time does; a full unroll compiles for ten seconds on a GPU


def gae(
    reward: Array, value: Array, done: Array, last_value: Array, *, gamma: float, lam: float, valid: Array | None = None
) -> tuple[Array, Array]:
    """Generalised advantage estimation.

    Equation 16 of "High-Dimensional Continuous Control Using Generalized Advantage Estimation"
    (https://arxiv.org/abs/1506.02438), computed backwards:

    delta_t = r_t + gamma (1 - done_t) V_{t+1} - V_t and
    A_t = delta_t + gamma lam (1 - done_t) A_{t+1}, with V_T = ``last_value``.

    Args:
        reward: ``[T, B]``, with time-outs already bootstrapped.
        value: ``[T, B]``, V(s_t).
        done: ``[T, B]``, bool or 0/1: the episode ended with step t.
        last_value: ``[B]``, V(s_T).
        gamma, lam: discount factor, and lambda of GAE.
        valid: bool ``[T, B]``; steps where it is false have delta 0.

    Returns:
        Advantage and return (advantage + value), each ``[T, B]``.

    Raises:
        AssertionError: the shapes do not match.
    """
    chex.assert_equal_shape([reward, value, done])
    chex.assert_shape(last_value, reward.shape[1:])
    next_value = jnp.concatenate([value[1:], last_value[None]])
    going = 1.0 - done.astype(reward.dtype)
    delta = reward + gamma * going * next_value - value
    if valid is not None:
        delta = jnp.where(valid, delta, 0.0)

    def step(advantage, inputs):
        delta, going = inputs
        advantage = delta + gamma * lam * going * advantage
        return advantage, advantage

    _, advantage = jax.lax.scan(step, jnp.zeros_like(last_value), (delta, going), reverse=True, unroll=UNROLL)
    return advantage, advantage + value


def bootstrap_timeouts(reward: Array, timeout: Array, bootstrap: Array, *, gamma: float) -> Array:
    """r_t + gamma V(terminal observation) where a time limit, not the task, ended the episode.

    All arguments are ``[T, B]``; different shapes raise ``AssertionError``. Section 3 of "Time Limits in Reinforcement
    Learning" (https://arxiv.org/abs/1712.00378).
    """
    chex.assert_equal_shape([reward, timeout, bootstrap])
    return reward + gamma * jnp.where(timeout.astype(bool), bootstrap, 0.0)


def normalize_advantages(
    advantage: Array, *, where: Array | None = None, axis_name: str | None = None, eps: float = 1e-8
) -> Array:
    """(A - mean) / (std + eps) over all entries of all shards; std with ddof = 1.

    Args:
        advantage: any shape.
        where: bool, same shape; the other entries are ignored and become 0.
        axis_name: mapped axis whose shards share the moments.
    """
    where = jnp.ones(advantage.shape, bool) if where is None else where
    number = psum(jnp.sum(where, dtype=advantage.dtype), axis_name)
    mean = psum(jnp.sum(jnp.where(where, advantage, 0.0)), axis_name) / jnp.maximum(number, 1)
    centred = jnp.where(where, advantage - mean, 0.0)
    std = jnp.sqrt(psum(jnp.sum(jnp.square(centred)), axis_name) / jnp.maximum(number - 1, 1))
    return centred / (std + eps)


def weights(where: Array, *, axis_name: str | None = None) -> Array:
    """Weights whose ``sum(weights * x)``, averaged over shards, is the mean of x over all valid entries."""
    where = where.astype(jnp.float32)
    number = psum(jnp.sum(where), axis_name)
    return where * (axis_size(axis_name) / jnp.maximum(number, 1.0))
