"""Collecting experience: choose actions, step the environment, store; as one scan or as a loop on the host."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from strl_jax.algorithms.base import Algorithm
from strl_jax.algorithms.episodes import stack_metrics
from strl_jax.algorithms.finish import finish
from strl_jax.types import Array, EpisodeState, Metrics, Obs, Rollout, RolloutState, StepRecord, TimeStep, TrainState


@struct.dataclass
class Drawn:
    """The random numbers of a rollout."""

    noise: Array  # [T, B, A], standard normal
    reset: Array  # [T, B], uniform in [0, 1), selects states from the pool
    masks: dict[str, Array]  # stage -> bool[T, B], see Policy
    hook: Any  # of the act hook, leaves [T, B, ...]


@struct.dataclass
class Decision:
    """What the policy and the act hook decide before the environment's step."""

    action: Array  # [B, A], for the environment
    sampled: Array  # [B, A], the policy's action, before the act hook
    mean: Array  # [B, A]
    std: Array  # [B, A]
    carry: Any  # memories after this step
    extras: dict[str, Array]  # of the act hook, [B, ...]
    hook: Any  # state of the act hook, leaves [B, ...]


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
) -> tuple[TrainState, RolloutState, Rollout, Metrics]:
    """``num_steps`` steps of all environments as one ``lax.scan``.

    Args:
        env_step: ``(episode state, action, draw) -> episode state, TimeStep``, where
            ``draw[B]`` is uniform in [0, 1) and selects reset states. Where a reward hook
            ends episodes, it also gets the keyword ``ends`` of ``EpisodeEnv.step``.
        train_state: policy and statistics; only the statistics may change (those of the
            rewards; with ``compat.normalize_while_collecting`` those of the observations too).
        state: leaves ``[B, ...]``.
        key: PRNG key of this shard.
        data: constant data of the hooks: a teacher's weights, an expert's motion.
        axis_name: mapped axis of the shards, over which statistics and metrics are summed.

    Returns:
        train state, rollout state, rollout and metrics.
    """

    def step(loop, drawn):
        return one_step(algorithm, env_step, train_state, *loop, drawn, axis_name, data=data)

    drawn = draw(algorithm, key, num_steps, state.reset.shape[0])
    (end, stats), record = jax.lax.scan(step, (state, train_state.stats), drawn)
    return finish(algorithm, train_state, state, end, stats, record, axis_name, data=data, key=key)


def make_collect_host(algorithm: Algorithm, env_step: Callable) -> Callable:
    """``collect`` for a simulator that JAX cannot trace: a Python loop around two compiled halves.

    Args:
        env_step: as in ``collect``, called with concrete arrays.

    Returns:
        ``(train_state, state, key, num_steps, data=None) -> train state, rollout state, rollout, metrics``.
    """
    before, after = (jax.jit(functools.partial(half, algorithm)) for half in (choose, take_in))
    finish_ = jax.jit(functools.partial(finish, algorithm), static_argnames="axis_name")

    def collect(train_state: TrainState, state: RolloutState, key: Array, num_steps: int, data: dict | None = None):
        end, stats, records = state, train_state.stats, []
        drawn = draw(algorithm, key, num_steps, state.reset.shape[0])
        for index in range(num_steps):
            now = jax.tree.map(lambda x, index=index: x[index], drawn)
            decision = before(train_state, end, stats, now, data)
            ends = termination(algorithm, train_state.params, stats, algorithm.observe(end.hooks, end.obs))
            stepped = env_step(end.env, decision.action, now.reset, **ends)
            (end, stats), record = after(train_state, end, stats, now, decision, *stepped)
            records.append(record)
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *records)
        return finish_(train_state, state, end, stats, stacked, data=data, key=key)

    return collect


def draw(algorithm: Algorithm, key: Array, num_steps: int, batch: int) -> Drawn:
    """All random numbers of a rollout at once."""
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
    axis_name: str | None = None,
    *,
    data: dict | None = None,
) -> tuple[tuple[RolloutState, dict], StepRecord]:
    """``choose``, the environment's step, ``take_in``: the body of the scan."""
    decision = choose(algorithm, train_state, state, stats, drawn, data)
    ends = termination(algorithm, train_state.params, stats, algorithm.observe(state.hooks, state.obs))
    stepped = env_step(state.env, decision.action, drawn.reset, **ends)
    return take_in(algorithm, train_state, state, stats, drawn, decision, *stepped, axis_name)


def choose(
    algorithm: Algorithm,
    train_state: TrainState,
    state: RolloutState,
    stats: dict,
    drawn: Drawn,
    data: dict | None = None,
) -> Decision:
    """The half of a step before the environment: the policy samples, the act hook may replace the action.

    Args:
        state: leaves ``[B, ...]``.
        stats: statistics that normalise the observations.
        drawn: random numbers of this step, leaves ``[B, ...]``.
    """
    obs, policy, hook = algorithm.observe(state.hooks, state.obs), algorithm.policy, algorithm.act_hook
    groups = algorithm.pack(stats, obs, groups=algorithm.act_groups)
    variables = train_state.params["policy"]
    mean, std, carry = policy.apply(variables, groups, state.carry, state.reset, drawn.masks, method="act")
    sampled = mean if policy.deterministic else mean + std * drawn.noise
    action, extras, hook_state = sampled, {}, {}
    if hook is not None:
        action, extras, hook_state = hook.act(data, state.hooks[hook.name], obs, sampled, drawn.hook)
    return Decision(action, sampled, mean, std, carry, extras, hook_state)


def take_in(
    algorithm: Algorithm,
    train_state: TrainState,
    state: RolloutState,
    stats: dict,
    drawn: Drawn,
    decision: Decision,
    env_state: EpisodeState,
    timestep: TimeStep,
    axis_name: str | None = None,
) -> tuple[tuple[RolloutState, dict], StepRecord]:
    """The half of a step after the environment: the next state and statistics, and this step's record.

    Memories are cleared before the first step of an episode.
    """
    hook, hooks, kept = algorithm.act_hook, algorithm.observed(state.hooks, timestep), {}
    terminal_obs = algorithm.observe(state.hooks, timestep.terminal_obs)
    if hook is not None:
        hooks = hooks | {hook.name: hook.observe(decision.hook, timestep, train_state.iteration, drawn.hook)}
    if algorithm.keeps_carries:
        kept["carry"] = {name: leaf for name, leaf in state.carry.items() if name != "critic"}
    if algorithm.compat.normalize_while_collecting:
        kept["stats"] = {name: stats[name] for name in algorithm.groups if name in stats}
        obs = algorithm.observe(hooks, timestep.obs)
        stats = algorithm.update_obs_stats(stats, obs, timestep.valid, axis_name)
    record = StepRecord(
        obs=algorithm.observe(state.hooks, state.obs),
        action=decision.action,
        sampled=decision.sampled,
        mean=decision.mean,
        std=decision.std,
        reward=timestep.reward,
        done=timestep.done,
        timeout=timestep.timeout,
        valid=timestep.valid,
        masks=drawn.masks,
        extras=timestep.extras | decision.extras,
        terminal_obs=_select(terminal_obs, algorithm.terminal_components),
        metrics=stack_metrics(timestep.metrics, timestep.reward.shape[0]),
        broken=timestep.broken,
        **kept,
    )
    state = state.replace(env=env_state, carry=decision.carry, reset=timestep.done, hooks=hooks)
    return (state, stats), record


def _select(values: dict[str, Array], names: tuple[str, ...]) -> dict[str, Array]:
    """The values of these names; raises ``ValueError`` if one is missing."""
    for name in names:
        if name not in values:
            raise ValueError(
                f"a hook or the critic needs the component {name!r}; there is {', '.join(values) or 'none'}"
            )
    return {name: values[name] for name in names}


def termination(algorithm: Algorithm, params: dict, stats: dict, obs: Obs) -> dict[str, Callable]:
    """``{"ends": env_state -> bool[B]}`` if a reward hook ends episodes, else ``{}``."""
    hooks = [hook for hook in algorithm.reward_hooks if hook.ends_episodes]
    if not hooks:
        return {}

    def ends(env_state):
        return functools.reduce(jnp.logical_or, [hook.ends(params, stats, obs, env_state) for hook in hooks])

    return {"ends": ends}
