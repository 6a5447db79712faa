"""Collecting experience: act, step, observe; as one scan, or as a loop on the host."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from strl_jax.algorithms import episodes, losses
from strl_jax.algorithms.base import Algorithm
from strl_jax.algorithms.rewards import normalize_rewards, reward_hooks
from strl_jax.modules.policy import last
from strl_jax.types import Array, Obs, Rollout, RolloutState, TimeStep, TrainState, Transition


@struct.dataclass
class Drawn:
    """What is random in the steps of a rollout."""

    noise: Array  # [T, B, A], standard normal
    reset: Array  # [T, B], uniform, chooses states from the pool
    masks: dict[str, Array]  # stage -> bool[T, B], see Policy
    hook: Any  # of the act hook, leaves [T, B, ...]


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


def observe(state: RolloutState, env_state, timestep: TimeStep, carry, hooks: dict) -> RolloutState:
    """Takes in the result of a step; a memory is cleared before the first step of an episode."""
    return state.replace(env=env_state, carry=carry, reset=timestep.done, hooks=hooks)


def collect(
    algorithm: Algorithm,
    env_step: Callable,
    train_state: TrainState,
    state: RolloutState,
    key: Array,
    num_steps: int,
    *,
    data: dict | None = None,
    axis_name: str | None = None,
) -> tuple[TrainState, RolloutState, Rollout, dict]:
    """``num_steps`` steps of all environments as one ``lax.scan``.

    Args:
        env_step: ``(episode state, action, draw) -> episode state, TimeStep``, where
            ``draw[B]`` is uniform in [0, 1) and chooses reset states. Where a reward hook
            ends episodes, it is called with the keyword ``ends`` of ``EpisodeEnv.step``.
        train_state: policy and statistics; only the statistics may come back changed
            (rewards; others too under compat's habits of normalising while collecting).
        state: leaves ``[B, ...]``.
        key: PRNG key of this shard.
        data: what hooks need and nothing changes: a teacher, an expert's motion.

    Returns:
        train state, rollout state, rollout and metrics (see ``episodes.summarize``).
    """

    def step(loop, drawn):
        return one_step(algorithm, env_step, train_state, *loop, drawn, axis_name, data=data)

    drawn = draw(algorithm, key, num_steps, state.reset.shape[0])
    (end, stats), outputs = jax.lax.scan(step, (state, train_state.stats), drawn)
    return finish(algorithm, train_state, state, end, stats, outputs, axis_name, data=data, key=key)


def collect_host(
    algorithm: Algorithm,
    env_step: Callable,
    train_state: TrainState,
    state: RolloutState,
    key: Array,
    num_steps: int,
    *,
    data: dict | None = None,
) -> tuple[TrainState, RolloutState, Rollout, dict]:
    """``collect`` with a Python loop, for simulators that cannot be traced; same arguments, same results."""
    end, stats, outputs = state, train_state.stats, []
    drawn = draw(algorithm, key, num_steps, state.reset.shape[0])
    for index in range(num_steps):
        now = jax.tree.map(lambda x, index=index: x[index], drawn)
        (end, stats), output = one_step(algorithm, env_step, train_state, end, stats, now, None, data=data)
        outputs.append(output)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *outputs)
    return finish(algorithm, train_state, state, end, stats, stacked, None, data=data, key=key)


def draw(algorithm: Algorithm, key: Array, num_steps: int, batch: int) -> Drawn:
    """All that is random in a rollout, at once."""
    noise_key, reset_key, mask_key = jax.random.split(key, 3)
    hook = algorithm.act_hook
    return Drawn(
        noise=jax.random.normal(noise_key, (num_steps, batch, algorithm.policy.action_size)),
        reset=jax.random.uniform(reset_key, (num_steps, batch)),
        masks=algorithm.draw_masks(mask_key, (num_steps, batch)),
        hook=None if hook is None else hook.draw(jax.random.fold_in(key, 1), num_steps, batch),
    )


def one_step(
    algorithm: Algorithm,
    env_step: Callable,
    train_state: TrainState,
    state: RolloutState,
    stats: dict,
    drawn: Drawn,
    axis_name: str | None,
    *,
    data: dict | None = None,
):
    """The body of both loops: (state, statistics) and one step's ``draw`` to the same and this step's record."""
    obs, hook = state.env.env.obs, algorithm.act_hook
    mean, std, sampled, carry = act(algorithm, train_state.params, stats, state, drawn.noise, drawn.masks)
    action, extras, hooks = sampled, {}, state.hooks
    if hook is not None:
        action, extras, acting = hook.act(data, hooks[hook.name], obs, sampled, drawn.hook)
    ends = _ends(algorithm, train_state.params, stats, obs)
    env_state, timestep = env_step(state.env, action, drawn.reset, **ends)
    if hook is not None:
        hooks = hooks | {hook.name: hook.observe(acting, timestep, train_state.iteration, drawn.hook)}
    record = {
        "transition": {
            "obs": obs,
            "action": action,
            "mean": mean,
            "std": std,
            "reward": timestep.reward,
            "done": timestep.done,
            "timeout": timestep.timeout,
            "valid": timestep.valid,
            "masks": drawn.masks,
            "extras": timestep.extras | extras,
        },
        "terminal_obs": {name: timestep.terminal_obs[name] for name in algorithm.terminal_components},
        "metrics": episodes.stack_metrics(timestep.metrics, timestep.reward.shape[0]),
        "sampled": sampled,
    }
    if keeps_carries(algorithm):
        record["carry"] = {name: leaf for name, leaf in state.carry.items() if name != "critic"}
    if algorithm.compat.normalize_while_collecting:
        record["stats"] = {name: stats[name] for name in algorithm.groups if name in stats}
        stats = algorithm.update_obs_stats(stats, timestep.obs, timestep.valid, axis_name)
    return (observe(state, env_state, timestep, carry, hooks), stats), record


def keeps_carries(algorithm: Algorithm) -> bool:
    """Whether a queue of several rollouts begins within one: its memory there must be known."""
    return algorithm.policy.is_recurrent and not float(algorithm.queue).is_integer()


def _ends(algorithm: Algorithm, params: dict, stats: dict, obs: Obs) -> dict[str, Callable]:
    """``ends``: ``env_state -> bool[B]``, what reward hooks say of the end of episodes, if they say something."""
    hooks = [hook.ends for hook in algorithm.reward_hooks if hook.ends is not None]
    if not hooks:
        return {}
    return {
        "ends": lambda env_state: functools.reduce(
            jnp.logical_or, [end(params, stats, obs, env_state) for end in hooks]
        )
    }


def finish(
    algorithm: Algorithm,
    train_state: TrainState,
    start: RolloutState,
    end: RolloutState,
    stats: dict,
    outputs: dict,
    axis_name: str | None,
    *,
    data: dict | None = None,
    key: Array | None = None,
) -> tuple[TrainState, RolloutState, Rollout, dict]:
    """What takes one batched pass instead of one a step: values, bootstraps, rewards, episode sums, the log.

    Args:
        start, end: the state before the first and after the last step.
        stats: statistics after the last step.
        outputs: stacked records of ``one_step``.
        data, key: as in ``collect``; only hooks need them.
    """
    record = outputs["transition"]
    used = train_state.stats
    if algorithm.compat.normalize_while_collecting:  # one set of statistics for each step: [T, 1, *shape]
        used = used | jax.tree.map(lambda x: x[:, None], outputs["stats"])

    def pack(stats, obs):
        return algorithm.pack(stats, obs, groups=("critic",))

    total, record, stats, log = reward_hooks(algorithm, train_state, data, key, outputs, end, stats, axis_name)
    sums, discounted, episode_log = episodes.accumulate(
        start.episode, start.discounted, record, outputs["metrics"], algorithm.config.gamma, total
    )
    stats, reward = normalize_rewards(algorithm, stats, total, record["valid"], episode_log["discounted"], axis_name)
    reset = jnp.concatenate([start.reset[None], record["done"][:-1]])
    value, carries = algorithm.value(train_state.params, pack(used, record["obs"]), start.carry, reset)
    bootstrap = _terminal_values(algorithm, train_state.params, pack(used, outputs["terminal_obs"]), carries)
    end = end.replace(carry=end.carry | last(carries, reset))
    last_value, end = _last_value(algorithm, train_state.params, pack(stats, end.env.env.obs), end)
    drawn = outputs["sampled"] if algorithm.compat.sample_log_prob else record["action"]
    steps = Transition(
        **(record | {"reward": reward}),
        log_prob=losses.log_prob(drawn, record["mean"], record["std"]),
        value=value,
        bootstrap=jnp.where(record["timeout"], bootstrap, 0.0),
        reset=reset,
    )
    rollout = Rollout(steps=steps, carry0=start.carry, last_value=last_value, stats=used)
    if keeps_carries(algorithm):
        rollout = rollout.replace(carries=outputs["carry"] | _before(start.carry, carries))
    end = end.replace(episode=sums, discounted=discounted)
    return train_state.replace(stats=stats), end, rollout, episodes.summarize(record, episode_log, axis_name) | log


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


def _before(first: dict, after: dict) -> dict:
    """The carry before every step from those after every step, for the memories that ``after`` has."""
    return {
        name: jax.tree.map(lambda start, rest: jnp.concatenate([start[None], rest[:-1]]), first[name], leaves)
        for name, leaves in after.items()
    }
