"""Collecting experience: act, step, observe; as one scan, or as a loop on the host."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from strl_jax.algorithms import losses
from strl_jax.algorithms.base import Algorithm
from strl_jax.modules import normalizer
from strl_jax.sharding import all_gather, psum
from strl_jax.types import Array, EpisodeSums, Rollout, RolloutState, TimeStep, TrainState, Transition

WINDOW = 100  # finished episodes reported per shard and iteration, the length of st_rl's window


def act(algorithm: Algorithm, params: dict, stats: dict, state: RolloutState, key: Array):
    """Samples actions for the current observations.

    Args:
        params: parameter groups.
        stats: statistics that normalise the observations.
        state: leaves ``[B, ...]``.
        key: PRNG key.

    Returns:
        ``mean``, ``std``, ``action`` (each ``[B, A]``), ``log_prob`` ``[B]``, and the carry.
    """
    groups = algorithm.pack(stats, state.env.env.obs, groups=("actor",))
    mean, std, carry = algorithm.policy.apply(params["policy"], groups, state.carry, state.reset, method="act")
    action = mean + std * jax.random.normal(key, mean.shape)
    return mean, std, action, losses.log_prob(action, mean, std), carry


def observe(state: RolloutState, env_state, timestep: TimeStep, carry, gamma: float):
    """Takes in the result of a step: episode sums, resets, the reward normaliser's running return.

    Returns:
        The new state, and what the log wants of this step: the sums of the
        episodes as they stand after it.
    """
    episode = EpisodeSums(
        reward=state.episode.reward + timestep.reward,
        length=state.episode.length + 1,
        metrics={name: value + timestep.metrics[name] for name, value in state.episode.metrics.items()},
    )
    discounted = gamma * state.discounted + timestep.reward
    finished = timestep.done & timestep.valid
    log = {
        "reward": episode.reward,
        "length": episode.length,
        "finished": finished,
        "discounted": discounted,
        "metrics": {name: jnp.sum(jnp.where(finished, value, 0.0)) for name, value in episode.metrics.items()},
    }
    new = state.replace(
        env=env_state,
        carry=carry,
        reset=timestep.done,
        episode=jax.tree.map(lambda x: jnp.where(timestep.done, jnp.zeros_like(x), x), episode),
        discounted=jnp.where(timestep.done, 0.0, discounted),
    )
    return new, log


def collect(
    algorithm: Algorithm,
    env_step: Callable,
    train_state: TrainState,
    state: RolloutState,
    key: Array,
    num_steps: int,
    *,
    axis_name: str | None = None,
) -> tuple[TrainState, RolloutState, Rollout, dict]:
    """``num_steps`` steps of all environments as one ``lax.scan``.

    Args:
        env_step: ``(episode state, action, key) -> episode state, TimeStep``.
        train_state: policy and statistics; only the statistics may come back changed
            (rewards; observations too under ``compat.normalize_while_collecting``).
        state: leaves ``[B, ...]``.
        key: PRNG key of this shard.

    Returns:
        train state, rollout state, rollout and metrics (see ``summarize``).
    """

    def step(loop, key):
        return one_step(algorithm, env_step, train_state.params, *loop, key, axis_name)

    keys = jax.random.split(key, num_steps)
    (state, stats), outputs = jax.lax.scan(step, (state, train_state.stats), keys)
    return finish(algorithm, train_state, state, stats, outputs, axis_name)


def collect_host(
    algorithm: Algorithm,
    env_step: Callable,
    train_state: TrainState,
    state: RolloutState,
    key: Array,
    num_steps: int,
) -> tuple[TrainState, RolloutState, Rollout, dict]:
    """``collect`` with a Python loop, for simulators that cannot be traced; same arguments, same results."""
    stats, outputs = train_state.stats, []
    for step_key in jax.random.split(key, num_steps):
        (state, stats), output = one_step(algorithm, env_step, train_state.params, state, stats, step_key, None)
        outputs.append(output)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *outputs)
    return finish(algorithm, train_state, state, stats, stacked, None)


def one_step(algorithm, env_step, params, state: RolloutState, stats: dict, key: Array, axis_name: str | None):
    """The body of both loops: (state, statistics) and a key to the same and this step's record."""
    act_key, reset_key = jax.random.split(key)
    mean, std, action, log_prob, carry = act(algorithm, params, stats, state, act_key)
    obs, reset = state.env.env.obs, state.reset
    env_state, timestep = env_step(state.env, action, reset_key)
    new_state, log = observe(state, env_state, timestep, carry, algorithm.config.gamma)
    record = {
        "transition": {
            "obs": obs,
            "action": action,
            "log_prob": log_prob,
            "mean": mean,
            "std": std,
            "reward": timestep.reward,
            "done": timestep.done,
            "timeout": timestep.timeout,
            "valid": timestep.valid,
            "reset": reset,
            "extras": timestep.extras,
        },
        "terminal_obs": {name: timestep.terminal_obs[name] for name in algorithm.groups["critic"].names},
        "log": log,
    }
    if algorithm.compat.normalize_while_collecting:
        record["stats"] = stats
        stats = algorithm.update_obs_stats(stats, timestep.obs, timestep.valid, axis_name)
    return (new_state, stats), record


def finish(algorithm: Algorithm, train_state: TrainState, state: RolloutState, stats, outputs: dict, axis_name):
    """Adds to the stacked records what takes one batched pass: values, bootstraps, normalised rewards."""
    record, log = outputs["transition"], outputs["log"]
    used = train_state.stats
    if algorithm.compat.normalize_while_collecting:  # one set of statistics for each step: [T, 1, *shape]
        used = jax.tree.map(lambda x: x[:, None], outputs["stats"])

    def value(stats, obs):
        return algorithm.value(train_state.params, algorithm.pack(stats, obs, groups=("critic",)))

    timeout = record["timeout"]
    reward = record["reward"]
    if "reward" in stats:
        stats = stats | {
            "reward": normalizer.update(stats["reward"], log["discounted"], where=record["valid"], axis_name=axis_name)
        }
        limit = algorithm.config.normalized_reward_clamp_value
        scale = jnp.sqrt(stats["reward"].var) + 1e-8
        reward = jnp.clip(reward / scale, -limit, limit)
    steps = Transition(
        **(record | {"reward": reward}),
        value=value(used, record["obs"]),
        bootstrap=jnp.where(timeout, value(used, outputs["terminal_obs"]), 0.0),
    )
    rollout = Rollout(steps=steps, carry0={}, last_value=value(stats, state.env.env.obs), stats=used)
    metrics = summarize(record, log, axis_name)
    return train_state.replace(stats=stats), state, rollout, metrics


def summarize(record: dict, log: dict, axis_name: str | None) -> dict:
    """What the log says of a rollout, over all shards.

    Returns:
        ``mean_reward_each_timestep``, ``mean_std``, ``invalid`` (number of steps with
        NaN), ``finished`` and ``finished_steps`` (number of episodes and of their
        steps), ``episode_metrics`` (name -> sum over those episodes' steps), and ``episode_reward`` and
        ``episode_length``: ``[shards * WINDOW]``, the last finished episodes in
        order of time within a shard, NaN where there were fewer.
    """
    valid = record["valid"]
    total = psum(jnp.sum(valid, dtype=jnp.float32), axis_name)
    number = psum(jnp.float32(valid.size), axis_name)
    finished = log["finished"]
    return {
        "mean_reward_each_timestep": psum(jnp.sum(record["reward"]), axis_name) / jnp.maximum(total, 1.0),
        "mean_std": psum(jnp.sum(record["std"].mean(axis=-1)), axis_name) / number,
        "invalid": number - total,
        "finished": psum(jnp.sum(finished, dtype=jnp.float32), axis_name),
        "finished_steps": psum(jnp.sum(jnp.where(finished, log["length"], 0), dtype=jnp.float32), axis_name),
        "episode_metrics": psum({name: value.sum() for name, value in log["metrics"].items()}, axis_name),
        "episode_reward": all_gather(_last(finished, log["reward"]), axis_name),
        "episode_length": all_gather(_last(finished, log["length"].astype(jnp.float32)), axis_name),
    }


def _last(finished: Array, values: Array) -> Array:
    """The last ``WINDOW`` of ``values[T, B]`` where ``finished``, oldest first, NaN in front."""
    flags = finished.reshape(-1)
    after = jnp.sum(flags) - jnp.cumsum(flags)  # finished ones that come later
    slot = jnp.where(flags & (after < WINDOW), WINDOW - 1 - after, WINDOW)
    return jnp.full(WINDOW, jnp.nan).at[slot].set(values.reshape(-1), mode="drop")
