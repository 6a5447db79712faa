"""Learning rates under the names of ``torch.optim.lr_scheduler``, as functions of the number of updates done."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import optax

from strl_jax.algorithms.arguments import (
    FACTOR,
    FRACTION,
    LARGEST,
    POWER,
    RATE,
    Allowed,
    above_0,
    count,
    faults,
    parameters,
)
from strl_jax.types import Array

OF_FUNCTIONS = ("LambdaLR", "MultiplicativeLR")


def make(name: str, arguments: Mapping[str, Any], initial: float) -> optax.Schedule:
    """The learning rate, float32, after ``iteration`` (int32) steps of torch's scheduler ``name``.

    Args:
        name: one of ``SCHEDULERS``.
        arguments: torch's, with torch's defaults for those left out.
        initial: the optimiser's learning rate.

    Raises:
        ValueError: unknown name; an argument that is unknown, missing or not
            allowed. The message names scheduler and argument, and says what is.
    """
    if name in OF_FUNCTIONS:
        raise ValueError(f"lr_scheduler {name} takes a function, which no config holds; known: {', '.join(SCHEDULERS)}")
    if name not in list(SCHEDULERS):
        raise ValueError(f"unknown lr_scheduler {name!r}; known: {', '.join(SCHEDULERS)}")
    known = parameters(SCHEDULERS[name], skip=1)
    fault = next(faults(known, ALLOWED, arguments), None)
    if fault is not None:
        raise ValueError(f"lr_scheduler {name}: {fault}")
    return _in_float32(SCHEDULERS[name](initial, **arguments))


def _in_float32(schedule: Callable[[Array], Array]) -> optax.Schedule:
    return lambda iteration: jnp.asarray(schedule(jnp.asarray(iteration, jnp.int32)), jnp.float32)


def _step(initial: float, step_size: int, gamma: float = 0.1):
    return lambda i: initial * _power(gamma, i // step_size)


def _multi_step(initial: float, milestones: list[int], gamma: float = 0.1):
    return lambda i: initial * _power(gamma, jnp.sum(i >= jnp.asarray(milestones, jnp.int32), dtype=jnp.int32))


def _exponential(initial: float, gamma: float):
    return lambda i: initial * _power(gamma, i)


def _cosine(initial: float, T_max: int, eta_min: float = 0.0):
    return lambda i: _half_wave(initial, eta_min, i % (2 * T_max), T_max)


def _warm_restarts(initial: float, T_0: int, T_mult: int = 1, eta_min: float = 0.0):
    if T_mult == 1:
        return lambda i: _half_wave(initial, eta_min, i % T_0, T_0)
    starts, periods = [0], [T_0]  # a logarithm of i would be off at some restarts
    while starts[-1] + periods[-1] <= 2 * LARGEST:
        starts.append(starts[-1] + periods[-1])
        periods.append(periods[-1] * T_mult)

    def schedule(i):
        n = jnp.sum(i >= jnp.asarray(starts, jnp.int32)) - 1
        return _half_wave(initial, eta_min, i - jnp.asarray(starts, jnp.int32)[n], jnp.asarray(periods, jnp.float32)[n])

    return schedule


def _linear(initial: float, start_factor: float = 1 / 3, end_factor: float = 1.0, total_iters: int = 5):
    schedule = optax.linear_schedule(initial * start_factor, initial * end_factor, total_iters)
    return lambda i: schedule(i.astype(jnp.float32))


def _constant(initial: float, factor: float = 1 / 3, total_iters: int = 5):
    return lambda i: jnp.where(i < total_iters, initial * factor, initial)


def _polynomial(initial: float, total_iters: int = 5, power: float = 1.0):
    schedule = optax.polynomial_schedule(initial, 0.0, power, total_iters)
    return lambda i: schedule(i.astype(jnp.float32))


def _power(base: float, exponent: Array) -> Array:
    """A power with its base's logarithm from float64: a large exponent multiplies the base's error."""
    return jnp.exp(exponent.astype(jnp.float32) * math.log(base))


def _half_wave(initial: float, least: float, now: Array, period: Array | int) -> Array:
    """From ``initial`` at 0 down to ``least`` at ``period``: (1 + cos(pi t)) / 2 = cos(pi t / 2)^2."""
    phase = now.astype(jnp.float32) / period
    return least + (initial - least) * jnp.square(jnp.cos(0.5 * jnp.pi * phase))


SCHEDULERS: dict[str, Callable[..., Callable[[Array], Array]]] = {
    "StepLR": _step,
    "MultiStepLR": _multi_step,
    "ExponentialLR": _exponential,
    "CosineAnnealingLR": _cosine,
    "CosineAnnealingWarmRestarts": _warm_restarts,
    "LinearLR": _linear,
    "ConstantLR": _constant,
    "PolynomialLR": _polynomial,
}


def _are_milestones(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) > 0 and all(map(count(0).fits, value))


ALLOWED: dict[str, Allowed] = {
    "step_size": count(),
    "milestones": Allowed(f"a list of integers from 0 to {LARGEST}", _are_milestones),
    "gamma": FACTOR,
    "T_max": count(),
    "T_0": count(),
    "T_mult": count(),
    "eta_min": RATE,
    "start_factor": above_0(1),
    "end_factor": FRACTION,
    "factor": FRACTION,
    "total_iters": count(),
    "power": POWER,
}
