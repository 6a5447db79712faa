"""Rings, queues, draws from the past, next observations."""

from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from strl_jax.algorithms import memory, returns
from strl_jax.sharding import AXIS, make_mesh, shard_jit, sharded
from strl_jax.storage import replay, ring, sarsa

B = 4
push = jax.jit(ring.push)
draw = jax.jit(replay.sample, static_argnames="number")


def steps(first: int, number: int, num_envs: int = B) -> dict:
    """Steps ``first`` to ``first + number - 1`` of a run; step t of environment e is 100 t + e."""
    code = (100 * np.arange(first, first + number)[:, None] + np.arange(num_envs)).astype(np.int32)
    return {"code": code, "obs": {"base": np.stack([code, -code], axis=-1).astype(np.float32)}, "done": code % 3 == 0}


def same(actual, expected):
    jax.tree.map(np.testing.assert_array_equal, actual, expected)


def test_empty():
    empty = ring.init(3, jax.eval_shape(lambda: jax.tree.map(jnp.asarray, steps(0, 5))))
    assert empty.capacity == 3
    assert empty.data["obs"]["base"].shape == (B, 3, 2)
    assert empty.data["done"].dtype == bool
    for read in (ring.stored, ring.ordered):
        data, valid = read(empty)
        assert not valid.any()
        assert not any(leaf.any() for leaf in jax.tree.leaves(data))
    same(ring.untie(empty), empty)


@pytest.mark.parametrize(("ratio", "capacity"), [(1, 4), (1.5, 6), (2.5, 10), (3, 12)])
def test_last_steps_over_many_pushes(ratio, capacity):
    num_steps = 4
    assert memory.queue_steps(ratio, num_steps) == capacity
    state, kept = ring.init(capacity, steps(0, num_steps)), deque(maxlen=capacity)
    rows = [None] * capacity
    read = jax.jit(lambda state: (ring.stored(state), ring.ordered(state), ring.stored(ring.untie(state))))
    for number in range(7):
        new = steps(number * num_steps, num_steps)
        state = push(state, new)
        for t in range(num_steps):
            one = jax.tree.map(lambda x, t=t: x[t], new)
            kept.append(one)
            rows[(number * num_steps + t) % capacity] = one
        count = min((number + 1) * num_steps, capacity)
        np.testing.assert_array_equal(state.count, [count] * B)
        np.testing.assert_array_equal(state.cursor, [(number + 1) * num_steps % capacity] * B)

        (stored, valid), (in_order, valid_in_order), (untied, _) = read(state)
        np.testing.assert_array_equal(valid, np.arange(capacity)[:, None] < [count] * B)
        np.testing.assert_array_equal(valid_in_order, valid[::-1])
        same(jax.tree.map(lambda x, n=count: x[:n], stored), jax.tree.map(lambda *x: np.stack(x), *rows[:count]))
        expected = jax.tree.map(lambda *x: np.stack(x), *kept)
        same(jax.tree.map(lambda x, n=count: x[capacity - n :], in_order), expected)
        same(jax.tree.map(lambda x, n=count: x[:n], untied), expected)


def test_pushes_of_other_lengths():
    state = ring.init(5, steps(0, 1))
    for first, number in ((0, 3), (3, 1), (4, 5), (9, 2)):
        state = push(state, steps(first, number))
    # 11 steps into 5 rows: the next goes to row 11 % 5 = 1, the last five are 6 to 10.
    np.testing.assert_array_equal(state.cursor, [1] * B)
    same(ring.ordered(state)[0], steps(6, 5))
    # Step 10 went to row 10 % 5 = 0, step 6 to row 1.
    np.testing.assert_array_equal(ring.stored(state)[0]["code"][:, 0], [1000, 600, 700, 800, 900])


def test_an_untied_ring_overwrites_its_oldest():
    state = ring.init(5, steps(0, 3))
    state = push(push(state, steps(0, 3)), steps(3, 3))
    untied = jax.jit(ring.untie)(state)
    np.testing.assert_array_equal(untied.cursor, [0] * B)
    np.testing.assert_array_equal(untied.count, state.count)
    same(ring.ordered(untied)[0], ring.ordered(state)[0])
    # Steps 1 to 5 lie in rows 0 to 4; 6 to 8 go over 1 to 3.
    after = push(untied, steps(6, 3))
    np.testing.assert_array_equal(ring.stored(after)[0]["code"][:, 0], [600, 700, 800, 400, 500])


def test_what_does_not_fit_is_refused():
    state = ring.init(3, steps(0, 2))
    with pytest.raises(ValueError, match="4 steps do not fit into a ring of 3"):
        ring.push(state, steps(0, 4))
    with pytest.raises(ValueError, match=r"takes int32\[2, 4\], not int32\[2, 1\]"):
        ring.push(state, steps(0, 2, num_envs=1))
    with pytest.raises(ValueError, match=r"takes bool\[2, 4\], not float32\[2, 4\]"):
        ring.push(state, steps(0, 2) | {"done": np.zeros((2, B), np.float32)})
    with pytest.raises(ValueError, match="at least 1, not 0"):
        ring.init(0, steps(0, 2))
    with pytest.raises(ValueError, match="at least one array"):
        ring.init(3, {})
    with pytest.raises(ValueError, match=r"buffer_dilation_ratio must be at least 1, not 0.5"):
        memory.queue_steps(0.5, 8)


def test_four_shards_hold_what_one_holds():
    mesh, num_envs, traces = make_mesh(jax.devices()[:4]), 8, []

    def traced(state, data):
        traces.append(None)
        return ring.push(state, data)

    many = shard_jit(traced, mesh, in_specs=(P(AXIS), P(None, AXIS)), out_specs=P(AXIS))
    single = ring.init(5, steps(0, 2, num_envs))
    split = jax.device_put(single, sharded(mesh))
    for number in range(4):
        data = steps(2 * number, 2, num_envs)
        split, single = many(split, data), push(single, data)
        same(split, single)
        assert all(leaf.sharding == sharded(mesh) for leaf in jax.tree.leaves(split))
    assert len(traces) == 1


def test_looped_returns_of_a_ring_that_is_not_full():
    # Two of four rows are valid; gamma 0.5, lam 0.5, no episode ends.
    # A_1 = 2 + 0.5 * 8 - 1 = 5; A_0 = 1 + 0.5 * 1 - 3 + 0.25 * 5 = -0.25. The rest is not read.
    column = jnp.asarray([[1.0, 2.0, jnp.nan, 9.0]]).T
    value = jnp.asarray([[3.0, 1.0, 7.0, 7.0]]).T
    done = jnp.asarray([[False, False, True, False]]).T
    call = jax.jit(lambda *x: memory.looped_returns(*x, gamma=0.5, lam=0.5))
    advantage, return_ = call(column, value, done, jnp.asarray([8.0]), jnp.asarray([2]))
    np.testing.assert_array_equal(advantage[:, 0], [-0.25, 5.0, 0.0, 0.0])
    np.testing.assert_array_equal(return_[:2, 0], [2.75, 6.0])


def test_looped_returns_of_a_full_ring_are_those_of_its_rows():
    rng = np.random.default_rng(0)
    reward, value = rng.normal(size=(2, 6, 3)).astype(np.float32)
    last_value, done = rng.normal(size=3).astype(np.float32), rng.random((6, 3)) < 0.3
    options = {"gamma": 0.9, "lam": 0.8}
    looped = memory.looped_returns(reward, value, done, last_value, jnp.full(3, 6, jnp.int32), **options)
    same(looped, returns.gae(reward, jnp.asarray(value), jnp.asarray(done), jnp.asarray(last_value), **options))


def test_draws_reach_every_valid_entry_and_no_other():
    state = ring.init(5, steps(0, 3))
    drawn = draw(state, jax.random.key(0), number=7)
    assert drawn["obs"]["base"].shape == (7, 2)
    assert not drawn["code"].any()

    # Codes start at step 1, so that no valid entry is 0.
    for number, kept in enumerate((range(1, 4), range(2, 7))):
        state = push(state, steps(1 + 3 * number, 3))
        assert state.count.sum() == len(kept) * B
        drawn = draw(state, jax.random.key(number), number=4000)
        found, times = np.unique(drawn["code"], return_counts=True)
        np.testing.assert_array_equal(found, [100 * step + env for step in kept for env in range(B)])
        # Binomial, n = 4000, p = 1 / entries: five standard deviations.
        mean = 4000 / len(found)
        assert np.abs(times - mean).max() < 5 * np.sqrt(mean * (1 - 1 / len(found)))
        np.testing.assert_array_equal(drawn["obs"]["base"], np.stack([drawn["code"], -drawn["code"]], axis=-1))
        np.testing.assert_array_equal(drawn["done"], drawn["code"] % 3 == 0)


def test_draws_follow_their_key():
    state = push(ring.init(5, steps(0, 3)), steps(0, 3))
    one, again, other = (draw(state, jax.random.key(seed), number=50)["code"] for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()


def test_next_observation_where_an_episode_ended():
    # Environment 0 ends with step 0, environment 1 with step 2, the last one.
    obs = {"base": jnp.arange(6.0).reshape(3, 2), "image": jnp.arange(24.0).reshape(3, 2, 2, 2)}
    last = jax.tree.map(lambda x: x[0] + 100, obs)
    terminal = jax.tree.map(lambda x: -1 - x, obs)
    done = jnp.asarray([[True, False], [False, False], [False, True]])
    after_reset = jax.jit(sarsa.next_observations)(obs, last)
    np.testing.assert_array_equal(after_reset["base"], [[2, 3], [4, 5], [100, 101]])
    found = jax.jit(sarsa.next_observations)(obs, last, terminal_obs=terminal, done=done)
    # -1 - obs[0, 0] = -1 and -1 - obs[2, 1] = -6.
    np.testing.assert_array_equal(found["base"], [[-1, 3], [4, 5], [100, -6]])
    for t, env in np.ndindex(3, 2):
        expected = terminal["image"][t, env] if done[t, env] else after_reset["image"][t, env]
        np.testing.assert_array_equal(found["image"][t, env], expected)


@pytest.mark.parametrize("given", ["terminal_obs", "done"])
def test_an_end_without_its_observation_is_refused(given):
    with pytest.raises(ValueError, match="go together"):
        sarsa.next_observations(jnp.zeros((2, 1)), jnp.zeros(1), **{given: jnp.zeros((2, 1))})
