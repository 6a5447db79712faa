"""Evaluation as one compiled program: one episode of each fresh environment with deterministic actions."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import struct
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from strl_jax.algorithms.base import Algorithm
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.sharding import AXIS, psum, shard_jit
from strl_jax.types import Array, EnvState, EpisodeState, EpisodeSums, TimeStep, TrainState


@struct.dataclass
class Evaluation:
    """State of the evaluation loop: environments, and the sums of their first episodes."""

    env: EpisodeState
    carry: dict  # policy carry, leaves [B, ...]
    hooks: dict  # state of the observation hook, leaves [B, ...]
    reset: Array  # bool[B], set the carry to zero before the next step
    running: Array  # bool[B], the first episode has not ended
    valid: Array  # bool[B], no invalid step so far
    survived: Array  # bool[B], the first episode ended with a time-out
    sums: EpisodeSums  # of the first episode
    step: Array  # int32[]


def make_evaluate(
    env: EpisodeEnv, algorithm: Algorithm, mesh: Mesh, num_envs: int
) -> Callable[[TrainState, Array], dict[str, Array]]:
    """Builds the compiled program ``(train_state, key) -> results``, which does not change the train state.

    Every environment is reset and runs one episode with the mean action. The episodes
    depend on ``key``, not on the number of devices. The program stops when all have ended.

    Args:
        env: its ``episode_length`` is the time limit.
        num_envs: environments of all shards together.

    Returns:
        A function that returns float32 scalars:
            ``mean_return, std_return, min_return, max_return``; std is that of the population;
            the same for ``length``, in steps;
            ``survival``: fraction of episodes that ended with a time-out, by the time limit or the environment;
            ``metric/NAME``: mean over episodes of the metric's mean over steps, and the environment's ``scores``;
            ``invalid``: number of episodes cut by an invalid step, see ``EpisodeEnv``. The other scalars exclude
            these episodes, and are NaN without a valid episode.

    Raises:
        ValueError: ``num_envs`` is not a positive multiple of the number of devices.
    """
    shards = mesh.devices.size
    if num_envs < 1 or num_envs % shards:
        raise ValueError(f"evaluation with {num_envs} environments: must be a positive multiple of {shards} devices")

    fair = env.evaluated()

    def evaluate(train_state: TrainState, key: Array):
        keys = jax.random.split(key, num_envs).reshape(shards, -1)[jax.lax.axis_index(AXIS)]
        current = fair.at_iteration(train_state.iteration)
        result = first_episodes(current, algorithm, train_state, keys)
        return summarize(*result, scores=current.env.scores, axis_name=AXIS)

    return shard_jit(evaluate, mesh, in_specs=(P(), P()), out_specs=P())


def first_episodes(
    env: EpisodeEnv, algorithm: Algorithm, train_state: TrainState, key: Array
) -> tuple[EpisodeSums, Array, Array]:
    """Runs one episode of each environment. Without collectives: shards can stop after different steps.

    Args:
        key: PRNG ``key[B]``, one for each environment.

    Returns:
        Sums over each episode, ``valid[B]``: it has no invalid step, and ``survived[B]``: it ended with a time-out.
    """
    start = begin(env, algorithm, key)
    pool = start.env.env

    def step(loop: Evaluation) -> Evaluation:
        return advance(env, algorithm, train_state.params["policy"], train_state.stats, pool, loop)[0]

    loop = jax.lax.while_loop(lambda loop: goes_on(env, loop), step, start)
    return loop.sums, loop.valid, loop.survived


def begin(env: EpisodeEnv, algorithm: Algorithm, key: Array) -> Evaluation:
    """The loop state at the start of the first episodes, for ``key[B]``."""
    state, metrics = env.init(key, random_lengths=False)
    zeros, everyone = jnp.zeros(key.shape[0]), jnp.ones(key.shape[0], bool)
    return Evaluation(
        env=state,
        carry=algorithm.policy.initial_carry(key.shape[0], key[0]),
        hooks=algorithm.init_hooks(jax.random.fold_in(key[0], 2), key.shape[0]),
        reset=everyone,
        running=everyone,
        valid=everyone,
        survived=~everyone,
        sums=EpisodeSums(zeros, zeros.astype(jnp.int32), metrics),
        step=jnp.int32(0),
    )


def goes_on(env: EpisodeEnv, loop: Evaluation) -> Array:
    """bool[]: at least one environment is still in its first episode."""
    return (loop.step < env.episode_length) & loop.running.any()


def advance(
    env: EpisodeEnv, algorithm: Algorithm, variables: dict, stats: dict, pool: EnvState, loop: Evaluation
) -> tuple[Evaluation, TimeStep, Array]:
    """One step of all environments with the mean action.

    Args:
        variables, stats: parameters and statistics of the policy.
        pool: the first states. Environments that have ended restart from them, so that no second reset is compiled;
            their further steps are not counted.

    Returns:
        The next loop state, the step's result, and the actions ``[B, A]``.
    """
    obs = algorithm.observe(loop.hooks, loop.env.env.obs)
    groups = algorithm.pack(stats, obs, groups=algorithm.act_groups)
    mean, _, carry = algorithm.policy.apply(variables, groups, loop.carry, loop.reset, method="act")
    episode, timestep = env.step(loop.env, mean, pool, jnp.zeros(len(loop.running)))
    after = Evaluation(
        env=episode,
        carry=carry,
        hooks=algorithm.observed(loop.hooks, timestep),
        reset=timestep.done,
        running=loop.running & ~timestep.done,
        valid=loop.valid & (timestep.valid | ~loop.running),
        survived=loop.survived | (timestep.timeout & loop.running),
        sums=_add(loop.sums, timestep.reward, timestep.metrics, loop.running),
        step=loop.step + 1,
    )
    return after, timestep, mean


def summarize(
    sums: EpisodeSums, valid: Array, survived: Array, *, scores: Callable, axis_name: str | None
) -> dict[str, Array]:
    """Results of ``make_evaluate`` from the episodes ``[B]`` of each shard."""
    length = sums.length.astype(jnp.float32)
    number = psum(jnp.sum(valid, dtype=jnp.float32), axis_name)

    def mean(x: Array) -> Array:
        return psum(jnp.sum(jnp.where(valid, x, 0.0)), axis_name) / number

    def largest(x: Array) -> Array:
        top = jnp.max(jnp.where(valid, x, -jnp.inf))
        top = top if axis_name is None else jax.lax.pmax(top, axis_name)
        return jnp.where(number > 0, top, jnp.nan)

    result = {"invalid": psum(jnp.sum(~valid, dtype=jnp.float32), axis_name), "survival": mean(survived)}
    for name, x in (("return", sums.reward), ("length", length)):
        middle = mean(x)
        result |= {
            f"mean_{name}": middle,
            f"std_{name}": jnp.sqrt(mean(jnp.square(x - middle))),
            f"min_{name}": -largest(-x),
            f"max_{name}": largest(x),
        }
    by_episode = {name: mean(x / length) for name, x in sums.metrics.items()}
    by_step = {name: mean(x) / mean(length) for name, x in sums.metrics.items()}
    return result | {f"metric/{name}": x for name, x in (by_episode | scores(by_step)).items()}


def _add(sums: EpisodeSums, reward: Array, metrics: dict[str, Array], running: Array) -> EpisodeSums:
    """Adds a step to the sums of the environments with ``running[B]``."""
    step = EpisodeSums(reward, jnp.ones_like(sums.length), metrics)
    return jax.tree.map(lambda total, x: total + jnp.where(running, x, 0), sums, step)
