"""From a rollout to new weights: prepare, then epochs of minibatches."""

import jax
import jax.numpy as jnp

from strl_jax.algorithms import losses as loss_functions
from strl_jax.algorithms import minibatch, optimizers, returns, schedules
from strl_jax.algorithms.base import Algorithm, apply_policy
from strl_jax.sharding import pmean
from strl_jax.types import Array, Batch, Rollout, TrainState


def losses(algorithm: Algorithm, params: dict, batch: Batch) -> tuple[dict[str, Array], Array]:
    """Every term of the loss on a minibatch, and the KL from the policy that collected it.

    Args:
        params: parameter group -> variables.
        batch: a minibatch, leaves ``[M, ...]``; its ``weight`` sums to 1 over all
            shards on average (see ``returns.weights``).

    Returns:
        Unscaled losses by name, and KL(old || new), a scalar.
    """
    output = apply_policy(algorithm, params, batch)
    kl = loss_functions.gaussian_kl(batch.mean, batch.std, output.mean, output.std, log_eps=algorithm.compat.kl_log_eps)
    return {term.name: term.fn(output, batch) for term in algorithm.terms}, loss_functions.mean(kl, batch.weight)


def prepare(algorithm: Algorithm, rollout: Rollout, *, axis_name: str | None = None) -> Batch:
    """Bootstraps time-outs, estimates and normalises advantages, packs observations.

    Args:
        rollout: leaves ``[T, B, ...]``.
        axis_name: mapped axis whose shards share the advantage's moments.

    Returns:
        Leaves ``[T, B, ...]``.
    """
    config, steps = algorithm.config, rollout.steps
    bootstrap = steps.value if algorithm.compat.bootstrap_current_value else steps.bootstrap
    reward = returns.bootstrap_timeouts(steps.reward, steps.timeout, bootstrap, gamma=config.gamma)
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
        extras=steps.extras,
    )
    return _without_invalid(batch, steps.valid).replace(carry=rollout.carry0)


def epochs(
    algorithm: Algorithm,
    train_state: TrainState,
    batch: Batch,
    key: Array,
    *,
    plan: Array | None = None,
    axis_name: str | None = None,
) -> tuple[TrainState, dict[str, Array]]:
    """All minibatch updates of one iteration.

    Args:
        batch: this shard's samples, leaves ``[T, B, ...]``.
        key: PRNG key of the shuffles.
        plan: ``int32[updates, M]`` of sample indices t * B + e, of environments when
            recurrent; None draws one.
        axis_name: mapped axis over which gradients and statistics are averaged.

    Returns:
        The new state (iteration + 1), and for every update ``[updates]``: the
        losses, ``total_loss``, ``kl``, ``learning_rate``, ``grad_norm``, ``skipped``.
    """
    config = algorithm.config
    plan_key, mask_key = jax.random.split(key)
    plan = _plan(algorithm, batch, plan_key) if plan is None else plan
    coefs = {term.name: term.coef(train_state.iteration) for term in algorithm.terms}
    if config.schedule != "adaptive":
        start = algorithm.learning_rate(train_state.iteration)
        train_state = train_state.replace(learning_rate={**train_state.learning_rate, "policy": start})

    gather = minibatch.gather_envs if algorithm.policy.is_recurrent else minibatch.gather

    def one(state: TrainState, drawn: tuple):
        index, key = drawn
        sample = gather(batch, index)
        sample = sample.replace(weight=returns.weights(sample.weight, axis_name=axis_name))
        if algorithm.compat.redraw_replacement:
            sample = sample.replace(masks=algorithm.draw_masks(key, sample.value.shape))
        return _minibatch_update(algorithm, state, sample, coefs, axis_name)

    train_state, metrics = jax.lax.scan(one, train_state, (plan, jax.random.split(mask_key, plan.shape[0])))
    if algorithm.compat.linear_std:
        train_state = train_state.replace(params=_floor_std(algorithm, train_state.params))
    return train_state.replace(iteration=train_state.iteration + 1), metrics


def update(
    algorithm: Algorithm,
    train_state: TrainState,
    rollout: Rollout,
    key: Array,
    *,
    plan: Array | None = None,
    axis_name: str | None = None,
) -> tuple[TrainState, dict[str, Array]]:
    """``prepare``, ``epochs``, then the observation statistics take in the rollout.

    Returns:
        The new state and the mean of every metric of ``epochs`` (``skipped``: their
        number; ``learning_rate``: the last).
    """
    batch = prepare(algorithm, rollout, axis_name=axis_name)
    train_state, metrics = epochs(algorithm, train_state, batch, key, plan=plan, axis_name=axis_name)
    if not algorithm.compat.normalize_while_collecting:
        steps = rollout.steps
        stats = algorithm.update_obs_stats(train_state.stats, steps.obs, steps.valid, axis_name)
        train_state = train_state.replace(stats=stats)
    summary = {name: value.mean() for name, value in metrics.items()}
    summary["skipped"] = metrics["skipped"].sum()
    summary["learning_rate"] = metrics["learning_rate"][-1]
    return train_state, summary


def _plan(algorithm: Algorithm, batch: Batch, key: Array) -> Array:
    config, compat, recurrent = algorithm.config, algorithm.compat, algorithm.policy.is_recurrent
    return minibatch.plan(
        key,
        batch.value.shape[1] if recurrent else batch.value.size,
        config.num_mini_batches,
        config.num_learning_epochs,
        reuse=compat.reuse_permutation,
        shuffle=not (recurrent and compat.contiguous_envs),
    )


def _without_invalid(batch: Batch, valid: Array) -> Batch:
    """Ordinary numbers where a step is not valid: 0 times NaN is NaN, in a loss and in its gradient."""

    def clean(leaf: Array, fill: float = 0.0) -> Array:
        return jnp.where(
            valid.reshape(valid.shape + (1,) * (leaf.ndim - valid.ndim)), leaf, jnp.asarray(fill, leaf.dtype)
        )

    return jax.tree.map(clean, batch).replace(std=clean(batch.std, 1.0))


def _minibatch_update(algorithm: Algorithm, state: TrainState, sample: Batch, coefs: dict, axis_name: str | None):
    config = algorithm.config

    def total(params):
        terms, kl = losses(algorithm, params, sample)
        return sum(coefs[name] * value for name, value in terms.items()), (terms, kl)

    (loss, (terms, kl)), grads = jax.value_and_grad(total, has_aux=True)(state.params)
    grads, loss, terms, kl = pmean((grads, loss, terms, kl), axis_name)

    rates = state.learning_rate
    if config.schedule == "adaptive":
        rates = rates | {"policy": schedules.adapt(rates["policy"], kl, config.desired_kl)}
    params, opt_state, skipped = {}, {}, jnp.bool_(False)
    for name, optimizer in algorithm.optimizers.items():
        params[name], opt_state[name], norm, skip = optimizers.step(
            optimizer, state.params[name], grads[name], state.opt_state[name], rates[name]
        )
        skipped |= skip
    if not algorithm.compat.linear_std:
        params = _floor_std(algorithm, params)
    metrics = terms | {
        "total_loss": loss,
        "kl": kl,
        "learning_rate": rates["policy"],
        "grad_norm": norm,
        "skipped": skipped.astype(jnp.int32),
    }
    return state.replace(params=params, opt_state=opt_state, learning_rate=rates), metrics


def _floor_std(algorithm: Algorithm, params: dict) -> dict:
    """Lifts the free standard deviation to ``clip_min_std``; its gradient stays alive, unlike under a max."""
    least = jnp.asarray(algorithm.config.clip_min_std, jnp.float32)
    name, least = ("std", least) if algorithm.compat.linear_std else ("log_std", jnp.log(least))
    leaves = params["policy"]["params"]
    lifted = jnp.maximum(leaves[name], least)
    return params | {"policy": params["policy"] | {"params": leaves | {name: lifted}}}
