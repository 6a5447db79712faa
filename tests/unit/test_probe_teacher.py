"""The probe ``teacher`` shows the sign once to a student and always to a teacher."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from strl_jax.envs import probe
from strl_jax.envs.base import carried

KEYS = jax.random.split(jax.random.key(0), 8)


@pytest.fixture(scope="module")
def states():
    """An episode of three steps with actions of 0, 0.5 and 1: the states, from the reset on."""
    env = probe.make("teacher", delay=2)
    assert env.episode_length == 3
    step = jax.jit(env.step)
    states = [jax.jit(env.reset)(KEYS)]
    for action in (0.0, 0.5, 1.0):
        states.append(step(carried(states[-1]), jnp.full((8, 1), action)))
    return states


def test_sign_is_shown_once_and_always(states):
    sign = np.asarray(states[0].obs["state"])
    assert set(np.unique(sign)) == {-1.0, 1.0}
    for state in states:
        np.testing.assert_array_equal(state.obs["sign"], sign)
    for state in states[1:]:
        assert not state.obs["state"].any()


def test_every_step_is_rewarded(states):
    positive = np.asarray(states[0].obs["sign"][:, 0]) > 0
    # sign 1: -(0 - 1)^2 = -1, -(0.5 - 1)^2 = -0.25, 0
    # sign -1: -(0 + 1)^2 = -1, -(0.5 + 1)^2 = -2.25, -(1 + 1)^2 = -4
    for state, right, wrong in zip(states[1:], (-1.0, -0.25, 0.0), (-1.0, -2.25, -4.0), strict=True):
        np.testing.assert_array_equal(state.reward, np.where(positive, right, wrong))
        np.testing.assert_array_equal(state.metrics["tracking_error"], np.sqrt(np.where(positive, -right, -wrong)))


def test_ends_after_the_delay(states):
    assert [state.terminated.all() for state in states] == [False, False, False, True]
    assert [state.terminated.any() for state in states] == [False, False, False, True]


def test_delay_is_a_whole_number():
    for delay in (0, 2.5):
        with pytest.raises(ValueError, match=f"delay is {delay}; it must be a whole number of at least 1"):
            probe.make("teacher", delay=delay)


@pytest.mark.parametrize("name", ["teacher", "remember"])
def test_delay_may_be_written_with_a_point(name):
    env = probe.make(name, delay=2.0)
    assert isinstance(env.episode_length, int)
    assert env.episode_length == 3
