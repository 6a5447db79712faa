"""torch's learning-rate schedulers: arithmetic, defaults, and what they refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from strl_jax.algorithms import lr_schedulers
from strl_jax.config import ConfigError, from_dict

NEEDED = {
    "StepLR": {"step_size": 3},
    "MultiStepLR": {"milestones": [2]},
    "ExponentialLR": {"gamma": 0.5},
    "CosineAnnealingLR": {"T_max": 5},
    "CosineAnnealingWarmRestarts": {"T_0": 5, "T_mult": 2},
    "CyclicLR": {"base_lr": 0.1, "max_lr": 1.0},
    "OneCycleLR": {"max_lr": 1.0, "total_steps": 9},
}
FUNCTIONS = [name for name in lr_schedulers.SCHEDULERS if name != "ReduceLROnPlateau"]  # of the iteration


def rates(name: str, iterations: list[int], **arguments) -> np.ndarray:
    """Learning rates from an initial 2.0."""
    schedule = jax.jit(lr_schedulers.make(name, arguments, 2.0))
    actual = [schedule(jnp.int32(i)) for i in iterations]
    assert all(rate.dtype == jnp.float32 for rate in actual)
    return np.asarray(actual)


@pytest.mark.parametrize(
    ("name", "arguments", "iterations", "expected"),
    [
        # 2 * 0.1^(i // 3)
        ("StepLR", {"step_size": 3}, [0, 2, 3, 6], [2.0, 2.0, 0.2, 0.02]),
        # one factor for each milestone reached, two for one that is listed twice
        ("MultiStepLR", {"milestones": [4, 2, 4], "gamma": 0.5}, [1, 2, 3, 4], [2.0, 1.0, 1.0, 0.25]),
        ("MultiStepLR", {"milestones": [1]}, [0, 1], [2.0, 0.2]),
        # 2 * 0.5^i
        ("ExponentialLR", {"gamma": 0.5}, [0, 1, 3], [2.0, 1.0, 0.25]),
        # 1 + 1 * (1 + cos(pi i / 4)) / 2, up again after T_max
        ("CosineAnnealingLR", {"T_max": 4, "eta_min": 1.0}, [0, 2, 4, 6, 8, 10], [2.0, 1.5, 1.0, 1.5, 2.0, 1.5]),
        ("CosineAnnealingLR", {"T_max": 2}, [0, 1, 2], [2.0, 1.0, 0.0]),
        # 2 * (1/3 + i / 5 * 2/3)
        ("LinearLR", {}, [0, 1, 5, 9], [2 / 3, 2 * (1 / 3 + 2 / 15), 2.0, 2.0]),
        # 2 * (1 - i / 4 * 0.5)
        ("LinearLR", {"start_factor": 1, "end_factor": 0.5, "total_iters": 4}, [2, 4, 7], [1.5, 1.0, 1.0]),
        # 2 / 3 for five updates
        ("ConstantLR", {}, [0, 4, 5], [2 / 3, 2 / 3, 2.0]),
        ("ConstantLR", {"factor": 0.25, "total_iters": 1}, [0, 1], [0.5, 2.0]),
        # 2 * (1 - i / 5)
        ("PolynomialLR", {}, [0, 1, 5, 6], [2.0, 1.6, 0.0, 0.0]),
        # 2 * (1 - i / 4)^2
        ("PolynomialLR", {"total_iters": 4, "power": 2.0}, [1, 2, 4], [1.125, 0.5, 0.0]),
        # 2 * (1 + cos(pi (i mod 4) / 4)) / 2
        ("CosineAnnealingWarmRestarts", {"T_0": 4}, [0, 2, 4, 6], [2.0, 1.0, 2.0, 1.0]),
        # periods of 2, 4, 8: they start at 0, 2, 6, and their middles are 1, 4, 10
        (
            "CosineAnnealingWarmRestarts",
            {"T_0": 2, "T_mult": 2, "eta_min": 1.0},
            [0, 1, 2, 4, 6, 10],
            [2.0, 1.5, 2.0, 1.5, 2.0, 1.5],
        ),
    ],
)
def test_formulas(name, arguments, iterations, expected):
    np.testing.assert_allclose(rates(name, iterations, **arguments), expected, rtol=1e-6, atol=1e-7)


def test_restarts_far_away():
    """The period number n of T_0 = 10, T_mult = 3 starts at 10 (3^n - 1) / 2; one step earlier it is near its end."""
    for n in (1, 5, 10, 15):
        start, period = 10 * (3**n - 1) // 2, 10 * 3 ** (n - 1)
        # cos(pi / 2 (1 - 1 / period))^2 = sin(pi / (2 period))^2
        before = 2.0 * np.sin(np.pi / (2 * period)) ** 2
        actual = rates("CosineAnnealingWarmRestarts", [start, start - 1], T_0=10, T_mult=3)
        np.testing.assert_allclose(actual, [2.0, before], rtol=1e-6, atol=1e-6)


def test_many_iterations_keep_their_digits():
    # 0.9999^100000, and cos at 1000003 = 3 mod 20: 1 + cos(3 pi / 10)
    np.testing.assert_allclose(rates("ExponentialLR", [100_000], gamma=0.9999), 2 * 0.9999**100_000, rtol=1e-5)
    expected = 1 + np.cos(0.3 * np.pi)
    np.testing.assert_allclose(rates("CosineAnnealingLR", [1_000_003], T_max=10), expected, rtol=1e-6)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_in_double_precision(name):
    arguments = NEEDED.get(name, {})
    single = rates(name, [3], **arguments)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(rates(name, [3], **arguments), single)


def line(name, arguments: dict, **algorithm) -> str:
    """The line for a scheduler with one fault."""
    algorithm = {"lr_scheduler_class_name": name, "lr_scheduler": arguments, **algorithm}
    data = {"env": {"name": "probe:constant"}, "runner": {"algorithm_class_name": "TPPO"}, "algorithm": algorithm}
    with pytest.raises(ConfigError) as caught:
        from_dict(data)
    assert len(caught.value.lines) == 1, caught.value.lines
    return str(caught.value)


REFUSED = [
    # scheduler, the key that is wrong, its values, what is allowed
    ("StepLR", "step_size", [0], ">= 1"),
    ("StepLR", "step_size", [2.5, True, None, "2"], "an integer"),
    ("StepLR", "gama", [1], "StepLR takes step_size, gamma"),
    ("StepLR", "initial", [1.0], "StepLR takes step_size, gamma"),
    ("StepLR", "gamma", [0], "> 0"),
    ("ExponentialLR", "gamma", ["0.5"], "a number"),
    ("ExponentialLR", "gamma", [float("nan")], "a finite number"),
    ("ExponentialLR", "gamma", [1e300], "<= 1000"),
    ("MultiStepLR", "milestones", [3, []], "a list"),
    ("MultiStepLR", "milestones.0", [[-1]], ">= 0"),
    ("CosineAnnealingLR", "T_max", [10**12], "<= 1000000000"),
    ("CosineAnnealingLR", "eta_min", [-1.0], ">= 0"),
    ("CosineAnnealingLR", "eta_min", [10**400], "a number"),
    ("CosineAnnealingWarmRestarts", "T_mult", [0], ">= 1"),
    ("LinearLR", "start_factor", [0], "> 0"),
    ("LinearLR", "end_factor", [1.5], "<= 1"),
    ("ConstantLR", "factor", [2], "<= 1"),
    ("PolynomialLR", "power", [0], ">= 0.001"),
    ("PolynomialLR", "total_iters", [0], ">= 1"),
    ("CyclicLR", "max_lr", [-1.0], ">= 0"),
    ("CyclicLR", "mode", ["exp"], "triangular, triangular2, exp_range"),
    ("CyclicLR", "scale_fn", ["f"], "CyclicLR takes "),
    ("CyclicLR", "max_momentum", [1.0], "< 1"),
    ("OneCycleLR", "total_steps", [None], "epochs and steps_per_epoch"),
    ("OneCycleLR", "anneal_strategy", ["cosine"], "cos, linear"),
    ("OneCycleLR", "pct_start", [1.5], "<= 1"),
    ("ReduceLROnPlateau", "factor", [1.0], "< 1"),
    ("ReduceLROnPlateau", "patience", [-1], ">= 0"),
    ("ReduceLROnPlateau", "mode", ["least"], "min, max"),
]


@pytest.mark.parametrize(
    ("name", "key", "value", "allowed"),
    [(name, key, value, allowed) for name, key, values, allowed in REFUSED for value in values],
)
def test_refused(name, key, value, allowed):
    found = line(name, NEEDED.get(name, {}) | {key.split(".")[0]: value})
    assert found.startswith(f"algorithm.lr_scheduler.{key}: ")
    assert allowed in found


@pytest.mark.parametrize("name", NEEDED)
def test_an_argument_is_missing(name):
    key = next(iter(NEEDED[name]))
    assert line(name, {}).startswith(f"algorithm.lr_scheduler.{key}: it is missing")


@pytest.mark.parametrize("name", ["StepRL", "LambdaLR", ["StepLR"]])
def test_unknown_name(name):
    found = line(name, {})
    assert found.startswith(f"algorithm.lr_scheduler_class_name: {name!r} is not allowed; it must be one of StepLR, ")


def test_what_excludes_a_scheduler():
    assert line(None, {"step_size": 2}).startswith("algorithm.lr_scheduler: {'step_size': 2} is not allowed")
    found = line("StepLR", {"step_size": 2}, schedule="adaptive")
    assert found.startswith("algorithm.lr_scheduler_class_name: StepLR is not allowed")
    assert "schedule must be fixed" in found


@pytest.mark.parametrize(
    "arguments",
    [
        {"total_steps": 9, "epochs": 3},
        {"epochs": 3},
        {"epochs": 3, "steps_per_epoch": 3, "total_steps": 9},
    ],
)
def test_one_cycle_needs_its_steps_once(arguments):
    found = line("OneCycleLR", {"max_lr": 1.0} | arguments)
    assert found.startswith("algorithm.lr_scheduler.total_steps: ")
    assert "epochs and steps_per_epoch" in found


def test_one_cycle_stays_at_its_end():
    """From 1 / 25 up to 1 and down to 1 / 25 / 1e4; the last step is 8."""
    actual = rates("OneCycleLR", [0, 8, 9, 10**9], max_lr=1.0, total_steps=9)
    np.testing.assert_allclose(actual, [1 / 25, 4e-6, 4e-6, 4e-6], rtol=1e-5)


def test_whole_floats_are_numbers_of_steps():
    """YAML reads 1e3 as a float."""
    np.testing.assert_array_equal(
        rates("StepLR", [999, 1000], step_size=1e3), rates("StepLR", [999, 1000], step_size=1000)
    )


@pytest.mark.parametrize("optimizer", ["Adagrad", "Adadelta"])
@pytest.mark.parametrize("name", ["CyclicLR", "OneCycleLR"])
def test_momentum_is_cycled_where_there_is_one(name, optimizer):
    found = line(name, NEEDED[name], optimizer_class_name=optimizer)
    assert found.startswith("algorithm.lr_scheduler.cycle_momentum: ")
    assert optimizer in found
    assert "false" in found
    arguments = NEEDED[name] | {"cycle_momentum": False}
    algorithm = {"lr_scheduler_class_name": name, "lr_scheduler": arguments, "optimizer_class_name": optimizer}
    from_dict({"env": {"name": "probe:constant"}, "runner": {"algorithm_class_name": "TPPO"}, "algorithm": algorithm})
