"""Collecting experience: act, step, observe; as one scan, or as a loop on the host."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from strl_jax.algorithms import episodes, losses
from strl_jax.algorithms.base import Algorithm
from strl_jax.modules import normalizer
from strl_jax.modules.policy import last
from strl_jax.types import Array, Rollout, RolloutState, TimeStep, TrainState, Transition


def act(algorithm: Algorithm, params: dict, stats: dict, state: RolloutState, noise: Array, masks: dict):
    """Samples actions for the current observations.

    Args:
        params: parameter groups.
        stats: statistics that normalise the observations.
        state: leaves ``[B, ...]``.
        noise: standard normal ``[B, A]``.
        masks: stage -> bool ``[B]``, see ``Policy``.

    Returns:
        ``mean``, ``std``, ``action`` (each ``[B, A]``), and the carry.
    """
    groups = algorithm.pack(stats, state.env.env.obs, groups=algorithm.act_groups)
    policy, variables = algorithm.policy, params["policy"]
    mean, std, carry = policy.apply(variables, groups, state.carry, state.reset, masks, method="act")
    return mean, std, mean if policy.deterministic else mean + std * noise, carry


def observe(state: RolloutState, env_state, timestep: TimeStep, carry) -> RolloutState:
    """Takes in the result of a step; a memory is cleared before the first step of an episode."""
    return state.replace(env=env_state, carry=carry, reset=timestep.done)


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
        env_step: ``(episode state, action, draw) -> episode state, TimeStep``, where
            ``draw[B]`` is uniform in [0, 1) and chooses reset states.
        train_state: policy and statistics; only the statistics may come back changed
            (rewards; observations too under ``compat.normalize_while_collecting``).
        state: leaves ``[B, ...]``.
        key: PRNG key of this shard.

    Returns:
        train state, rollout state, rollout and metrics (see ``episodes.summarize``).
    """

    def step(loop, drawn):
        return one_step(algorithm, env_step, train_state.params, *loop, drawn, axis_name)

    drawn = draw(algorithm, key, num_steps, state.reset.shape[0])
    (end, stats), outputs = jax.lax.scan(step, (state, train_state.stats), drawn)
    return finish(algorithm, train_state, state, end, stats, outputs, axis_name)


def collect_host(
    algorithm: Algorithm,
    env_step: Callable,
    train_state: TrainState,
    state: RolloutState,
    key: Array,
    num_steps: int,
) -> tuple[TrainState, RolloutState, Rollout, dict]:
    """``collect`` with a Python loop, for simulators that cannot be traced; same arguments, same results."""
    end, stats, outputs = state, train_state.stats, []
    drawn = draw(algorithm, key, num_steps, state.reset.shape[0])
    for index in range(num_steps):
        now = jax.tree.map(lambda x, index=index: x[index], drawn)
        (end, stats), output = one_step(algorithm, env_step, train_state.params, end, stats, now, None)
        outputs.append(output)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *outputs)
    return finish(algorithm, train_state, state, end, stats, stacked, None)


def draw(algorithm: Algorithm, key: Array, num_steps: int, batch: int) -> tuple[Array, Array, dict]:
    """All that is random in a rollout, at once: action noise ``[T, B, A]``, reset draws and masks ``[T, B]``."""
    noise_key, reset_key, mask_key = jax.random.split(key, 3)
    noise = jax.random.normal(noise_key, (num_steps, batch, algorithm.policy.action_size))
    masks = algorithm.draw_masks(mask_key, (num_steps, batch))
    return noise, jax.random.uniform(reset_key, (num_steps, batch)), masks


def one_step(algorithm, env_step, params, state: RolloutState, stats: dict, drawn: tuple, axis_name: str | None):
    """The body of both loops: (state, statistics) and one step's ``draw`` to the same and this step's record."""
    noise, reset_draw, masks = drawn
    mean, std, action, carry = act(algorithm, params, stats, state, noise, masks)
    env_state, timestep = env_step(state.env, action, reset_draw)
    record = {
        "transition": {
            "obs": state.env.env.obs,
            "action": action,
            "mean": mean,
            "std": std,
            "reward": timestep.reward,
            "done": timestep.done,
            "timeout": timestep.timeout,
            "valid": timestep.valid,
            "masks": masks,
            "extras": timestep.extras,
        },
        "terminal_obs": {name: timestep.terminal_obs[name] for name in algorithm.groups["critic"].names},
        "metrics": episodes.stack_metrics(timestep.metrics, timestep.reward.shape[0]),
    }
    if algorithm.compat.normalize_while_collecting:
        record["stats"] = stats
        stats = algorithm.update_obs_stats(stats, timestep.obs, timestep.valid, axis_name)
    return (observe(state, env_state, timestep, carry), stats), record


def finish(
    algorithm: Algorithm,
    train_state: TrainState,
    start: RolloutState,
    end: RolloutState,
    stats: dict,
    outputs: dict,
    axis_name: str | None,
) -> tuple[TrainState, RolloutState, Rollout, dict]:
    """What takes one batched pass instead of one a step: values, bootstraps, episode sums, the log.

    Args:
        start, end: the state before the first and after the last step.
        stats: statistics after the last step.
        outputs: stacked records of ``one_step``.
    """
    record = outputs["transition"]
    used = train_state.stats
    if algorithm.compat.normalize_while_collecting:  # one set of statistics for each step: [T, 1, *shape]
        used = jax.tree.map(lambda x: x[:, None], outputs["stats"])

    def pack(stats, obs):
        return algorithm.pack(stats, obs, groups=("critic",))

    sums, discounted, log = episodes.accumulate(
        start.episode, start.discounted, record, outputs["metrics"], algorithm.config.gamma
    )
    stats, reward = _normalize_rewards(algorithm, stats, record, log["discounted"], axis_name)
    reset = jnp.concatenate([start.reset[None], record["done"][:-1]])
    value, carries = algorithm.value(train_state.params, pack(used, record["obs"]), start.carry, reset)
    bootstrap = _terminal_values(algorithm, train_state.params, pack(used, outputs["terminal_obs"]), carries)
    end = end.replace(carry=end.carry | last(carries, reset))
    last_value, end = _last_value(algorithm, train_state.params, pack(stats, end.env.env.obs), end)
    steps = Transition(
        **(record | {"reward": reward}),
        log_prob=losses.log_prob(record["action"], record["mean"], record["std"]),
        value=value,
        bootstrap=jnp.where(record["timeout"], bootstrap, 0.0),
        reset=reset,
    )
    rollout = Rollout(steps=steps, carry0=start.carry, last_value=last_value, stats=used)
    end = end.replace(episode=sums, discounted=discounted)
    return train_state.replace(stats=stats), end, rollout, episodes.summarize(record, log, axis_name)


def _terminal_values(algorithm: Algorithm, params: dict, groups: dict, carries: dict) -> Array:
    """Values ``[T, B]`` of the observations that the steps led to, each with the critic's memory after its step."""

    def value(groups, carry):
        return algorithm.value(params, groups, carry, jnp.zeros(groups["critic"].shape[:-1], bool))[0]

    return jax.vmap(value)(groups, carries)


def _last_value(algorithm: Algorithm, params: dict, groups: dict, end: RolloutState) -> tuple[Array, RolloutState]:
    """Value ``[B]`` of the observation after the last step; the critic's memory is read, not moved."""
    value, ahead = algorithm.value(params, groups, end.carry, end.reset)
    if algorithm.compat.advance_critic_memory and algorithm.policy.is_recurrent:
        ended = end.reset[:, None, None]
        cleared = jax.tree.map(lambda leaf: jnp.where(ended, 0.0, leaf), end.carry)
        end = end.replace(carry=cleared | ahead, reset=jnp.zeros_like(end.reset))
    return value, end


def _normalize_rewards(algorithm: Algorithm, stats: dict, record: dict, discounted: Array, axis_name: str | None):
    """Rewards over the deviation of their discounted sum, this rollout's included."""
    if "reward" not in stats:
        return stats, record["reward"]
    moments = normalizer.update(stats["reward"], discounted, where=record["valid"], axis_name=axis_name)
    limit = algorithm.config.normalized_reward_clamp_value
    reward = jnp.clip(record["reward"] / (jnp.sqrt(moments.var) + 1e-8), -limit, limit)
    return stats | {"reward": moments}, reward
