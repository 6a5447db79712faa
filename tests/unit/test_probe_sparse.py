"""The probe ``sparse`` has one reward, which a random walk does not find."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from strl_jax.envs import contract, probe
from strl_jax.envs.base import carried


def walk(env, actions):
    """One episode's states from the reset on, under actions ``[T]``, with no reset at its end."""

    @jax.jit
    def run(key, actions):
        start = env.reset(key)

        def step(state, action):
            after = env.step(state, jnp.full((1, 1), action))
            return carried(after), after

        return start, jax.lax.scan(step, carried(start), actions)[1]

    start, after = run(jax.random.split(jax.random.key(0), 1), jnp.array(actions))
    return jax.tree.map(lambda first, rest: np.concatenate([first[None], rest])[:, 0], start, after)


def test_steps_by_hand():
    states = walk(probe.make("sparse", length=4, cost=0.125), [-1.0, 0.75, 0.5, 3.0, -0.5, 2.0, 0.75, 0.25, 1.0, -1.0])
    # -1 stops at 0, the second 1 at 4; 3 and 2 count as 1
    position = np.array([0, 0, 0.75, 1.25, 2.25, 1.75, 2.75, 3.5, 3.75, 4, 3])
    np.testing.assert_array_equal(states.obs["state"][:, 0], position / 4)
    np.testing.assert_array_equal(states.obs["place"].argmax(axis=1), [0, 0, 1, 1, 2, 2, 3, 3, 3, 3, 3])
    np.testing.assert_array_equal(states.obs["place"].sum(axis=1), np.ones(11))
    # an eighth of what it moved to the right: 0.75, 0.5, 1, 1, 0.75, 0.25 and, of the last 1, 0.25
    cost = np.array([0, 0, 0.09375, 0.0625, 0.125, 0, 0.125, 0.09375, 0.03125, 0.03125, 0])
    reached = np.array([0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0])
    np.testing.assert_array_equal(states.reward, reached - cost)
    np.testing.assert_array_equal(states.metrics["reached"], reached)
    assert not (states.terminated | states.timeout).any()


def test_straight_walk_gets_there_half_way_to_the_time_limit():
    env = probe.make("sparse")
    assert (env.length, env.cost, env.episode_length) == (16, 0.2, 32)
    states = walk(env, [1.0] * 32)
    np.testing.assert_array_equal(np.flatnonzero(states.metrics["reached"]), np.arange(16, 33))
    # 16 + 1 - 0.2 * 16 = 13.8; float32 numbers under 1, of which 0.2 and 0.8 are off by 1e-8 or so
    assert abs(states.reward.sum(dtype=np.float64) - 13.8) < 1e-6


def test_value_of_the_straight_walk_is_as_promised():
    """V = (gamma^(n-1) - cost (1 - gamma^n)) / (1 - gamma) with n = 5, 4 ... 1 steps to go, against sums of rewards."""
    gamma = 0.5
    reward = walk(probe.make("sparse", length=5), [1.0] * 65).reward[1:]
    sums = [gamma ** np.arange(60) @ reward[start : start + 60] for start in range(5)]  # 0.5^60 is nothing
    n = np.array([5, 4, 3, 2, 1])
    promised = (gamma ** (n - 1) - 0.2 * (1 - gamma**n)) / (1 - gamma)
    np.testing.assert_allclose(sums, promised, atol=1e-6)


def test_random_walk_does_not_reach_the_end():
    """Actions N(0, 1) in 4096 episodes: fewer than a thousandth of them get a reward."""
    env = probe.make("sparse")

    @jax.jit
    def share(key):
        reset_key, action_key = jax.random.split(key)

        def step(carry, key):
            state, reached = carry
            after = env.step(state, jax.random.normal(key, (4096, 1)))
            return (carried(after), reached | (after.metrics["reached"] > 0)), after.obs["state"].max()

        start = carried(env.reset(jax.random.split(reset_key, 4096)))
        keys = jax.random.split(action_key, env.episode_length)
        (_, reached), furthest = jax.lax.scan(step, (start, jnp.zeros(4096, bool)), keys)
        return reached.mean(), furthest.max()

    reached, furthest = share(jax.random.key(1))
    assert reached < 0.001
    assert furthest > 0.5  # it does walk


def test_shapes_follow_the_length():
    for length in (3, 3.0):
        env = probe.make("sparse", length=length)
        assert env.observation_shapes == {"state": (1,), "place": (3,)}
        assert env.episode_length == 6
        contract.check(env)


def test_options_out_of_range():
    for length in (1, 2.5):
        with pytest.raises(ValueError, match=f"length is {length}; it must be a whole number of at least 2"):
            probe.make("sparse", length=length)
    for cost in (-0.01, 1.5):
        with pytest.raises(ValueError, match=rf"cost is {cost}; it must be in \[0, 1\]"):
            probe.make("sparse", cost=cost)
    with pytest.raises(ValueError, match="'sparse' has no option 'size'; its options: length, cost"):
        probe.make("sparse", size=4)
