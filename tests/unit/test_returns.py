"""Returns and advantages with the arithmetic written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import SHAPES, make_algorithm

from strl_jax.algorithms import returns
from strl_jax.algorithms.compat import Compat
from strl_jax.algorithms.update import prepare
from strl_jax.types import Rollout, Transition

REWARD, VALUE, LAST = [1.0, 2.0, 4.0], [2.0, 4.0, 6.0], 8.0
GAMMA, LAM = 0.5, 0.5
NO = [False, False, False]
SECOND = [False, True, False]


def column(values):
    """``[T]`` to ``[T, 1]``."""
    return jnp.asarray(values)[:, None]


def gae(done, reward=REWARD, valid=None):
    advantage, return_ = returns.gae(
        column(reward),
        column(VALUE),
        column(done),
        jnp.asarray([LAST]),
        gamma=GAMMA,
        lam=LAM,
        valid=None if valid is None else column(valid),
    )
    return advantage[:, 0], return_[:, 0]


def test_gae_without_end():
    # delta_2 = 4 + 0.5 * 8 - 6 = 2        A_2 = 2
    # delta_1 = 2 + 0.5 * 6 - 4 = 1        A_1 = 1 + 0.25 * 2   = 1.5
    # delta_0 = 1 + 0.5 * 4 - 2 = 1        A_0 = 1 + 0.25 * 1.5 = 1.375
    advantage, return_ = gae(NO)
    np.testing.assert_allclose(advantage, [1.375, 1.5, 2.0])
    np.testing.assert_allclose(return_, [2.0 + 1.375, 4.0 + 1.5, 6.0 + 2.0])


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int32, np.float32])
def test_gae_stops_at_an_end(dtype):
    # delta_1 = 2 - 4 = -2                 A_1 = -2, with nothing of A_2
    # delta_0 = 1 + 0.5 * 4 - 2 = 1        A_0 = 1 + 0.25 * -2 = 0.5
    advantage, _ = gae(np.asarray(SECOND, dtype))
    np.testing.assert_allclose(advantage, [0.5, -2.0, 2.0])


def test_bootstrap_only_where_timeout():
    # 2 + 0.5 * 10 = 7; a value beside a time-out is ignored even if it is not a number
    reward = returns.bootstrap_timeouts(column(REWARD), column(SECOND), column([jnp.nan, 10.0, 30.0]), gamma=GAMMA)
    np.testing.assert_allclose(reward[:, 0], [1.0, 7.0, 4.0])


def test_invalid_step_has_no_advantage():
    # Step 1 is invalid: delta_1 = A_1 = 0 whatever its reward; it is an end, so A_0 = delta_0 = 1.
    advantage, return_ = gae(SECOND, reward=[1.0, jnp.nan, 4.0], valid=[True, False, True])
    np.testing.assert_allclose(advantage, [1.0, 0.0, 2.0])
    np.testing.assert_allclose(return_, [3.0, 4.0, 8.0])


def rollout_with(timeout, valid=(True, True, True)) -> Rollout:
    """The three steps above as a rollout; the second ends, V(terminal observation) = 10."""
    zeros = jnp.zeros((3, 1))
    steps = Transition(
        obs={name: jnp.zeros((3, 1, *shape)) for name, shape in SHAPES.items()},
        action=jnp.zeros((3, 1, 2)),
        log_prob=zeros,
        value=column(VALUE),
        mean=jnp.zeros((3, 1, 2)),
        std=jnp.ones((3, 1, 2)),
        reward=column(REWARD),
        done=column(SECOND),
        timeout=column(timeout),
        bootstrap=column([0.0, 10.0, 0.0]),
        valid=column(valid),
        reset=column(NO),
        masks={},
        extras={},
    )
    return Rollout(steps, {}, jnp.asarray([LAST]), {})


@pytest.mark.parametrize(
    ("compat", "expected"),
    [
        # r_1 = 2 + 0.5 * 10 = 7, A_1 = 7 - 4 = 3, A_0 = 1 + 0.25 * 3 = 1.75
        (Compat(), [2.0 + 1.75, 4.0 + 3.0, 8.0]),
        # r_1 = 2 + 0.5 * V(s_1) = 2 + 0.5 * 4 = 4, A_1 = 4 - 4 = 0, A_0 = 1
        (Compat.st_rl(), [2.0 + 1.0, 4.0 + 0.0, 8.0]),
    ],
    ids=["default", "st_rl"],
)
def test_timeout_is_credited_with(compat, expected):
    batch = prepare(make_algorithm(compat, gamma=GAMMA, lam=LAM), rollout_with(SECOND))
    np.testing.assert_allclose(batch.return_[:, 0], expected)


def test_real_end_is_credited_with_nothing():
    batch = prepare(make_algorithm(gamma=GAMMA, lam=LAM), rollout_with(NO))
    np.testing.assert_allclose(batch.return_[:, 0], [2.0 + 0.5, 4.0 - 2.0, 8.0])


def test_prepare_masks_invalid_steps():
    # Advantages 1, -, 2 of the valid steps: mean 1.5, deviation sqrt((0.25 + 0.25) / 1) = 0.7071068
    batch = prepare(make_algorithm(gamma=GAMMA, lam=LAM), rollout_with(NO, valid=(True, False, True)))
    np.testing.assert_allclose(batch.advantage[::2, 0], [-0.5 / 0.7071068, 0.5 / 0.7071068], rtol=1e-6)
    np.testing.assert_array_equal(batch.weight[:, 0], [1.0, 0.0, 1.0])


def test_normalized_with_ddof_one():
    # mean 2.5, variance (2.25 + 0.25 + 0.25 + 2.25) / 3 = 1.6666667, deviation 1.2909944
    advantage = returns.normalize_advantages(jnp.asarray([[1.0, 2.0], [3.0, 4.0]]))
    expected = [[-1.5 / 1.2909944, -0.5 / 1.2909944], [0.5 / 1.2909944, 1.5 / 1.2909944]]
    np.testing.assert_allclose(advantage, expected, rtol=1e-6)


def test_normalized_without_masked_entries():
    # Of 1, 3: mean 2, deviation sqrt((1 + 1) / 1) = 1.4142136
    advantage = returns.normalize_advantages(
        jnp.asarray([1.0, jnp.nan, 3.0, 1e6]), where=jnp.asarray([True, False, True, False])
    )
    np.testing.assert_allclose(advantage, [-1.0 / 1.4142136, 0.0, 1.0 / 1.4142136, 0.0], rtol=1e-6)


@pytest.mark.parametrize("where", [[False, False], [True, False]])
def test_normalized_with_no_spread_is_zero(where):
    advantage = returns.normalize_advantages(jnp.asarray([5.0, 7.0]), where=jnp.asarray(where))
    np.testing.assert_array_equal(advantage, [0.0, 0.0])


def test_weights_give_the_mean_of_valid_entries():
    weights = returns.weights(jnp.asarray([1.0, 0.0, 1.0, 1.0]))
    np.testing.assert_allclose(weights, [1 / 3, 0.0, 1 / 3, 1 / 3], rtol=1e-6)
    np.testing.assert_array_equal(returns.weights(jnp.zeros(2)), [0.0, 0.0])


def test_weights_over_shards():
    # Shards with 2 and 1 valid entries: each entry weighs 1/3 of the whole, and a mean over 2 shards halves it.
    where = jnp.asarray([[1.0, 1.0], [1.0, 0.0]])
    weights = jax.vmap(lambda w: returns.weights(w, axis_name="env"), axis_name="env")(where)
    np.testing.assert_allclose(weights, [[2 / 3, 2 / 3], [2 / 3, 0.0]], rtol=1e-6)


def test_moments_over_shards():
    advantage = jnp.asarray([[1.0, 2.0], [3.0, 4.0]])
    sharded = jax.vmap(lambda a: returns.normalize_advantages(a, axis_name="env"), axis_name="env")(advantage)
    np.testing.assert_allclose(sharded, returns.normalize_advantages(advantage), rtol=1e-6)
