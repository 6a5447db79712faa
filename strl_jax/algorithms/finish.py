"""The end of a rollout: rewards, values, bootstraps and the log, each in one batched pass after the steps."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from strl_jax.algorithms import episodes, losses, origins
from strl_jax.algorithms.base import Algorithm
from strl_jax.algorithms.hooks import Collected
from strl_jax.modules import normalizer
from strl_jax.modules.policy import last
from strl_jax.sharding import psum
from strl_jax.storage.sarsa import next_observations
from strl_jax.types import Array, EpisodeSums, Metrics, Rollout, RolloutState, StepRecord, TrainState, Transition


@struct.dataclass
class Rewards:
    """The rewards of a rollout and all that follows from them."""

    reward: Array  # [T, B], that the update learns from: after the hooks, normalised
    extras: dict[str, Array]  # [T, B, ...], of the environment and of the hooks
    stats: dict[str, Any]  # statistics after the rollout
    episode: EpisodeSums  # running sums after the last step
    discounted: Array  # [B], running discounted return
    hooks: dict[str, Any]  # reward hook -> its state after the last step, leaves [B, ...]
    metrics: Metrics
    not_finite: dict[str, Array]  # origin -> bool[T, B], valid steps where it made the reward NaN or infinite


def finish(
    algorithm: Algorithm,
    train_state: TrainState,
    start: RolloutState,
    end: RolloutState,
    stats: dict,
    record: StepRecord,
    axis_name: str | None = None,
    *,
    data: dict | None = None,
    key: Array | None = None,
) -> tuple[TrainState, RolloutState, Rollout, Metrics]:
    """The rollout, from the records of its steps.

    Args:
        start, end: the state before the first and after the last step.
        stats: statistics after the last step.
        record: the records of all steps, leaves ``[T, B, ...]``.
        data, key: as in ``rollout.collect``; only hooks need them.

    Returns:
        As ``rollout.collect``.
    """
    used = train_state.stats
    if algorithm.compat.normalize_while_collecting:  # one set of statistics for each step: [T, 1, *shape]
        used = used | jax.tree.map(lambda x: x[:, None], record.stats)

    def pack(stats, obs):
        return algorithm.pack(stats, obs, groups=("critic",))

    last_obs = algorithm.observe(end.hooks, end.obs)
    collected = Collected(
        obs=record.obs,
        terminal_obs=record.terminal_obs,
        next_obs=next_observations(record.obs, last_obs),
        action=record.action,
        valid=record.valid,
        extras=record.extras,
        iteration=train_state.iteration,
        params=train_state.params,
        key=key,
        data=data,
        axis_name=axis_name,
    )
    rewards = process_rewards(algorithm, start, stats, record, collected)
    reset = jnp.concatenate([start.reset[None], record.done[:-1]])
    value, carries = algorithm.value(train_state.params, pack(used, record.obs), start.carry, reset)
    bootstrap = _terminal_values(algorithm, train_state.params, pack(used, record.terminal_obs), carries)
    end = end.replace(carry=end.carry | last(carries, reset))
    last_value, end = _last_value(algorithm, train_state.params, pack(rewards.stats, last_obs), end)
    values = {"value": value, "bootstrap": jnp.where(record.timeout, bootstrap, 0.0), "reset": reset}
    steps = _transitions(algorithm, record, rewards, **values)
    rollout = Rollout(steps=steps, carry0=start.carry, last_value=last_value, stats=used)
    if algorithm.keeps_carries:
        rollout = rollout.replace(carries=record.carry | _before(start.carry, carries))
    end = end.replace(episode=rewards.episode, discounted=rewards.discounted, hooks=end.hooks | rewards.hooks)
    not_finite = origins.in_rollout(algorithm, record, steps, last_value, rewards.not_finite)
    counted = origins.by_environment(not_finite, "environments", axis_name)
    return train_state.replace(stats=rewards.stats), end, rollout, rewards.metrics.replace(origins=(counted,))


def process_rewards(
    algorithm: Algorithm, start: RolloutState, stats: dict, record: StepRecord, collected: Collected
) -> Rewards:
    """Applies all reward hooks, sums the episodes, normalises; arguments as in ``finish``.

    Args:
        collected: the rollout for the hooks; its ``key`` is that of the rollout.
    """
    total, extras, axis_name, hooks = record.reward, record.extras, collected.axis_name, {}
    log, not_finite = _hook_means(algorithm, record, axis_name), {}
    for index, hook in enumerate(algorithm.reward_hooks):
        before = total
        own = collected.replace(key=jax.random.fold_in(collected.key, index + 2), state=start.hooks.get(hook.name))
        rewarded = hook.reward(own, stats, total)
        hooks |= {hook.name: rewarded.state} if rewarded.state else {}
        total, stats, extras, log = rewarded.reward, rewarded.stats, extras | rewarded.extras, log | rewarded.log
        not_finite[f"reward of {hook.name}"] = record.valid & jnp.isfinite(before) & ~jnp.isfinite(total)
    total = jnp.where(record.valid, total, 0.0)
    sums, discounted, episode_log = episodes.accumulate(
        start.episode, start.discounted, record, algorithm.config.gamma, total
    )
    stats, reward = _normalize(algorithm, stats, total, record.valid, episode_log.discounted, axis_name)
    if "reward" in stats:
        not_finite["normalised reward"] = record.valid & jnp.isfinite(total) & ~jnp.isfinite(reward)
    learned = reward if algorithm.reward_hooks or "reward" in stats else None
    metrics = episodes.summarize(record, episode_log, log, axis_name, learned)
    return Rewards(reward, extras, stats, sums, discounted, hooks, metrics, not_finite)


def _transitions(algorithm: Algorithm, record: StepRecord, rewards: Rewards, **values: Array) -> Transition:
    """The stored steps; ``values`` are the fields that come from the critic and the reset flags."""
    drawn = record.sampled if algorithm.compat.sample_log_prob else record.action
    return Transition(
        obs=record.obs,
        action=record.action,
        log_prob=losses.log_prob(drawn, record.mean, record.std),
        mean=record.mean,
        std=record.std,
        reward=rewards.reward,
        done=record.done,
        timeout=record.timeout,
        valid=record.valid,
        masks=record.masks,
        extras=rewards.extras,
        **values,
    )


def _hook_means(algorithm: Algorithm, record: StepRecord, axis_name: str | None) -> dict[str, Array]:
    """Means over the valid steps of the extras that the act hook logs."""
    hook = algorithm.act_hook
    if hook is None:
        return {}
    missing = [extra for extra in hook.logged.values() if extra not in record.extras]
    if missing:
        raise ValueError(f"{type(hook).__name__} logs the extra {missing[0]!r}, which its act does not return")
    valid = record.valid.astype(jnp.float32)  # exact sums; weights of a mean would give 1.0000001 for 1
    sums = {name: jnp.sum(valid * record.extras[extra]) for name, extra in hook.logged.items()}
    sums, number = psum((sums, jnp.sum(valid)), axis_name)
    return jax.tree.map(lambda total: total / jnp.maximum(number, 1.0), sums)


def _normalize(
    algorithm: Algorithm, stats: dict, reward: Array, valid: Array, discounted: Array, axis_name: str | None
) -> tuple[dict, Array]:
    """Rewards divided by the standard deviation of their discounted sum, with this rollout included."""
    if "reward" not in stats:
        return stats, reward
    moments = normalizer.update(stats["reward"], discounted, where=valid, axis_name=axis_name)
    limit = algorithm.config.normalized_reward_clamp_value
    return stats | {"reward": moments}, jnp.clip(reward / (jnp.sqrt(moments.var) + 1e-8), -limit, limit)


def _terminal_values(algorithm: Algorithm, params: dict, groups: dict, carries: dict) -> Array:
    """Values ``[T, B]`` of the observations after each step, with the critic's memory after that step."""

    def value(groups, carry):
        return algorithm.value(params, groups, carry, jnp.zeros(groups["critic"].shape[:-1], bool))[0]

    return jax.vmap(value)(groups, carries)


def _last_value(algorithm: Algorithm, params: dict, groups: dict, end: RolloutState) -> tuple[Array, RolloutState]:
    """Value ``[B]`` of the observation after the last step, and the state ``end``.

    ``end`` changes only with ``compat.advance_critic_memory``, which also advances the critic's memory.
    """
    value, ahead = algorithm.value(params, groups, end.carry, end.reset)
    if algorithm.compat.advance_critic_memory and algorithm.policy.is_recurrent:
        ended = end.reset[:, None, None]
        cleared = jax.tree.map(lambda leaf: jnp.where(ended, 0.0, leaf), end.carry)
        end = end.replace(carry=cleared | ahead, reset=jnp.zeros_like(end.reset))
    return value, end


def _before(first: dict, after: dict) -> dict:
    """Memory -> carry before every step, leaves ``[T, B, ...]``, for the memories in ``after``.

    Args:
        first: carry before the first step, leaves ``[B, ...]``.
        after: carry after every step, leaves ``[T, B, ...]``.
    """
    return {
        name: jax.tree.map(lambda start, rest: jnp.concatenate([start[None], rest[:-1]]), first[name], leaves)
        for name, leaves in after.items()
    }
