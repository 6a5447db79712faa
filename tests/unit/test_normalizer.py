"""Running statistics with the arithmetic written out."""

import jax
import jax.numpy as jnp
import numpy as np
from tiny import make_algorithm, make_outputs, make_rollout_state, make_state

from strl_jax.algorithms.finish import finish
from strl_jax.modules import normalizer
from strl_jax.observations import Segments
from strl_jax.types import RunningStats

X = jnp.asarray([1.0, 3.0])
STATS = RunningStats(jnp.float32(2.0), jnp.float32(9.0), jnp.float32(4.0))


def check(stats, mean, var, count):
    np.testing.assert_allclose(stats.mean, mean, rtol=1e-6)
    np.testing.assert_allclose(stats.var, var, rtol=1e-6)
    np.testing.assert_allclose(stats.count, count)


def test_first_samples_replace_the_start():
    # mean (1 + 3) / 2, variance ((1 - 2)^2 + (3 - 2)^2) / 2
    check(normalizer.update(normalizer.init(), X), 2.0, 1.0, 2)


def test_later_samples_join():
    stats = normalizer.update(normalizer.update(normalizer.init(), X), jnp.asarray([8.0]))
    # of 1, 3, 8: mean 4, variance (9 + 1 + 16) / 3
    check(stats, 4.0, 26.0 / 3.0, 3)


def test_samples_one_by_one_or_together():
    x = 3.0 * jax.random.normal(jax.random.key(0), (12, 2, 3)) + 5.0
    together = normalizer.update(normalizer.init((2, 3)), x)
    apart = normalizer.init((2, 3))
    for part in jnp.split(x, 4):
        apart = normalizer.update(apart, part)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), apart, together)
    np.testing.assert_allclose(together.mean, x.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(together.var, x.var(axis=0), rtol=1e-5)


def test_masked_samples_do_not_count():
    x = jnp.asarray([[1.0, 10.0], [jnp.nan, jnp.inf], [3.0, 30.0]])
    stats = normalizer.update(normalizer.init((2,)), x, where=jnp.asarray([True, False, True]))
    check(stats, [2.0, 20.0], [1.0, 100.0], 2)


def test_no_valid_sample_changes_nothing():
    for start in (STATS, normalizer.init()):
        new = normalizer.update(start, jnp.full(2, jnp.nan), where=jnp.zeros(2, bool))
        check(new, start.mean, start.var, start.count)


def test_until():
    check(normalizer.update(STATS, X, until=4), 2.0, 9.0, 4)
    # 4 samples of variance 9 and 2 of variance 1 about the same mean: (4 * 9 + 2 * 1) / 6
    check(normalizer.update(STATS, X, until=5), 2.0, 38.0 / 6.0, 6)


def test_normalize_and_back():
    # (5 - 2) / (3 + 0.5)
    y = normalizer.normalize(STATS, jnp.float32(5.0), eps=0.5)
    np.testing.assert_allclose(y, 3.0 / 3.5, rtol=1e-6)
    np.testing.assert_allclose(normalizer.denormalize(STATS, y, eps=0.5), 5.0, rtol=1e-6)


def test_normalize_clipped():
    # (5 - 2) / sqrt(9 + 7) = 0.75; (-30 - 2) / 4 = -8, clipped
    y = normalizer.normalize_clipped(STATS, jnp.asarray([5.0, -30.0]), eps=7.0, clip=2.0)
    np.testing.assert_allclose(y, [0.75, -2.0], rtol=1e-6)


def test_l2_normalize():
    # 3 / 5, 4 / 5; a zero vector stays zero
    y = normalizer.l2_normalize(jnp.asarray([[3.0, 4.0], [0.0, 0.0]]))
    np.testing.assert_allclose(y, [[0.6, 0.8], [0.0, 0.0]], rtol=1e-6)


def test_one_statistic_over_shards():
    x = jnp.asarray([[1.0, 3.0], [8.0, 100.0]])
    where = jnp.asarray([[True, True], [True, False]])

    def shard(x, where):
        return normalizer.update(normalizer.init(), x, where=where, axis_name="env")

    stats = jax.vmap(shard, axis_name="env")(x, where)
    # 1, 3 and 8 as above, the same on both
    check(stats, [4.0, 4.0], [26.0 / 3.0] * 2, [3, 3])


def test_group_is_packed_in_the_order_of_its_segments():
    segments = Segments(("b", "a"), ((2,), ()))
    stats = {"a": RunningStats(jnp.float32(1.0), jnp.float32(4.0), jnp.float32(9.0))}
    obs = {"a": jnp.asarray([5.0]), "b": jnp.asarray([[7.0, 8.0]])}
    # b has no statistics; a is (5 - 1) / (2 + 0)
    np.testing.assert_allclose(normalizer.pack_group(segments, stats, obs, 0.0), [[7.0, 8.0, 2.0]])
    assert obs["a"] == 5.0


def test_rewards_are_divided_by_the_deviation_of_their_return():
    algorithm = make_algorithm(normalize_rewards=True, normalized_reward_clamp_value=1.0, gamma=0.5)
    state, end = make_state(algorithm), make_rollout_state(2, 2)
    start = end.replace(discounted=jnp.asarray([0.0, 8.0]))
    outputs = make_outputs(algorithm, state, 1, 2, 2, jnp.ones((2, 2), bool))
    outputs = outputs.replace(
        reward=jnp.asarray([[1.0, -1.0], [0.5, 3.0]]),
        done=jnp.zeros((2, 2), bool),
        valid=jnp.asarray([[True, True], [True, False]]),
    )
    run = jax.jit(lambda state, *args: finish(algorithm, state, *args[:2], state.stats, args[2]))
    new, after, data, metrics = run(state, start, end, outputs)
    # discounted: 1, 0.5 * 8 - 1 = 3; 0.5 * 1 + 0.5 = 1, (0.5 * 3 + 0 = 1.5, not valid)
    np.testing.assert_allclose(after.discounted, [1.0, 1.5], rtol=1e-6)
    # of 1, 3, 1: mean 5 / 3, variance (4 / 9 + 16 / 9 + 4 / 9) / 3, deviation 0.9428090
    check(new.stats["reward"], 5.0 / 3.0, 8.0 / 9.0, 3)
    expected = [[1.0, -1.0], [0.5 / 0.9428090, 0.0]]  # 1 / 0.94 is clipped
    np.testing.assert_allclose(data.steps.reward, expected, rtol=1e-6)
    # The log keeps the environment's numbers: (1 - 1 + 0.5 + 3) / 3 valid steps
    np.testing.assert_allclose(metrics.mean_reward_each_timestep, 3.5 / 3, rtol=1e-6)
