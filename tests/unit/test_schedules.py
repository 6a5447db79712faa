"""Schedules by name, and the adaptive learning rate."""

import inspect
import re

import jax
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
    with pytest.raises(ValueError, match=r"^the name of the schedule is missing; known: constant, linear"):
        schedules.make({"init_value": 1.0})


LINEAR = {"name": "linear", "init_value": 1.0, "end_value": 0.0, "transition_steps": 10}
POLYNOMIAL = LINEAR | {"name": "polynomial", "power": 2}
COSINE = {"name": "cosine_decay", "init_value": 1.0, "decay_steps": 10}
EXPONENTIAL = {"name": "exponential_decay", "init_value": 1.0, "transition_steps": 10, "decay_rate": 0.5}
WARMUP = {"name": "warmup_cosine_decay", "init_value": 0.0, "peak_value": 1.0, "warmup_steps": 3, "decay_steps": 10}
PIECEWISE = {"name": "piecewise_constant", "init_value": 1.0, "boundaries_and_scales": {3: 0.5, 7: 0.1}}
STEPS = "it must be an integer from 1 to 1000000000"


@pytest.mark.parametrize(
    ("schedule", "changes", "expected"),
    [
        (LINEAR, {"transition_steps": 0}, f"transition_steps 0 is not allowed; {STEPS}"),
        (LINEAR, {"transition_steps": -1}, f"transition_steps -1 is not allowed; {STEPS}"),
        (LINEAR, {"transition_steps": 1.5}, f"transition_steps 1.5 is not allowed; {STEPS}"),
        (LINEAR, {"transition_steps": 1e12}, f"transition_steps 1000000000000 is not allowed; {STEPS}"),
        (LINEAR, {"transition_steps": None}, f"transition_steps null is not allowed; {STEPS}"),
        (LINEAR, {"transition_steps": True}, f"transition_steps True is not allowed; {STEPS}"),
        (
            LINEAR,
            {"transition_begin": -1},
            "transition_begin -1 is not allowed; it must be an integer from 0 to 1000000",
        ),
        (LINEAR, {"end_value": 1e31}, "end_value 1e+31 is not allowed; it must be a number from -1e+30 to 1e+30"),
        (LINEAR, {"init_value": np.nan}, "init_value nan is not allowed; it must be a number"),
        (LINEAR, {"init_value": 10**400}, "init_value 1000"),
        (
            LINEAR,
            {"steps": 3},
            "unknown argument 'steps'; it takes init_value, end_value, transition_steps, transition_",
        ),
        (POLYNOMIAL, {"power": 0}, "power 0 is not allowed; it must be a number from 0.001 to 1000"),
        (POLYNOMIAL, {"power": -1}, "power -1 is not allowed"),
        (COSINE, {"decay_steps": 0}, f"decay_steps 0 is not allowed; {STEPS}"),
        (COSINE, {"alpha": 1e30}, "alpha 1e+30 is not allowed; it must be a number from 0 to 1"),
        (COSINE, {"exponent": 0}, "exponent 0 is not allowed; it must be a number from 0.001 to 1000"),
        (EXPONENTIAL, {"decay_rate": 0}, "decay_rate 0 is not allowed; it must be a number above 0, up to 1000"),
        (EXPONENTIAL, {"decay_rate": -0.5}, "decay_rate -0.5 is not allowed"),
        (EXPONENTIAL, {"staircase": 1}, "staircase 1 is not allowed; it must be true or false"),
        (
            EXPONENTIAL,
            {"end_value": 2},
            "end_value 2 is not allowed; it must be at most init_value, 1, where decay_rate",
        ),
        (
            EXPONENTIAL,
            {"decay_rate": 2},
            "end_value is missing; it must be at least init_value, 1, where decay_rate is a",
        ),
        (
            EXPONENTIAL,
            {"decay_rate": 2, "end_value": 0.5},
            "end_value 0.5 is not allowed; it must be at least init_value",
        ),
        (
            EXPONENTIAL,
            {"decay_rate": 2, "init_value": 0, "end_value": 1},
            "init_value 0 is not allowed; it must be above",
        ),
        (
            WARMUP,
            {"decay_steps": 3},
            "decay_steps 3 is not allowed; it must be above warmup_steps, 3, which it includes",
        ),
        (WARMUP, {"warmup_steps": -1}, "warmup_steps -1 is not allowed; it must be an integer from 0 to 1000000000"),
        (WARMUP, {"end_value": -1.5}, "end_value -1.5 is not allowed; it must be no larger than peak_value, 1"),
        (
            PIECEWISE,
            {"boundaries_and_scales": {3: -1}},
            "boundaries_and_scales {3: -1} is not allowed; it must be a map",
        ),
        (PIECEWISE, {"boundaries_and_scales": {1.5: 1}}, "boundaries_and_scales {1.5: 1} is not allowed"),
        (PIECEWISE, {"boundaries_and_scales": {-3: 1}}, "boundaries_and_scales {-3: 1} is not allowed"),
        (
            PIECEWISE,
            {"boundaries_and_scales": {2: 1e20, 1: 1e20}},
            "boundaries_and_scales {2: 1e+20, 1: 1e+20} is not allowed; "
            "it must be such that all values are from -1e+30 to 1e+30; at 2 it is 1e+40",
        ),
    ],
)
def test_refused(schedule, changes, expected):
    with pytest.raises(ValueError, match=f"^schedule {schedule['name']}: {re.escape(expected)}"):
        schedules.make(schedule | changes)


@pytest.mark.parametrize("schedule", [LINEAR, POLYNOMIAL, COSINE, EXPONENTIAL, WARMUP, PIECEWISE])
def test_each_argument_without_a_default_is_missed(schedule):
    function = schedules.SCHEDULES[schedule["name"]]
    needed = [key for key, value in inspect.signature(function).parameters.items() if value.default is value.empty]
    assert needed
    for key in needed:
        with pytest.raises(ValueError, match=rf"^schedule {schedule['name']}: {key} is missing; it must be an? \w+"):
            schedules.make({name: value for name, value in schedule.items() if name != key})


@pytest.mark.parametrize("name", schedules.SCHEDULES)
def test_every_argument_of_optax_is_known(name):
    for key in inspect.signature(schedules.SCHEDULES[name]).parameters:
        with pytest.raises(ValueError, match=rf"^schedule {name}: {key} 'x' is not allowed; it must be "):
            schedules.make({"name": name, key: "x"})


@pytest.mark.parametrize(
    "spec",
    [
        LINEAR | {"init_value": 1e30, "end_value": -1e30, "transition_begin": 10**9},
        POLYNOMIAL | {"power": 1e-3, "transition_steps": 10**9},
        POLYNOMIAL | {"power": 1e3},
        COSINE | {"alpha": 1, "exponent": 1e3, "init_value": 1e30, "decay_steps": 10**9},
        EXPONENTIAL | {"decay_rate": 1000, "end_value": 1e30, "transition_steps": 1},
        EXPONENTIAL | {"decay_rate": 1e-300, "end_value": None, "staircase": True},
        WARMUP | {"warmup_steps": 0, "peak_value": 1e-30, "end_value": -1e-30},
        WARMUP | {"init_value": 1e30, "peak_value": 0.0, "decay_steps": 1e9},
        PIECEWISE | {"boundaries_and_scales": {0: 1e30, 10**9: 0}},
        PIECEWISE | {"boundaries_and_scales": None},
    ],
)
def test_what_is_allowed_is_finite_for_ever(spec):
    iterations = jnp.array([0, 1, 2, 5, 9, 10, 11, 1000, 10**9 - 1, 10**9, 2**31 - 1], jnp.int32)
    values = jax.jit(jax.vmap(schedules.make(spec)))(iterations)
    assert jnp.isfinite(values).all()
    assert jnp.abs(values).max() <= jnp.float32(1e30)


def test_iterations_of_yaml_may_be_written_as_floats():
    spec = LINEAR | {"transition_steps": 1e1, "transition_begin": 2.0}
    # 1 - (4 - 2) / 10
    np.testing.assert_allclose(schedules.make(spec)(4), 0.8, rtol=1e-6)
    np.testing.assert_allclose(schedules.make(PIECEWISE | {"boundaries_and_scales": {3.0: 0.5}})(3), 0.5)


def test_a_coefficient_may_be_negative_and_a_learning_rate_may_not():
    falling = LINEAR | {"end_value": -1.0}
    assert ppo.PPOConfig(entropy_coef=falling).entropy_coef == falling
    with pytest.raises(
        ValueError, match=r"schedule linear: end_value -1\.0 is not allowed; .* a number from 0 to 1000"
    ):
        ppo.PPOConfig(schedule=falling)
    with pytest.raises(ValueError, match="all values are from 0 to 1000; at 3 it is 2000"):
        ppo.PPOConfig(schedule=PIECEWISE | {"boundaries_and_scales": {3: 2000}})


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
