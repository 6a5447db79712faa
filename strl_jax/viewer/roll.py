"""Whole episodes of a policy as one compiled program, with a trace of environment 0."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from strl_jax.algorithms.base import Algorithm
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.runners.evaluation import Evaluation, advance, begin, goes_on, summarize
from strl_jax.types import Array
from strl_jax.viewer.recording import ENV_RECORD, CommandedEnv, RecordedEnv, can_record

MAX_TRACE = 100_000  # steps of environment 0 in the trace
SETTLING_TIME = 1.0  # s at the beginning of an episode that the mean velocity leaves out


@dataclass(frozen=True)
class Roll:
    """Results of one episode in each environment.

    Attributes:
        numbers: the result of ``evaluation.summarize``; values are ``[G]`` if there are groups.
        velocity: mean vx, vy and yaw rate of the robots of each group after the first second, ``[G, 3]``, m/s, m/s
            and rad/s; NaN if no episode was that long, or if the environment has no robots.
        trace: the episode of environment 0, at most its first 100000 steps, name -> ``[T, ...]``: ``reward``,
            ``action`` and the record of its steps, see ``recording``.
    """

    numbers: dict[str, np.ndarray]
    velocity: np.ndarray
    trace: dict[str, np.ndarray]


def make_roll(
    env: EpisodeEnv, algorithm: Algorithm, num_envs: int, groups: int | None = None
) -> Callable[[dict, dict, Array, Array | None], Roll]:
    """Builds ``(variables, stats, key, commands) -> Roll``, which is compiled at its first call.

    With the same key, and commands of None, the episodes are those of ``evaluation.make_evaluate``.
    ``commands`` is ``[num_envs, 3]`` for legged robots; None: commands are drawn as in training.

    Args:
        env: episodes; ``episode_length`` is the time limit.
        algorithm: the policy, its observation groups and normalisers.
        num_envs: number of environments; each runs one episode.
        groups: number of groups of equal size, consecutive in the environment axis, each with its own summary;
            None: one summary of all environments, and G = 1 for the velocity.
    """
    evaluated = env.evaluated()
    inner = evaluated.env

    @jax.jit
    def run(variables: dict, stats: dict, key: Array, commands: Array | None):
        recorded = RecordedEnv(inner) if commands is None else CommandedEnv(inner, commands, env.episode_length)
        keys = jax.random.split(key, num_envs)
        loop, sums, trace = _episodes(replace(evaluated, env=recorded), algorithm, variables, stats, keys)
        parts = (loop.sums, loop.valid, loop.survived, sums)
        grouped = jax.tree.map(lambda x: x.reshape(groups or 1, -1, *x.shape[1:]), parts)
        numbers = jax.vmap(lambda *part: summarize(*part, scores=inner.scores, axis_name=None))(*grouped[:3])
        moved = grouped[3].sum(1)
        return numbers, moved[:, :3] / moved[:, 3:], trace, loop.sums.length[0]

    def roll(variables: dict, stats: dict, key: Array, commands: Array | None = None) -> Roll:
        numbers, velocity, trace, length = jax.device_get(run(variables, stats, key, commands))
        numbers = numbers if groups else {name: value[0] for name, value in numbers.items()}
        return Roll(numbers, velocity, {name: value[:length] for name, value in trace.items()})

    return roll


def _episodes(env: EpisodeEnv, algorithm: Algorithm, variables: dict, stats: dict, key: Array):
    """Runs the first episode of all environments.

    The loop is that of ``evaluation.first_episodes``, and also records the trace.

    Returns:
        The final loop state; sums ``[B, 4]`` over the first episode of each environment, after the settling time:
        vx, vy, yaw rate and the number of steps; the trace of environment 0 ``[T, ...]``.
    """
    start, has_robots = begin(env, algorithm, key), can_record(env.env.env)
    pool = start.env.env

    def step(loop: Evaluation, sums: Array):
        after, timestep, mean = advance(env, algorithm, variables, stats, pool, loop)
        record = timestep.extras[ENV_RECORD]
        if has_robots:
            counts = loop.running & timestep.valid & (loop.step * env.env.dt >= SETTLING_TIME)
            moved = jnp.pad(record["velocity"], ((0, 0), (0, 1)), constant_values=1.0)
            sums += jnp.where(counts[:, None], moved, 0.0)
        return after, sums, jax.tree.map(lambda x: x[0], {"reward": timestep.reward, "action": mean, **record})

    def record_step(carry):
        loop, sums, trace = carry
        after, sums, row = step(loop, sums)
        trace = jax.tree.map(lambda rows, row: rows.at[loop.step].set(row, mode="drop"), trace, row)
        return after, sums, trace

    sums = jnp.zeros((len(key), 4))
    length = min(env.episode_length, MAX_TRACE)
    trace = jax.tree.map(lambda x: jnp.zeros((length, *x.shape), x.dtype), jax.eval_shape(step, start, sums)[2])
    return jax.lax.while_loop(lambda carry: goes_on(env, carry[0]), record_step, (start, sums, trace))
