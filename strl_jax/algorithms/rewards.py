"""What a rollout is rewarded with: the environment's reward, through all reward hooks, then normalised."""

import jax
import jax.numpy as jnp

from strl_jax.algorithms.base import Algorithm
from strl_jax.algorithms.hooks import Collected
from strl_jax.modules import normalizer
from strl_jax.sharding import psum
from strl_jax.storage.sarsa import next_observations
from strl_jax.types import Array, RolloutState, TrainState


def reward_hooks(
    algorithm: Algorithm,
    train_state: TrainState,
    data: dict | None,
    key: Array | None,
    outputs: dict,
    end: RolloutState,
    stats: dict,
    axis_name: str | None,
) -> tuple[Array, dict, dict, dict]:
    """The reward ``[T, B]`` after all hooks; the record with what they store; statistics; what they log."""
    record, total = outputs["transition"], outputs["transition"]["reward"]
    log = _hook_means(algorithm, record, axis_name)
    collected = Collected(
        obs=record["obs"],
        terminal_obs=outputs["terminal_obs"],
        next_obs=next_observations(record["obs"], end.env.env.obs),
        action=record["action"],
        valid=record["valid"],
        extras=record["extras"],
        iteration=train_state.iteration,
    )
    for index, hook in enumerate(algorithm.reward_hooks):
        hook_key = jax.random.fold_in(key, index + 2)
        total, extras, stats, more = hook.reward(train_state.params, stats, data, hook_key, collected, total, axis_name)
        record = record | {"extras": record["extras"] | extras}
        log |= more
    return jnp.where(record["valid"], total, 0.0), record, stats, {"hooks": log}


def _hook_means(algorithm: Algorithm, record: dict, axis_name: str | None) -> dict[str, Array]:
    hook = algorithm.act_hook
    if hook is None:
        return {}
    valid = record["valid"].astype(jnp.float32)  # sums of it are exact, weights of a mean are not: 1.0000001 of 1
    sums = {name: jnp.sum(valid * record["extras"][extra]) for name, extra in hook.logged.items()}
    sums, number = psum((sums, jnp.sum(valid)), axis_name)
    return jax.tree.map(lambda total: total / jnp.maximum(number, 1.0), sums)


def normalize_rewards(
    algorithm: Algorithm, stats: dict, reward: Array, valid: Array, discounted: Array, axis_name: str | None
) -> tuple[dict, Array]:
    """Rewards over the deviation of their discounted sum, this rollout's included."""
    if "reward" not in stats:
        return stats, reward
    moments = normalizer.update(stats["reward"], discounted, where=valid, axis_name=axis_name)
    limit = algorithm.config.normalized_reward_clamp_value
    return stats | {"reward": moments}, jnp.clip(reward / (jnp.sqrt(moments.var) + 1e-8), -limit, limit)
