"""Which samples each update sees."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from strl_jax.algorithms import minibatch
from strl_jax.types import Batch

T, B = 6, 5


def test_plan_covers_every_sample_once_per_epoch():
    plan = minibatch.plan(jax.random.key(0), 24, num_mini_batches=4, num_epochs=3)
    assert plan.shape == (3 * 4, 24 // 4)
    assert plan.dtype == jnp.int32
    for epoch in plan.reshape(3, 24):
        np.testing.assert_array_equal(np.sort(epoch), np.arange(24))


@pytest.mark.parametrize(("total", "fraction"), [(8, 0.5), (24, 0.4), (5, 0.01), (24 * 32768, 0.25), (786432, 1.0)])
def test_a_share_is_spread_over_all(total, fraction):
    """Also where number * total is more than 32 bits hold."""
    rows = minibatch.spread(total, fraction)
    assert rows.dtype == np.int32
    assert len(rows) == max(1, int(fraction * total))
    steps = np.diff([*rows.tolist(), total])  # the last row's gap reaches to the end
    assert rows[0] == 0
    assert set(steps) <= {total // len(rows), -(-total // len(rows))}


def test_epochs_differ_by_default():
    first, second = minibatch.plan(jax.random.key(0), 24, 4, 2).reshape(2, 24)
    assert (first != second).any()
    assert (first != np.arange(24)).any()


def test_reused_permutation():
    plan = minibatch.plan(jax.random.key(0), 24, 4, 3, reuse=True).reshape(3, 4, 6)
    np.testing.assert_array_equal(plan[1], plan[0])
    np.testing.assert_array_equal(plan[2], plan[0])
    np.testing.assert_array_equal(np.sort(plan[0].ravel()), np.arange(24))


def test_keys_shuffle():
    one, other = (minibatch.plan(jax.random.key(seed), 24, 4, 1) for seed in (0, 1))
    assert (one != other).any()


@pytest.mark.parametrize("reuse", [False, True])
def test_remainder_is_left_out(reuse):
    # 70 = 3 * 23 + 1
    plan = minibatch.plan(jax.random.key(0), 70, 3, 2, reuse=reuse)
    assert plan.shape == (6, 23)
    for epoch in plan.reshape(2, 69):
        assert len(set(epoch.tolist())) == 69
        assert epoch.min() >= 0
        assert epoch.max() < 70


def test_gather_index_is_t_times_b_plus_e():
    step, env = np.mgrid[:T, :B]
    place = jnp.asarray(step * 100 + env)
    two = jnp.stack([place, -place], axis=-1)
    batch = Batch(
        groups={"actor": two},
        action=two,
        log_prob=place,
        value=place,
        mean=two,
        std=two,
        advantage=place,
        return_=place,
        weight=place,
        reset=place > 0,
        masks={"estimator": place > 0},
        carry={},
        extras={"labels": jnp.broadcast_to(place[..., None, None], (T, B, 2, 3))},
    )
    index = jnp.asarray([0, 1, B, 3 * B + 2, T * B - 1])
    # (t, e) = (0, 0), (0, 1), (1, 0), (3, 2), (5, 4)
    expected = np.asarray([0, 1, 100, 302, 504])
    got = minibatch.gather(batch, index)
    for name in ("log_prob", "value", "advantage", "return_", "weight"):
        np.testing.assert_array_equal(getattr(got, name), expected)
    for array in (got.groups["actor"], got.action, got.mean, got.std):
        np.testing.assert_array_equal(array, np.stack([expected, -expected], axis=-1))
    assert got.extras["labels"].shape == (5, 2, 3)
    np.testing.assert_array_equal(got.extras["labels"][:, 1, 2], expected)
