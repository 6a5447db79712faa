"""The probe environments do what their docstrings promise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from strl_jax.envs import probe

KEYS = jax.random.split(jax.random.key(0), 8)


def _one_step(env, action=0.0):
    start = env.reset(KEYS)
    return start, env.step(start, jnp.full((8, 1), action))


@pytest.mark.parametrize("name", sorted(probe.PROBES))
def test_shapes_and_types(name):
    env = probe.make(name)
    start, after = _one_step(env)
    for state in (start, after):
        assert {k: v.shape for k, v in state.obs.items()} == {k: (8, *s) for k, s in env.observation_shapes.items()}
        assert state.reward.shape == state.terminated.shape == state.timeout.shape == (8,)
        assert state.reward.dtype == jnp.float32
        assert state.terminated.dtype == state.timeout.dtype == bool
    assert jax.tree.map(jnp.shape, start) == jax.tree.map(jnp.shape, after)
    assert jax.tree.map(lambda x: x.dtype, start) == jax.tree.map(lambda x: x.dtype, after)
    assert hash(env) == hash(probe.make(name))


def test_constant_pays_one_and_ends():
    start, after = _one_step(probe.make("constant"))
    assert (start.obs["state"] == 0).all()
    assert (after.reward == 1).all()
    assert after.terminated.all()


def test_observed_reward_pays_its_observation():
    start, after = _one_step(probe.make("observed_reward"))
    assert set(np.unique(start.obs["state"])) == {-1.0, 1.0}
    np.testing.assert_array_equal(after.reward, start.obs["state"][:, 0])


def test_discounted_pays_at_the_second_step():
    env = probe.make("discounted")
    start, first = _one_step(env)
    second = env.step(first, jnp.zeros((8, 1)))
    assert [float(s.reward[0]) for s in (first, second)] == [0.0, 1.0]
    assert [bool(s.terminated[0]) for s in (first, second)] == [False, True]
    assert [float(s.obs["state"][0, 0]) for s in (start, first)] == [0.0, 1.0]


def test_action_pays_minus_the_squared_error():
    _, after = _one_step(probe.make("action", target=-0.5), action=1.0)
    # -(1 - (-0.5))^2 = -2.25
    np.testing.assert_array_equal(after.reward, np.full(8, -2.25))
    np.testing.assert_array_equal(after.metrics["tracking_error"], np.full(8, 1.5))


def test_state_action_wants_the_observation():
    start, after = _one_step(probe.make("state_action"), action=1.0)
    # seen 1: -(1 - 1)^2 = 0; seen -1: -(1 + 1)^2 = -4
    np.testing.assert_array_equal(after.reward, np.where(start.obs["state"][:, 0] > 0, 0.0, -4.0))


def test_timeout_never_ends_by_itself():
    _, after = _one_step(probe.make("timeout"))
    assert (after.reward == 1).all()
    assert not (after.terminated | after.timeout).any()


def test_cycle_alternates():
    env = probe.make("cycle")
    start, after = _one_step(env)
    np.testing.assert_array_equal(after.obs["state"], -start.obs["state"])
    np.testing.assert_array_equal(after.reward, (start.obs["state"][:, 0] > 0).astype(np.float32))
    again = env.step(after, jnp.zeros((8, 1)))
    np.testing.assert_array_equal(again.obs["state"], start.obs["state"])
    assert not (after.terminated | again.terminated).any()


def test_nan_persists_until_a_reset():
    env = probe.make("nan", probability=1.0)
    start, after = _one_step(env)
    assert np.isfinite(start.obs["state"]).all()
    for state in (after, env.step(after, jnp.zeros((8, 1)))):
        assert np.isnan(state.obs["state"]).all()
        assert np.isnan(state.reward).all()
        assert not state.terminated.any()
        assert not env.finite(state).any()


def test_nan_comes_as_often_as_asked():
    env = probe.make("nan", probability=0.25)
    start = env.reset(jax.random.split(jax.random.key(1), 4000))
    share = np.isnan(env.step(start, jnp.zeros((4000, 1))).reward).mean()
    assert abs(share - 0.25) < 0.03  # 4 standard deviations of sqrt(0.25 * 0.75 / 4000) = 0.007


def test_two_groups_hides_a_component():
    start, after = _one_step(probe.make("two_groups"), action=1.0)
    seen, hidden = start.obs["state"][:, 0], start.obs["hidden"][:, 0]
    assert len(set(zip(seen.tolist(), hidden.tolist(), strict=True))) > 2  # drawn independently
    expected = {
        (-1, 1): -1.25,  # 1 - (1 + 1 - 0.5)^2
        (1, 1): 0.75,  # 1 - (1 - 1 - 0.5)^2
        (1, -1): -1.25,  # -1 - (1 - 1 + 0.5)^2
        (-1, -1): -7.25,  # -1 - (1 + 1 + 0.5)^2
    }
    pairs = zip(seen.tolist(), hidden.tolist(), strict=True)
    np.testing.assert_array_equal(after.reward, [expected[pair] for pair in pairs])


def test_remember_shows_the_sign_once_and_asks_for_it_at_the_end():
    env = probe.make("remember", delay=2)
    assert env.episode_length == 3
    states = [env.reset(KEYS)]
    for _ in range(3):
        states.append(env.step(states[-1], jnp.full((8, 1), 0.5)))
    sign = states[0].obs["state"][:, 0]
    assert set(np.unique(sign)) == {-1.0, 1.0}
    for state in states[1:]:
        assert (state.obs["state"] == 0).all()
    for state in states[:3]:
        for quiet in (state.reward, state.metrics["tracking_error"], state.terminated):
            assert not quiet.any()
    assert states[3].terminated.all()
    # sign 1: -(0.5 - 1)^2 = -0.25; sign -1: -(0.5 + 1)^2 = -2.25
    np.testing.assert_array_equal(states[3].reward, np.where(sign > 0, -0.25, -2.25))
    np.testing.assert_array_equal(states[3].metrics["tracking_error"], np.where(sign > 0, 0.5, 1.5))


def test_bad_requests_name_what_is_allowed():
    with pytest.raises(ValueError, match="unknown probe environment 'constnat'; known: constant, observed_reward"):
        probe.make("constnat")
    with pytest.raises(ValueError, match="'action' has no option 'goal'; its options: target"):
        probe.make("action", goal=1.0)
    with pytest.raises(ValueError, match="'constant' has no option 'target'; its options: none"):
        probe.make("constant", target=1.0)
    with pytest.raises(ValueError, match=r"probability is 1.5; it must be in \[0, 1\]"):
        probe.make("nan", probability=1.5)
    for delay in (0, 2.5):
        with pytest.raises(ValueError, match=f"delay is {delay}; it must be a whole number of at least 1"):
            probe.make("remember", delay=delay)


def test_image_has_one_bright_pixel_whose_column_is_the_target():
    start, after = _one_step(probe.make("image"), action=0.5)
    image = np.asarray(start.obs["image"])
    assert image.shape == (8, 1, 8, 8)
    assert (image.sum(axis=(1, 2, 3)) == 1).all()
    column = image.argmax(axis=3).max(axis=(1, 2))
    # column 0 is -1, column 7 is 1: target = 2 column / 7 - 1
    target = 2 * column / 7 - 1
    # float32: the difference of numbers near 1 is off by 6e-8 or so
    np.testing.assert_allclose(after.reward, -((0.5 - target) ** 2), atol=1e-6)
    assert after.terminated.all()
    assert len(set(column.tolist())) > 1
