"""Whole episodes of a policy as one compiled program, with all that environment 0 showed."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from strl_jax.algorithms.base import Algorithm
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.runners.evaluation import Evaluation, advance, begin, goes_on, summarize
from strl_jax.types import Array
from strl_jax.viewer.recording import SHOWN, CommandedRecording, Recording, records

LONGEST = 100_000  # steps of environment 0 that are kept
SETTLED = 1.0  # s after which a robot's velocity counts as the one that it has found


@dataclass(frozen=True)
class Roll:
    """Episodes, one of each environment.

    Attributes:
        numbers: those of ``evaluation.summarize``; of each group ``[G]`` if the episodes are in groups.
        velocity: ``[G, 3]``, mean velocity of each group's robots after the first second; NaN: none got so far,
            or the environment has no robots.
        trace: of environment 0 up to its end, or its first 100000 steps, name -> ``[T, ...]``: ``reward``,
            ``action`` and what its steps showed.
    """

    numbers: dict[str, np.ndarray]
    velocity: np.ndarray
    trace: dict[str, np.ndarray]


@struct.dataclass
class _Moved:
    """Sums over the first episode after it has settled."""

    velocity: Array  # [B, 3]
    steps: Array  # [B]


def make_roll(
    env: EpisodeEnv, algorithm: Algorithm, num_envs: int, groups: int | None = None
) -> Callable[[dict, dict, Array, Array | None], Roll]:
    """``(variables, stats, key, commands) -> Roll``: the episodes of ``evaluation.make_evaluate`` for the same key.

    Args:
        env: its ``episode_length`` is the time limit.
        num_envs: environments, each one episode.
        groups: summarise so many groups of them, one after the other, by themselves; None: all of them as one.

    ``commands`` is ``[num_envs, 3]`` for legged robots; None: they are those of training.
    """
    fair = env.evaluated()
    scores = fair.env.scores

    @jax.jit
    def run(variables: dict, stats: dict, key: Array, commands: Array | None):
        inner = Recording(fair.env) if commands is None else CommandedRecording(fair.env, commands, env.episode_length)
        keys = jax.random.split(key, num_envs)
        loop, moved, trace = _episodes(replace(fair, env=inner), algorithm, variables, stats, keys)
        parts = (loop.sums, loop.valid, loop.survived, moved)
        grouped = jax.tree.map(lambda x: x.reshape(groups or 1, -1, *x.shape[1:]), parts)
        numbers = jax.vmap(lambda *part: summarize(*part, scores=scores, axis_name=None))(*grouped[:3])
        velocity = grouped[3].velocity.sum(1) / grouped[3].steps.sum(1)[:, None]
        return numbers, velocity, trace, loop.sums.length[0]

    def roll(variables: dict, stats: dict, key: Array, commands: Array | None = None) -> Roll:
        numbers, velocity, trace, length = jax.device_get(run(variables, stats, key, commands))
        numbers = numbers if groups else {name: value[0] for name, value in numbers.items()}
        return Roll(numbers, velocity, {name: value[:length] for name, value in trace.items()})

    return roll


def _episodes(env: EpisodeEnv, algorithm: Algorithm, variables: dict, stats: dict, key: Array):
    """The loop's end, the sums of what moved, and environment 0's steps ``[T, ...]``; see ``first_episodes``."""
    start, robots = begin(env, algorithm, key), records(env.env.env)
    pool, batch = start.env.env, key.shape[0]

    def step(loop: Evaluation, moved: _Moved):
        after, timestep, mean = advance(env, algorithm, variables, stats, pool, loop)
        shown = timestep.extras[SHOWN]
        if robots:
            counts = loop.running & timestep.valid & (loop.step * env.env.dt >= SETTLED)
            moved = _Moved(moved.velocity + jnp.where(counts[:, None], shown["velocity"], 0.0), moved.steps + counts)
        return after, moved, jax.tree.map(lambda x: x[0], {"reward": timestep.reward, "action": mean, **shown})

    def write(carry):
        loop, moved, trace = carry
        after, moved, of_first = step(loop, moved)
        rows = jax.tree.map(lambda rows, row: rows.at[loop.step].set(row, mode="drop"), trace, of_first)
        return after, moved, rows

    moved = _Moved(jnp.zeros((batch, 3)), jnp.zeros(batch))
    length = min(env.episode_length, LONGEST)
    trace = jax.tree.map(lambda x: jnp.zeros((length, *x.shape), x.dtype), jax.eval_shape(step, start, moved)[2])
    return jax.lax.while_loop(lambda carry: goes_on(env, carry[0]), write, (start, moved, trace))
