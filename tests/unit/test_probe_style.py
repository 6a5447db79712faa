"""The probes ``style`` and ``gait`` reward every way alike, and their experts show one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from strl_jax.envs import probe
from strl_jax.envs.base import carried
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.envs.probe.style import expert_pairs

KEYS = jax.random.split(jax.random.key(0), 4)


@pytest.fixture(scope="module")
def style():
    """``style`` after a reset of four environments, and after one step of each."""
    env = probe.make("style", prefer=-1.0)
    start = jax.jit(env.reset)(KEYS)
    return start, jax.jit(env.step)(carried(start), jnp.array([[-1.0], [1.0], [0.5], [-4.0]]))


def test_style_rewards_either_action(style):
    start, after = style
    assert set(np.unique(start.obs["state"])) == {-1.0, 1.0}
    np.testing.assert_array_equal(after.obs["state"], start.obs["state"])
    # the nearer of -1 and 1 is off by 0, 0, 0.5 and 3
    np.testing.assert_array_equal(after.reward, [0.0, 0.0, -0.25, -9.0])
    assert after.terminated.all()


def test_style_shows_the_policy_and_the_expert(style):
    start, after = style
    for name in ("ref_obs", "ref_motion"):
        assert start.extras[name].shape == (4, 1)
        assert not start.extras[name].any()
    np.testing.assert_array_equal(after.extras["ref_obs"], [[-1.0], [1.0], [0.5], [-3.0]])  # -4 is beyond -3
    # |a + 1|
    np.testing.assert_array_equal(after.metrics["tracking_error"], [0.0, 2.0, 1.5, 3.0])


def test_style_expert_scatters_around_what_it_prefers():
    """Over 1000 environments and two steps, so that a key that is used again would show."""
    env = probe.make("style")

    @jax.jit
    def motions(key):
        first = env.step(carried(env.reset(key)), jnp.zeros((1000, 1)))
        second = env.step(carried(first), jnp.zeros((1000, 1)))
        return first.obs["state"][:, 0], first.extras["ref_motion"][:, 0], second.extras["ref_motion"][:, 0]

    sign, first, second = (np.asarray(x) for x in motions(jax.random.split(jax.random.key(1), 1000)))
    for motion in (first, second):
        assert abs(motion.mean() - 1.0) < 0.0127  # 4 standard deviations of 0.1 / sqrt(1000) = 0.00316
        assert abs(motion.std() - 0.1) < 0.009  # 4 standard deviations of 0.1 / sqrt(2000) = 0.00224
        assert abs(np.corrcoef(motion, sign)[0, 1]) < 0.127  # 4 standard deviations of 1 / sqrt(1000)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.127


@pytest.mark.parametrize("prefer", [0.0, 2.0])
def test_style_prefers_one_of_the_two(prefer):
    with pytest.raises(ValueError, match=f"prefer is {prefer}; it must be -1 or 1"):
        probe.make("style", prefer=prefer)


@pytest.fixture(scope="module")
def gait():
    """``gait`` after a reset of four environments, and after one step of each."""
    env = probe.make("gait")
    start = jax.jit(env.reset)(KEYS)
    return start, jax.jit(env.step)(carried(start), jnp.array([[0.5], [0.0], [-0.25], [3.0]]))


def test_gait_turns_the_phase_by_the_action(gait):
    start, after = gait
    angle = np.arctan2(start.obs["phase"][:, 1], start.obs["phase"][:, 0])
    assert len(set(angle.tolist())) == 4
    angle += [0.5, 0.0, -0.25, 1.0]  # 3 is beyond 1
    # float32: angles up to 4 are off by 2e-7 or so, and so are their cosines
    np.testing.assert_allclose(after.obs["phase"], np.stack([np.cos(angle), np.sin(angle)], axis=1), atol=1e-6)


def test_gait_rewards_every_turn_alike(gait):
    start, after = gait
    assert (after.reward == 1).all()
    assert not (after.terminated | after.timeout).any()
    assert not start.obs["state"].any()
    assert not after.obs["state"].any()
    # |turn - 0.5| of the turns 0.5, 0, -0.25 and 1
    np.testing.assert_array_equal(after.metrics["tracking_error"], [0.0, 0.5, 0.75, 0.5])


def test_gait_starts_at_any_phase():
    start = jax.jit(probe.make("gait").reset)(jax.random.split(jax.random.key(2), 1000))
    mean = np.asarray(start.obs["phase"]).mean(axis=0)
    # A cosine of a random angle has a variance of 1/2: 4 standard deviations of sqrt(0.5 / 1000) = 0.0224
    assert (abs(mean) < 0.0894).all()


def test_gait_ends_after_eight_steps_and_shows_the_phase_that_it_reached():
    """The pair of the last step must not reach into the next episode."""
    env = probe.make("gait")
    episodes = EpisodeEnv(env, env.episode_length)

    @jax.jit
    def run(key):
        state, _ = episodes.init(key, random_lengths=False)
        pool = episodes.pool(jax.random.key(3), 4)

        def step(state, _):
            after, timestep = episodes.step(state, jnp.full((4, 1), 0.5), pool, jnp.full(4, 0.5))
            pair = state.env.obs["phase"], timestep.terminal_obs["phase"], timestep.obs["phase"]
            return after, (timestep.done, timestep.timeout, pair)

        return jax.lax.scan(step, state, length=9)[1]

    done, timeout, (before, reached, shown) = run(KEYS)
    np.testing.assert_array_equal(done, np.repeat(np.arange(9)[:, None] == 7, 4, axis=1))
    np.testing.assert_array_equal(timeout, done)
    # The cosine between the phases before and after a turn of 0.5 is cos(0.5), an end or not.
    np.testing.assert_allclose((before * reached).sum(axis=-1), np.cos(0.5), atol=1e-6)
    assert (abs((before * shown).sum(axis=-1) - np.cos(0.5))[7] > 0.01).all()


def test_gait_expert_turns_by_half_a_radian():
    pairs = expert_pairs(500, seed=4)
    assert (pairs.shape, pairs.dtype) == ((500, 4), np.float32)
    np.testing.assert_array_equal(pairs, expert_pairs(500, seed=4))
    assert (pairs != expert_pairs(500, seed=5)).any()
    before, after = pairs[:, 0] + 1j * pairs[:, 1], pairs[:, 2] + 1j * pairs[:, 3]
    np.testing.assert_allclose(after / before, np.full(500, np.cos(0.5) + 1j * np.sin(0.5)), atol=1e-6)
    assert abs(before.mean()) < 0.18  # 4 standard deviations of 1 / sqrt(500) = 0.0447


def test_gait_expert_is_a_policy_of_its_own_environment():
    """What ``expert_pairs`` gives is what an action of 0.5 gives."""
    env = probe.make("gait")
    pairs = expert_pairs(4, seed=6)
    start = carried(env.reset(KEYS)).replace(physics=jnp.arctan2(pairs[:, 1], pairs[:, 0]))
    after = jax.jit(env.step)(start, jnp.full((4, 1), 0.5))
    np.testing.assert_allclose(after.obs["phase"], pairs[:, 2:], atol=1e-6)
    assert not after.metrics["tracking_error"].any()
