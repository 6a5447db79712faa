"""torch's learning-rate schedulers: arithmetic, defaults, and what they refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from strl_jax.algorithms import lr_schedulers


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
        # one factor for each milestone reached, two for one that stands twice
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


@pytest.mark.parametrize("name", lr_schedulers.SCHEDULERS)
def test_float32_in_double_precision(name):
    arguments = {
        "StepLR": {"step_size": 3},
        "MultiStepLR": {"milestones": [2]},
        "ExponentialLR": {"gamma": 0.5},
        "CosineAnnealingLR": {"T_max": 5},
        "CosineAnnealingWarmRestarts": {"T_0": 5, "T_mult": 2},
    }.get(name, {})
    single = rates(name, [3], **arguments)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(rates(name, [3], **arguments), single)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("StepRL", {}, r"unknown lr_scheduler 'StepRL'; known: StepLR, MultiStepLR, .*PolynomialLR"),
        (None, {}, r"unknown lr_scheduler None; known: StepLR"),
        (["StepLR"], {}, r"unknown lr_scheduler \['StepLR'\]; known: "),
        ("LambdaLR", {}, r"lr_scheduler LambdaLR takes a function, which no config holds; known: StepLR"),
        ("StepLR", {}, r"lr_scheduler StepLR: step_size is missing; it must be an integer from 1"),
        ("StepLR", {"step_size": 2, "gama": 1}, r"StepLR: unknown argument 'gama'; it takes step_size, gamma$"),
        ("StepLR", {"step_size": 2, "initial": 1.0}, r"StepLR: unknown argument 'initial'"),
        ("StepLR", {"step_size": 0}, r"StepLR: step_size 0 is not allowed; it must be an integer from 1"),
        ("StepLR", {"step_size": 2.0}, r"StepLR: step_size 2\.0 is not allowed"),
        ("StepLR", {"step_size": True}, r"StepLR: step_size True is not allowed"),
        (
            "StepLR",
            {"step_size": 2, "gamma": 0},
            r"StepLR: gamma 0 is not allowed; it must be a number above 0, up to 1000",
        ),
        ("ExponentialLR", {"gamma": "0.5"}, r"ExponentialLR: gamma '0\.5' is not allowed"),
        ("ExponentialLR", {"gamma": float("nan")}, r"ExponentialLR: gamma nan is not allowed"),
        ("MultiStepLR", {"milestones": 3}, r"MultiStepLR: milestones 3 is not allowed; it must be a list of integers"),
        ("MultiStepLR", {"milestones": []}, r"MultiStepLR: milestones \[\] is not allowed"),
        ("MultiStepLR", {"milestones": [-1]}, r"MultiStepLR: milestones \[-1\] is not allowed"),
        ("CosineAnnealingLR", {"T_max": 0}, r"CosineAnnealingLR: T_max 0 is not allowed"),
        ("CosineAnnealingLR", {"T_max": 5, "eta_min": -1.0}, r"eta_min -1\.0 is not allowed; .* from 0 to 1000"),
        ("CosineAnnealingLR", {"T_max": 5, "eta_min": 10**400}, r"eta_min 10+ is not allowed; "),
        (
            "CosineAnnealingLR",
            {"T_max": 1.0e12},
            r"T_max 10{12}\.0 is not allowed; it must be an integer from 1 to 10{9}$",
        ),
        ("CosineAnnealingLR", {"T_max": None}, r"T_max null is not allowed"),
        ("ExponentialLR", {"gamma": 1e300}, r"gamma 1e\+300 is not allowed"),
        ("CosineAnnealingWarmRestarts", {"T_0": 5, "T_mult": 0}, r"T_mult 0 is not allowed"),
        ("LinearLR", {"start_factor": 0}, r"start_factor 0 is not allowed; it must be a number above 0, up to 1"),
        ("LinearLR", {"end_factor": 1.5}, r"end_factor 1\.5 is not allowed; it must be a number from 0 to 1"),
        ("ConstantLR", {"factor": 2}, r"factor 2 is not allowed"),
        ("PolynomialLR", {"power": 0}, r"power 0 is not allowed; it must be a number from 0\.001 to 1000"),
        ("PolynomialLR", {"total_iters": 0}, r"total_iters 0 is not allowed"),
    ],
)
def test_refused(name, arguments, message):
    with pytest.raises(ValueError, match=message):
        lr_schedulers.make(name, arguments, 1e-3)
