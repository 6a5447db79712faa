"""Episode sums and log metrics of a rollout, in one pass after its steps."""

import jax
import jax.numpy as jnp
from flax import struct

from strl_jax.algorithms.returns import UNROLL
from strl_jax.sharding import all_gather, psum
from strl_jax.types import Array, EpisodeSums, Metrics, StepRecord

LEARNED = "Train/mean_learned_reward_each_timestep"
WINDOW = 100  # most finished episodes of a shard in the log of an iteration; st_rl's window has this length


def stack_metrics(metrics: dict[str, Array], batch: int) -> Array:
    """Metrics ``name -> [B]`` as one array ``[B, K]`` by sorted names, so that a step writes once."""
    if not metrics:
        return jnp.zeros((batch, 0))
    return jnp.stack([metrics[name] for name in sorted(metrics)], axis=-1)


@struct.dataclass
class EpisodeLog:
    """Episode sums of a rollout."""

    reward: Array  # [T, B], sum after each step and before its reset
    length: Array  # int32[T, B], likewise
    discounted: Array  # [T, B], likewise
    finished: Array  # bool[T, B], a valid step that ended its episode
    totals: dict[str, Array]  # metric -> sum over all steps of finished episodes, []


def accumulate(
    sums: EpisodeSums, discounted: Array, record: StepRecord, gamma: float, total: Array
) -> tuple[EpisodeSums, Array, EpisodeLog]:
    """Sums of the running episodes through T steps.

    Args:
        sums: before the first step, leaves ``[B]``.
        discounted: ``[B]``, running discounted return before the first step.
        record: leaves ``[T, B, ...]``.
        gamma: discount.
        total: ``[T, B]``, the reward after the hooks, before normalisation; only the discounted return uses it,
            the other sums use the environment's reward.

    Returns:
        Sums and discounted return after the last step, and the log.
    """
    names = sorted(sums.metrics)
    finished = record.done & record.valid
    totals = stack_metrics(sums.metrics, record.done.shape[1])

    def step(carry, inputs):
        reward, length, running, discounted, sum_finished = carry
        r, learned, metric, done, end = inputs
        reward, length, running, discounted = reward + r, length + 1, running + metric, gamma * discounted + learned
        sum_finished = sum_finished + jnp.where(end[:, None], running, 0.0)
        after = jax.tree.map(
            lambda x: jnp.where(done.reshape(done.shape + (1,) * (x.ndim - 1)), jnp.zeros_like(x), x),
            (reward, length, running, discounted),
        )
        return (*after, sum_finished), (reward, length, discounted)

    start = (sums.reward, sums.length, totals, discounted, jnp.zeros_like(totals))
    inputs = (record.reward, total, record.metrics, record.done, finished)
    (reward, length, running, discounted, total), log = jax.lax.scan(step, start, inputs, unroll=UNROLL)
    new = EpisodeSums(reward, length, {name: running[:, i] for i, name in enumerate(names)})
    total = total.sum(axis=0)
    return new, discounted, EpisodeLog(*log, finished, {name: total[i] for i, name in enumerate(names)})


def summarize(
    record: StepRecord, log: EpisodeLog, hooks: dict[str, Array], axis_name: str | None, learned: Array | None = None
) -> Metrics:
    """The log metrics of a rollout, over all shards.

    Args:
        hooks: metrics of the hooks, under their full names.
        learned: ``[T, B]``, the reward that the update learns from; None: it is the environment's.
    """

    def interleave(last: Array) -> Array:  # by age, so that the newest of every shard come last
        return all_gather(last, axis_name).reshape(-1, WINDOW).T.reshape(-1)

    valid, finished = record.valid, log.finished
    learned_sum = {} if learned is None else {LEARNED: jnp.sum(jnp.where(valid, learned, 0.0))}
    total, number, episodes, steps, reward, std, metrics, learned_sum = psum(
        (
            jnp.sum(valid, dtype=jnp.float32),
            jnp.float32(valid.size),
            jnp.sum(finished, dtype=jnp.float32),
            jnp.sum(jnp.where(finished, log.length, 0), dtype=jnp.float32),
            jnp.sum(record.reward),
            jnp.sum(record.std.mean(axis=-1)),
            log.totals,
            learned_sum,
        ),
        axis_name,
    )
    return Metrics(
        mean_reward_each_timestep=reward / jnp.maximum(total, 1.0),
        mean_std=std / number,
        invalid=number - total,
        finished=episodes,
        finished_steps=steps,
        episode_metrics=metrics,
        episode_reward=interleave(_last(finished, log.reward)),
        episode_length=interleave(_last(finished, log.length.astype(jnp.float32))),
        hooks=hooks | {name: value / jnp.maximum(total, 1.0) for name, value in learned_sum.items()},
    )


def _last(finished: Array, values: Array) -> Array:
    """The last ``WINDOW`` of ``values[T, B]`` where ``finished``, oldest first, NaN in front."""
    flags = finished.reshape(-1)
    after = jnp.sum(flags) - jnp.cumsum(flags)  # number of finished episodes that come later
    slot = jnp.where(flags & (after < WINDOW), WINDOW - 1 - after, WINDOW)
    return jnp.full(WINDOW, jnp.nan).at[slot].set(values.reshape(-1), mode="drop")
