"""Schedules by name, and the adaptive learning rate."""

import jax.numpy as jnp
import numpy as np
import pytest
from tiny import make_algorithm

from strl_jax.algorithms import ppo, schedules


@pytest.mark.parametrize(
    ("rate", "kl", "expected"),
    [
        (3e-3, 0.021, 2e-3),  # above 2 * 0.01: 3e-3 / 1.5
        (3e-3, 0.004, 4.5e-3),  # below 0.01 / 2: 3e-3 * 1.5
        (3e-3, 0.020, 3e-3),  # not above 2 * 0.01
        (3e-3, 0.005, 3e-3),  # not below 0.01 / 2
        (3e-3, 0.0, 3e-3),  # exactly no change
        (3e-3, -1e-6, 3e-3),  # rounding
        (3e-3, jnp.nan, 3e-3),
        (1.2e-5, 1.0, 1e-5),  # the floor
        (8e-3, 0.001, 1e-2),  # the ceiling
    ],
)
def test_adapt(rate, kl, expected):
    actual = schedules.adapt(jnp.float32(rate), jnp.float32(kl), 0.01)
    assert actual.dtype == jnp.float32
    np.testing.assert_allclose(actual, np.float32(expected), rtol=1e-6)


def test_number_is_constant():
    assert schedules.make(0.25)(0) == schedules.make(0.25)(1000) == 0.25


def test_named_schedules():
    linear = schedules.make({"name": "linear", "init_value": 1.0, "end_value": 0.0, "transition_steps": 10})
    # 1 - 4 / 10
    np.testing.assert_allclose(linear(4), 0.6, rtol=1e-6)
    cosine = schedules.make({"name": "cosine_decay", "init_value": 2.0, "decay_steps": 100})
    # 2 * (1 + cos(pi / 2)) / 2 half-way
    np.testing.assert_allclose(cosine(50), 1.0, rtol=1e-6)
    decay = schedules.make({"name": "exponential_decay", "init_value": 8.0, "transition_steps": 1, "decay_rate": 0.5})
    # 8 * 0.5^3
    np.testing.assert_allclose(decay(3), 1.0, rtol=1e-6)


def test_unknown_name_lists_the_known():
    with pytest.raises(ValueError, match=r"unknown schedule 'cosin'; known: constant, linear.*cosine_decay"):
        schedules.make({"name": "cosin"})


def test_missing_name():
    with pytest.raises(ValueError, match=r"unknown schedule None; known: "):
        schedules.make({"init_value": 1.0})


def test_wrong_argument_is_named():
    with pytest.raises(ValueError, match=r"schedule 'cosine_decay': .*steps"):
        schedules.make({"name": "cosine_decay", "init_value": 1.0, "steps": 3})


def test_config_refuses_a_bad_schedule():
    with pytest.raises(ValueError, match="unknown schedule 'nope'"):
        ppo.PPOConfig(entropy_coef={"name": "nope"})
    with pytest.raises(ValueError, match="unknown schedule 'nope'"):
        ppo.PPOConfig(schedule={"name": "nope"})


def test_learning_rate_of_an_iteration():
    schedule = {"name": "linear", "init_value": 1e-3, "end_value": 0.0, "transition_steps": 4}
    algorithm = make_algorithm(schedule=schedule, learning_rate=5.0)
    # 1e-3 * (1 - i / 4)
    np.testing.assert_allclose([algorithm.learning_rate(i) for i in (0, 1, 4)], [1e-3, 7.5e-4, 0.0], rtol=1e-5)
    for fixed in ("fixed", "adaptive"):
        np.testing.assert_allclose(make_algorithm(schedule=fixed, learning_rate=5.0).learning_rate(9), 5.0)
