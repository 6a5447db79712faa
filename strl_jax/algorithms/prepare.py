"""From a rollout to a batch: returns, advantages, packed observations."""

import jax
import jax.numpy as jnp

from strl_jax.algorithms import returns
from strl_jax.algorithms.base import Algorithm
from strl_jax.types import Array, Batch, Rollout, Transition


def prepare(algorithm: Algorithm, rollout: Rollout, *, data: dict | None = None, axis_name: str | None = None) -> Batch:
    """Bootstraps time-outs, computes and normalises advantages, packs observations.

    Args:
        rollout: leaves ``[T, B, ...]``.
        data: constant data of the hooks.
        axis_name: mapped axis whose shards share the advantage's moments.

    Returns:
        Leaves ``[T, B, ...]``.
    """
    config, steps = algorithm.config, rollout.steps
    reward = bootstrapped_reward(algorithm, steps)
    advantage, return_ = returns.gae(
        reward, steps.value, steps.done, rollout.last_value, gamma=config.gamma, lam=config.lam, valid=steps.valid
    )
    batch = Batch(
        groups=algorithm.pack(rollout.stats, steps.obs),
        action=steps.action,
        log_prob=steps.log_prob,
        value=steps.value,
        mean=steps.mean,
        std=steps.std,
        advantage=returns.normalize_advantages(advantage, where=steps.valid, axis_name=axis_name),
        return_=return_,
        weight=steps.valid.astype(jnp.float32),
        reset=steps.reset,
        masks=steps.masks,
        carry={},
        extras=_extras(algorithm, rollout, data),
    )
    return without_invalid(batch, steps.valid).replace(carry=rollout.carry0)


def bootstrapped_reward(algorithm: Algorithm, steps: Transition) -> Array:
    """Rewards ``[T, B]`` plus the discounted value of the state where a time limit ended the episode."""
    bootstrap = steps.value if algorithm.compat.bootstrap_current_value else steps.bootstrap
    return returns.bootstrap_timeouts(steps.reward, steps.timeout, bootstrap, gamma=algorithm.config.gamma)


def _extras(algorithm: Algorithm, rollout: Rollout, data: dict | None) -> dict[str, Array]:
    """The extras of the steps, with those that the hooks compute for the update."""
    steps = rollout.steps
    if algorithm.act_hook is not None:
        steps = steps.replace(extras=steps.extras | algorithm.act_hook.prepare(data, steps))
    for hook in algorithm.reward_hooks:
        steps = steps.replace(extras=steps.extras | hook.prepare(rollout.stats, steps))
    return steps.extras


def without_invalid(batch: Batch, valid: Array) -> Batch:
    """The batch with weight 0, and 1 in all other arrays, at the steps that are not valid.

    A weight alone is not enough: 0 times NaN is NaN, in a loss and in its gradient. Ones are
    allowed values for standard deviations too.
    """

    def clean(leaf: Array) -> Array:
        where = valid.reshape(valid.shape + (1,) * (leaf.ndim - valid.ndim))
        return jnp.where(where, leaf, jnp.ones((), leaf.dtype))

    return jax.tree.map(clean, batch).replace(weight=jnp.where(valid, batch.weight, 0.0))
