"""Schedules by name, and the adaptive learning rate."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pydantic import TypeAdapter
from tiny import make_algorithm

from strl_jax.algorithms import schedules
from strl_jax.config import ConfigError, from_dict, to_dict

LINEAR = {"name": "linear", "init_value": 1.0, "end_value": 0.0, "transition_steps": 10}
POLYNOMIAL = LINEAR | {"name": "polynomial", "power": 2}
COSINE = {"name": "cosine_decay", "init_value": 1.0, "decay_steps": 10}
EXPONENTIAL = {"name": "exponential_decay", "init_value": 1.0, "transition_steps": 10, "decay_rate": 0.5}
WARMUP = {"name": "warmup_cosine_decay", "init_value": 0.0, "peak_value": 1.0, "warmup_steps": 3, "decay_steps": 10}
PIECEWISE = {"name": "piecewise_constant", "init_value": 1.0, "boundaries_and_scales": {3: 0.5, 7: 0.1}}
ALL = [{"name": "constant", "value": 1.0}, LINEAR, POLYNOMIAL, COSINE, EXPONENTIAL, WARMUP, PIECEWISE]


def make(spec):
    """The schedule of a coefficient."""
    return schedules.make(TypeAdapter(schedules.Coefficient).validate_python(spec))


def read(**algorithm):
    return from_dict({"env": {"name": "probe:constant"}, "algorithm": algorithm})[0]


def line(spec: dict, field: str = "entropy_coef") -> str:
    """The line for a schedule with one fault."""
    with pytest.raises(ConfigError) as caught:
        read(**{field: spec})
    assert len(caught.value.lines) == 1, caught.value.lines
    return str(caught.value)


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
    assert make(0.25)(0) == make(0.25)(1000) == 0.25


def test_named_schedules():
    linear = make({"name": "linear", "init_value": 1.0, "end_value": 0.0, "transition_steps": 10})
    # 1 - 4 / 10
    np.testing.assert_allclose(linear(4), 0.6, rtol=1e-6)
    cosine = make({"name": "cosine_decay", "init_value": 2.0, "decay_steps": 100})
    # 2 * (1 + cos(pi / 2)) / 2 half-way
    np.testing.assert_allclose(cosine(50), 1.0, rtol=1e-6)
    decay = make({"name": "exponential_decay", "init_value": 8.0, "transition_steps": 1, "decay_rate": 0.5})
    # 8 * 0.5^3
    np.testing.assert_allclose(decay(3), 1.0, rtol=1e-6)


@pytest.mark.parametrize("field", ["entropy_coef", "schedule"])
@pytest.mark.parametrize(
    ("spec", "shown"),
    [({"name": "cosine"}, "'cosine'"), ({"name": ["linear"]}, "['linear']"), ({"value": 1}, "missing")],
)
def test_a_wrong_name(field, spec, shown):
    found = line(spec, field)
    assert found.startswith(f"algorithm.{field}.name: ")
    assert shown in found
    assert "one of constant, linear, polynomial, cosine_decay, exponential_decay" in found
    assert spec.get("name") != "cosine" or found.endswith("nearest is cosine_decay")


REFUSED = [
    # schedule, the key that is wrong, its values, what is allowed
    (LINEAR, "transition_steps", [0, -1], ">= 1"),
    (LINEAR, "transition_steps", [1.5, None, True], "an integer"),
    (LINEAR, "transition_steps", [1e12], "<= 1000000000"),
    (LINEAR, "transition_begin", [-1], ">= 0"),
    (LINEAR, "end_value", [1e31], "<= 1e+30"),
    (LINEAR, "init_value", [10**400, "high", True, None], "a number"),
    (LINEAR, "init_value", [np.nan], "a finite number"),
    (LINEAR, "steps", [3], "known are name, init_value, end_value, transition_steps, transition_begin"),
    (LINEAR, "init", [1], "nearest is init_value"),
    (POLYNOMIAL, "power", [0, -1], ">= 0.001"),
    (COSINE, "alpha", [1e30], "<= 1"),
    (EXPONENTIAL, "decay_rate", [0, -0.5], "> 0"),
    (EXPONENTIAL, "decay_rate", [2], "end_value at least init_value"),
    (EXPONENTIAL | {"end_value": 0.5}, "decay_rate", [2], "end_value at least init_value"),
    (EXPONENTIAL | {"end_value": 1, "init_value": 0}, "decay_rate", [2], "init_value above 0"),
    (EXPONENTIAL | {"end_value": 2}, "decay_rate", [0.5], "above 1 where end_value 2 is above init_value 1"),
    (EXPONENTIAL, "staircase", [1], "true or false"),
    (WARMUP, "decay_steps", [3], "above warmup_steps 3"),
    (WARMUP, "end_value", [-1.5], "no larger than peak_value 1"),
    (PIECEWISE, "boundaries_and_scales", [[1], 3], "a mapping"),
    (PIECEWISE, "boundaries_and_scales.3", [-1], ">= 0"),
    (
        PIECEWISE,
        "boundaries_and_scales",
        [{2: 1e20, 1: 1e20}],
        "1e+40 is not allowed; values must be numbers",
    ),
]


@pytest.mark.parametrize(
    ("schedule", "key", "value", "allowed"),
    [(schedule, key, value, allowed) for schedule, key, values, allowed in REFUSED for value in values],
)
def test_refused(schedule, key, value, allowed):
    name, _, inner = key.partition(".")
    found = line(schedule | {name: {int(inner): value} if inner else value})
    assert found.startswith(f"algorithm.entropy_coef.{key}: ")
    assert allowed in found


def test_boundaries_are_iterations():
    for boundary, allowed in ((1.5, "an integer"), (-3, ">= 0")):
        found = line(PIECEWISE | {"boundaries_and_scales": {boundary: 1}})
        assert found.startswith("algorithm.entropy_coef.boundaries_and_scales")
        assert f"{boundary} is not allowed; it must be {allowed}" in found


@pytest.mark.parametrize("schedule", ALL, ids=lambda schedule: schedule["name"])
def test_arguments_are_those_of_optax(schedule):
    """Each argument is checked, and each without a default is needed."""
    for key, parameter in inspect.signature(schedules.SCHEDULES[schedule["name"]]).parameters.items():
        assert f"algorithm.entropy_coef.{key}: 'x' is not allowed; it must be " in line(schedule | {key: "x"})
        if parameter.default is parameter.empty:
            without = {name: value for name, value in schedule.items() if name != key}
            assert line(without).startswith(f"algorithm.entropy_coef.{key}: it is missing")


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
    values = jax.jit(jax.vmap(make(spec)))(iterations)
    assert jnp.isfinite(values).all()
    assert jnp.abs(values).max() <= jnp.float32(1e30)


@pytest.mark.parametrize("schedule", ALL, ids=lambda schedule: schedule["name"])
def test_a_stored_schedule_has_the_keys_that_were_given(schedule):
    config = read(entropy_coef=schedule)
    assert to_dict(config)["algorithm"]["entropy_coef"] == schedule
    assert from_dict(to_dict(config))[0] == config


def test_numbers_may_be_written_as_yaml_reads_them():
    spec = LINEAR | {"transition_steps": 1e1, "transition_begin": "2", "init_value": "1e-0"}
    # 1 - (4 - 2) / 10
    np.testing.assert_allclose(schedules.make(read(entropy_coef=spec).algorithm.entropy_coef)(4), 0.8, rtol=1e-6)
    spec = PIECEWISE | {"boundaries_and_scales": {"3": "0.5", 5.0: 1}}
    np.testing.assert_allclose(schedules.make(read(entropy_coef=spec).algorithm.entropy_coef)(3), 0.5)


def test_a_coefficient_may_be_negative_and_a_learning_rate_may_not():
    falling = LINEAR | {"end_value": -1.0}
    assert read(entropy_coef=falling).algorithm.entropy_coef.end_value == -1.0
    assert line(falling, "schedule").startswith("algorithm.schedule.end_value: -1 is not allowed")
    found = line(PIECEWISE | {"boundaries_and_scales": {3: 2000}}, "schedule")
    assert found.startswith("algorithm.schedule.boundaries_and_scales: 2000 is not allowed")
    assert found.endswith("from 0 to 1000")


def test_learning_rate_of_an_iteration():
    schedule = {"name": "linear", "init_value": 1e-3, "end_value": 0.0, "transition_steps": 4}
    algorithm = make_algorithm(schedule=schedule, learning_rate=5.0)
    # 1e-3 * (1 - i / 4)
    np.testing.assert_allclose([algorithm.learning_rate(i) for i in (0, 1, 4)], [1e-3, 7.5e-4, 0.0], rtol=1e-5)
    for fixed in ("fixed", "adaptive"):
        np.testing.assert_allclose(make_algorithm(schedule=fixed, learning_rate=5.0).learning_rate(9), 5.0)


def test_a_stored_schedule_is_as_given():
    """Integers stay integers, and defaults are not added."""
    given = {"name": "linear", "init_value": 1, "end_value": 0, "transition_steps": 3}
    config, _ = from_dict({"env": {"name": "probe:action"}, "algorithm": {"schedule": given}})
    stored = to_dict(config)["algorithm"]["schedule"]
    assert stored == given
    assert [type(value) for value in stored.values()] == [type(value) for value in given.values()]
