"""From a rollout to new weights: prepare, then epochs of minibatches."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from strl_jax.algorithms import losses as loss_functions
from strl_jax.algorithms import minibatch, optimizers, origins, returns, schedules
from strl_jax.algorithms.base import Algorithm, Outputs, apply_networks
from strl_jax.algorithms.memory import needed, recall
from strl_jax.algorithms.plateau import ReduceLROnPlateau
from strl_jax.algorithms.prepare import prepare
from strl_jax.envs import broken
from strl_jax.modules.random_carry import draw_random_carry
from strl_jax.sharding import pmean
from strl_jax.types import Array, Batch, Flags, Origins, Rollout, TrainState

__all__ = ["Transform", "epochs", "learn", "losses", "prepare", "update"]

Transform = Callable[[Batch, Array], Batch]  # (minibatch, PRNG key) -> minibatch, before its weights are computed


def losses(algorithm: Algorithm, params: dict, batch: Batch) -> tuple[dict[str, Array], dict[str, Array]]:
    """All terms of the loss on a minibatch, and the metrics.

    Args:
        params: parameter group -> variables.
        batch: a minibatch, leaves ``[M, ...]``, or ``[T, M, ...]`` if recurrent; the sum of its ``weight``,
            averaged over shards, is 1 (see ``returns.weights``).

    Returns:
        Unscaled losses by name, and metrics by name: those of the algorithm and ``kl``, the mean
        KL(old || new), where old is the policy that collected the samples.
    """
    return _losses(algorithm, apply_networks(algorithm, params, batch), batch)


def _losses(algorithm: Algorithm, outputs: Outputs, batch: Batch) -> tuple[dict[str, Array], dict[str, Array]]:
    policy, eps = outputs.policy, algorithm.compat.kl_log_eps
    kl = loss_functions.gaussian_kl(batch.mean, batch.std, policy.mean, policy.std, log_eps=eps)
    metrics = {metric.name: metric.fn(outputs, batch) for metric in algorithm.metrics}
    terms = {term.name: term.fn(outputs, batch) for term in algorithm.terms}
    return terms, metrics | {"kl": loss_functions.mean(kl, batch.weight)}


def epochs(
    algorithm: Algorithm,
    train_state: TrainState,
    batch: Batch,
    key: Array,
    *,
    memory: dict | None = None,
    plan: Array | None = None,
    transforms: tuple[Transform, ...] = (),
    axis_name: str | None = None,
) -> tuple[TrainState, dict[str, Array]]:
    """All minibatch updates of one iteration.

    Args:
        batch: this shard's samples, leaves ``[T, B, ...]``.
        key: PRNG key of the shuffles and of the other random draws.
        memory: earlier rollouts, see ``memory.remember``.
        plan: ``int32[updates, M]`` of sample indices t * B + e, of environments when
            recurrent; None draws one.
        transforms: applied to each minibatch in order. One may change the number of samples, as a
            mirror augmentation does; ``weight`` is then 1 for each valid sample.
        axis_name: mapped axis over which gradients and statistics are averaged.

    Returns:
        The new state (iteration + 1), and for every update ``[updates]``: losses and
        metrics of ``losses``, ``total_loss``, ``kl``, ``learning_rate``, ``grad_norm``, ``skipped``.
    """
    options = {"memory": memory, "plan": plan, "transforms": transforms, "axis_name": axis_name}
    return _epochs(algorithm, train_state, batch, key, **options)[:2]


def _epochs(
    algorithm: Algorithm,
    train_state: TrainState,
    batch: Batch,
    key: Array,
    *,
    memory: dict | None = None,
    plan: Array | None = None,
    transforms: tuple[Transform, ...] = (),
    axis_name: str | None = None,
) -> tuple[TrainState, dict[str, Array], Flags]:
    """The results of ``epochs``, and for every update what was not finite, bits ``[updates, W]``."""
    plan_key, sample_key = jax.random.split(key)
    plan = _plan(algorithm, batch, plan_key) if plan is None else plan
    coefs = {term.name: term.coef(train_state.iteration) for term in algorithm.terms}
    rates = algorithm.learning_rates(train_state.iteration)
    if algorithm.keeps_learning_rate:
        rates["policy"] = train_state.learning_rate["policy"]
    train_state = train_state.replace(learning_rate=rates)
    gather = minibatch.gather_envs if algorithm.policy.is_recurrent else minibatch.gather

    def one(state: TrainState, drawn: tuple):
        index, key = drawn
        sample = gather(batch, index)
        for number, transform in enumerate(transforms):
            sample = transform(sample, jax.random.fold_in(jax.random.fold_in(key, 0), number))
        sample = _weigh(algorithm, sample, axis_name)
        sample = _redraw(algorithm, state.stats, sample, memory or {}, key)
        return _minibatch_update(algorithm, state, sample, coefs, axis_name)

    inputs = (plan, jax.random.split(sample_key, plan.shape[0]))
    train_state, (metrics, not_finite) = jax.lax.scan(one, train_state, inputs)
    if algorithm.compat.linear_std:
        train_state = train_state.replace(params=_floor_std(algorithm, train_state.params))
    return train_state.replace(iteration=train_state.iteration + 1), metrics, not_finite


def _weigh(algorithm: Algorithm, sample: Batch, axis_name: str | None) -> Batch:
    """A minibatch with weights for means over the valid samples of all shards, also for each network's share."""
    valid, total = sample.weight, sample.weight.size
    rows = {name: minibatch.spread(total, fraction) for name, fraction in algorithm.shares.items()}
    shares = {name: returns.weights(valid.reshape(-1)[index], axis_name=axis_name) for name, index in rows.items()}
    return sample.replace(weight=returns.weights(valid, axis_name=axis_name), shares=shares or None)


def _redraw(algorithm: Algorithm, stats: dict, sample: Batch, memory: dict, key: Array) -> Batch:
    """A minibatch with what is drawn at random for it: masks, initial recurrent states, samples of earlier rollouts."""
    if algorithm.compat.redraw_replacement:
        sample = sample.replace(masks=algorithm.draw_masks(key, sample.value.shape))
    if algorithm.resample_prob > 0:
        start_key = jax.random.fold_in(key, 1)
        sample = sample.replace(
            random_carry=draw_random_carry(algorithm.policy, start_key, sample.reset, algorithm.resample_prob)
        )
    for index, hook in enumerate(algorithm.reward_hooks):
        if hook.name in memory:
            sample = hook.recall(stats, memory[hook.name], jax.random.fold_in(key, index + 2), sample)
    return sample


def update(
    algorithm: Algorithm,
    train_state: TrainState,
    rollout: Rollout,
    key: Array,
    *,
    data: dict | None = None,
    memory: dict | None = None,
    axis_name: str | None = None,
    **options,
) -> tuple[TrainState, dict[str, Array]]:
    """``prepare``, ``epochs``, then the statistics of observations and hooks are updated with the rollout.

    Args:
        rollout: leaves ``[T, B, ...]``.
        data: constant data of the hooks: a teacher's weights, an expert's motion.
        memory: result of ``memory.remember``, which includes this rollout; only algorithms with a
            queue or a replay need it.
        options: ``plan`` and ``transforms``, see ``epochs``.

    Returns:
        The new state, and the mean of every metric of ``epochs`` over the updates (``skipped``: the
        number of skipped updates; ``learning_rate``: the last one).

    Raises:
        ValueError: the algorithm has a queue or a replay, and ``memory`` is missing.
    """
    return learn(algorithm, train_state, rollout, key, data=data, memory=memory, axis_name=axis_name, **options)[:2]


def learn(
    algorithm: Algorithm,
    train_state: TrainState,
    rollout: Rollout,
    key: Array,
    *,
    data: dict | None = None,
    memory: dict | None = None,
    axis_name: str | None = None,
    **options,
) -> tuple[TrainState, dict[str, Array], Origins]:
    """The results of ``update``, and the origins of values that were not finite in its minibatches."""
    if needed(algorithm) and not memory:
        raise ValueError("the algorithm learns from earlier rollouts: pass memory=memory.remember(...) to update")
    memory = memory or {}
    batch = recall(algorithm, memory, rollout, data=data, axis_name=axis_name)
    options |= {"memory": memory, "axis_name": axis_name}
    train_state, metrics, not_finite = _epochs(algorithm, train_state, batch, key, **options)
    steps, stats = rollout.steps, train_state.stats
    if not algorithm.compat.normalize_while_collecting:
        stats = algorithm.update_obs_stats(stats, steps.obs, steps.valid, axis_name)
    for hook in algorithm.reward_hooks:
        stats = hook.observe(stats, steps, axis_name)
    summary = {name: value.mean() for name, value in metrics.items()}
    summary["skipped"] = metrics["skipped"].sum()
    summary["learning_rate"] = metrics["learning_rate"][-1]
    if algorithm.plateau is not None:
        train_state = _lower_rate(algorithm.plateau, train_state, summary)
    return train_state.replace(stats=stats), summary, origins.by_update(not_finite, axis_name)


def _lower_rate(plateau: ReduceLROnPlateau, train_state: TrainState, summary: dict[str, Array]) -> TrainState:
    """The state with the policy's learning rate of the next iteration."""
    rates = train_state.learning_rate
    state, rate = plateau.step(train_state.lr_scheduler, rates["policy"], summary[plateau.metric])
    return train_state.replace(lr_scheduler=state, learning_rate=rates | {"policy": rate})


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


def _minibatch_update(algorithm: Algorithm, state: TrainState, sample: Batch, coefs: dict, axis_name: str | None):
    groups = [group for name in algorithm.optimizers for group in algorithm.members.get(name, (name,))]

    def total(trained):
        outputs = apply_networks(algorithm, state.params | trained, sample)
        terms, metrics = _losses(algorithm, outputs, sample)
        loss = sum(coefs[name] * value for name, value in terms.items())
        return loss, (terms | metrics, origins.in_networks(outputs))

    trained = {group: state.params[group] for group in groups}
    (loss, (metrics, not_finite)), grads = jax.value_and_grad(total, has_aux=True)(trained)
    grads, loss, metrics = pmean((grads, loss, metrics), axis_name)
    not_finite |= {f"loss {term.name}": ~jnp.isfinite(metrics[term.name]) for term in algorithm.terms}

    rates = state.learning_rate
    if algorithm.config.schedule == "adaptive":
        rates = rates | {"policy": schedules.adapt(rates["policy"], metrics["kl"], algorithm.config.desired_kl)}
    params, opt_state, norms, skipped = state.params, {}, {}, jnp.bool_(False)
    for name, optimizer in algorithm.optimizers.items():
        momentum = {"momentum": algorithm.momenta[name](state.iteration)} if name in algorithm.momenta else {}
        new, opt_state[name], norms[name], skip = optimizers.step(
            optimizer,
            algorithm.trained(params, name),
            algorithm.trained(grads, name),
            state.opt_state[name],
            rates[name],
            **momentum,
        )
        params = params | new
        skipped |= skip
        not_finite[f"gradient of {name}"] = skip
    if not algorithm.compat.linear_std:
        params = _floor_std(algorithm, params)
    metrics |= {
        "total_loss": loss,
        "learning_rate": rates["policy"],
        "grad_norm": norms["policy"],
        "skipped": skipped.astype(jnp.int32),
    }
    return state.replace(params=params, opt_state=opt_state, learning_rate=rates), (metrics, broken.pack(not_finite))


def _floor_std(algorithm: Algorithm, params: dict) -> dict:
    """The parameters with a standard deviation of at least ``clip_min_std``.

    A maximum inside the policy would have gradient 0 below the limit; this does not change the gradient.
    """
    least = jnp.asarray(algorithm.config.clip_min_std, jnp.float32)
    name, least = ("std", least) if algorithm.compat.linear_std else ("log_std", jnp.log(least))
    leaves = params["policy"]["params"]
    lifted = jnp.maximum(leaves[name], least)
    return params | {"policy": params["policy"] | {"params": leaves | {name: lifted}}}
