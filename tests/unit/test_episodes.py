"""Sums of episodes through a rollout, and the window of the last ones."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from strl_jax.algorithms import episodes
from strl_jax.sharding import AXIS, make_mesh, shard_jit
from strl_jax.types import EpisodeSums, StepRecord

START = EpisodeSums(jnp.asarray([10.0, 0.0]), jnp.asarray([5, 0], jnp.int32), {"height": jnp.asarray([2.0, 0.0])})


def make_record(**fields) -> StepRecord:
    """A record with these fields and nothing in the others."""
    return StepRecord(**(dict.fromkeys(StepRecord.__dataclass_fields__) | fields))


def test_sums_by_hand():
    record = make_record(
        reward=jnp.asarray([[1.0, 1.0], [2.0, 1.0], [4.0, 1.0]]),
        done=jnp.asarray([[False, False], [True, False], [False, True]]),
        valid=jnp.asarray([[True, True], [True, True], [True, False]]),
        metrics=jnp.full((3, 2, 1), 0.5),
    )
    arguments = (START, jnp.asarray([8.0, 0.0]), record, 0.5, record.reward)
    new, discounted, log = jax.jit(lambda: episodes.accumulate(*arguments))()
    # Environment 0: 10 + 1, + 2, then anew 4; environment 1: 1, 2, 3, then broken and anew.
    np.testing.assert_allclose(log.reward, [[11.0, 1.0], [13.0, 2.0], [4.0, 3.0]])
    np.testing.assert_array_equal(log.length, [[6, 1], [7, 2], [1, 3]])
    # 8 / 2 + 1 = 5, 5 / 2 + 2 = 4.5, anew 4; 1, 1.5, 1.75
    np.testing.assert_allclose(log.discounted, [[5.0, 1.0], [4.5, 1.5], [4.0, 1.75]])
    # The broken episode is none that has finished.
    np.testing.assert_array_equal(log.finished, [[False, False], [True, False], [False, False]])
    np.testing.assert_allclose(log.totals["height"], 2.0 + 2 * 0.5)
    np.testing.assert_allclose(new.reward, [4.0, 0.0])
    np.testing.assert_array_equal(new.length, [1, 0])
    np.testing.assert_allclose(new.metrics["height"], [0.5, 0.0])
    np.testing.assert_allclose(discounted, [4.0, 0.0])


def window(shards: int, rewards: np.ndarray):
    """``episode_reward`` without NaN, of ``rewards[T, B]`` that all end an episode."""
    reward, ones = jnp.asarray(rewards, jnp.float32), jnp.ones(rewards.shape, bool)
    log = episodes.EpisodeLog(reward, ones.astype(jnp.int32), reward, ones, {})
    record = make_record(valid=ones, reward=reward, std=jnp.ones((*rewards.shape, 1)))
    summarize = shard_jit(
        lambda record, log: episodes.summarize(record, log, {}, AXIS),
        make_mesh(jax.devices()[:shards]),
        in_specs=(P(None, AXIS), P(None, AXIS)),
        out_specs=P(),
    )
    values = np.asarray(summarize(record, log).episode_reward)
    assert values.shape == (shards * episodes.WINDOW,)
    return values[~np.isnan(values)].tolist()


def test_the_last_episodes_oldest_first():
    assert window(1, np.arange(6.0).reshape(3, 2)) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert window(1, np.arange(250.0).reshape(125, 2)) == list(np.arange(150.0, 250.0))


def test_the_newest_of_every_shard_come_last():
    # Shard 0 has environment 0 (0, 2, 4), shard 1 environment 1 (1, 3, 5).
    assert window(2, np.arange(6.0).reshape(3, 2)) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
