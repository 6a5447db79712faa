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
    states = walk(probe.make("sparse", length=4, cost=0.125), [-1.0, 0.75, 0.5, 3.0, -0.5, 2.0, 0.75])
    # -1 stops at 0; 3, 2 count as 1: 0, 0.75, 1.25, 2.25, 1.75, 2.75, 3.5
    np.testing.assert_array_equal(states.obs["state"][:, 0], np.array([0, 0, 0.75, 1.25, 2.25, 1.75, 2.75, 3.5]) / 4)
    np.testing.assert_array_equal(states.obs["place"].argmax(axis=1), [0, 0, 1, 1, 2, 2, 3, 3])
    np.testing.assert_array_equal(states.obs["place"].sum(axis=1), np.ones(8))
    # an eighth of 0, 0.75, 0.5, 1, 0, 1 and 0.75
    cost = np.array([0.0, 0.0, 0.09375, 0.0625, 0.125, 0.0, 0.125, 0.09375])
    np.testing.assert_array_equal(states.reward, [0, 0, 0, 0, 0, 0, 0, 1] - cost)
    for ended in (states.terminated, states.metrics["reached"]):
        np.testing.assert_array_equal(ended, [0, 0, 0, 0, 0, 0, 0, 1])
    assert not states.timeout.any()


def test_walk_stops_at_its_end():
    states = walk(probe.make("sparse", length=2), [1.0, 1.0, 1.0])
    np.testing.assert_array_equal(states.obs["state"][:, 0], [0.0, 0.5, 1.0, 1.0])
    np.testing.assert_array_equal(states.obs["place"], [[1, 0], [0, 1], [0, 1], [0, 1]])


def test_straight_walk_reaches_the_end():
    env = probe.make("sparse")
    states = walk(env, [1.0] * env.length)
    np.testing.assert_array_equal(np.flatnonzero(states.terminated), [env.length])
    # 1 - 0.01 * 16, in float32 sums of 16 numbers under 1
    assert abs(states.reward.sum() - 0.84) < 1e-6
    # the best: a last step of 1/2 saves half the cost
    best = walk(env, [1.0] * (env.length - 1) + [0.5])
    assert best.terminated[-1]
    assert abs(best.reward.sum() - 0.845) < 1e-6


def test_value_of_the_straight_walk_is_as_promised():
    """V = gamma^(n-1) - cost (1 - gamma^n) / (1 - gamma) at the start, n = 16, against the sum of its rewards."""
    gamma = 0.9
    reward = walk(probe.make("sparse"), [1.0] * 16).reward[1:]
    promised = gamma**15 - 0.01 * (1 - gamma**16) / (1 - gamma)
    np.testing.assert_allclose(gamma ** np.arange(16) @ reward, promised, atol=1e-6)


def test_random_walk_does_not_reach_the_end():
    """Actions N(0, 1) in 4096 episodes: fewer than a thousandth of them end before the time limit."""
    env = probe.make("sparse")

    @jax.jit
    def share(key):
        reset_key, action_key = jax.random.split(key)

        def step(carry, key):
            state, reached = carry
            after = env.step(state, jax.random.normal(key, (4096, 1)))
            return (carried(after), reached | after.terminated), after.obs["state"].max()

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
    # 0.25 * 4 = 1: as much as the end is worth
    for cost in (-0.01, 0.25):
        with pytest.raises(ValueError, match=rf"cost is {cost}; it must lie in \[0, 1 / 4\), or the end is not"):
            probe.make("sparse", length=4, cost=cost)
    with pytest.raises(ValueError, match="'sparse' has no option 'size'; its options: length, cost"):
        probe.make("sparse", size=4)
