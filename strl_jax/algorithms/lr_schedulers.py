"""Learning rates under the names of ``torch.optim.lr_scheduler``, as functions of the number of updates done.

One model for each scheduler: its fields are torch's arguments with torch's defaults.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import jax.numpy as jnp
import optax
from pydantic import Field

from strl_jax.algorithms.lr_cycles import CyclicLR, OneCycleLR, Rate, power
from strl_jax.algorithms.plateau import ReduceLROnPlateau
from strl_jax.algorithms.scheduler import Scheduler
from strl_jax.algorithms.schedules import LARGEST, Factor, Power, Step, Steps
from strl_jax.section import Fraction
from strl_jax.types import Array


class StepLR(Scheduler):
    step_size: Steps
    gamma: Factor = 0.1

    def rate(self, initial, i):
        return initial * power(self.gamma, i // self.step_size)


class MultiStepLR(Scheduler):
    milestones: Annotated[tuple[Step, ...], Field(strict=False, min_length=1)]
    gamma: Factor = 0.1

    def rate(self, initial, i):
        return initial * power(self.gamma, jnp.sum(i >= jnp.asarray(self.milestones, jnp.int32), dtype=jnp.int32))


class ExponentialLR(Scheduler):
    gamma: Factor

    def rate(self, initial, i):
        return initial * power(self.gamma, i)


class CosineAnnealingLR(Scheduler):
    T_max: Steps
    eta_min: Rate = 0.0

    def rate(self, initial, i):
        return _half_wave(initial, self.eta_min, i % (2 * self.T_max), self.T_max)


class CosineAnnealingWarmRestarts(Scheduler):
    T_0: Steps
    T_mult: Steps = 1
    eta_min: Rate = 0.0

    def rate(self, initial, i):
        if self.T_mult == 1:
            return _half_wave(initial, self.eta_min, i % self.T_0, self.T_0)
        starts, periods = [0], [self.T_0]  # a logarithm of i would be wrong at some restarts
        while starts[-1] + periods[-1] <= 2 * LARGEST:
            starts.append(starts[-1] + periods[-1])
            periods.append(periods[-1] * self.T_mult)
        n = jnp.sum(i >= jnp.asarray(starts, jnp.int32)) - 1
        period = jnp.asarray(periods, jnp.float32)[n]
        return _half_wave(initial, self.eta_min, i - jnp.asarray(starts, jnp.int32)[n], period)


class LinearLR(Scheduler):
    start_factor: Annotated[float, Field(gt=0, le=1)] = 1 / 3
    end_factor: Fraction = 1.0
    total_iters: Steps = 5

    def rate(self, initial, i):
        schedule = optax.linear_schedule(initial * self.start_factor, initial * self.end_factor, self.total_iters)
        return schedule(i.astype(jnp.float32))


class ConstantLR(Scheduler):
    factor: Fraction = 1 / 3
    total_iters: Steps = 5

    def rate(self, initial, i):
        return jnp.where(i < self.total_iters, initial * self.factor, initial)


class PolynomialLR(Scheduler):
    total_iters: Steps = 5
    power: Power = 1.0

    def rate(self, initial, i):
        return optax.polynomial_schedule(initial, 0.0, self.power, self.total_iters)(i.astype(jnp.float32))


SCHEDULERS: dict[str, type[Scheduler]] = {
    kind.__name__: kind
    for kind in (
        StepLR,
        MultiStepLR,
        ExponentialLR,
        CosineAnnealingLR,
        CosineAnnealingWarmRestarts,
        LinearLR,
        ConstantLR,
        PolynomialLR,
        CyclicLR,
        OneCycleLR,
        ReduceLROnPlateau,
    )
}


def find(name: str, arguments: Mapping[str, Any]) -> Scheduler:
    """torch's scheduler ``name``; errors as in ``make``."""
    return SCHEDULERS[name].model_validate(arguments)


def make(name: str, arguments: Mapping[str, Any], initial: float) -> optax.Schedule:
    """The learning rate, float32, after ``iteration`` (int32) steps of torch's scheduler ``name``.

    Args:
        name: one of ``SCHEDULERS``.
        arguments: arguments of torch's scheduler; those that are missing have torch's defaults.
        initial: the optimiser's learning rate.

    Raises:
        KeyError: unknown name.
        pydantic.ValidationError: an argument that is unknown, missing or not allowed.
    """
    return find(name, arguments).schedule(initial)


def _half_wave(initial: float, least: float, now: Array, period: Array | int) -> Array:
    """Half a cosine wave, ``initial`` at 0 and ``least`` at ``period``: (1 + cos(pi t)) / 2, t = now / period."""
    phase = now.astype(jnp.float32) / period
    return least + (initial - least) * jnp.square(jnp.cos(0.5 * jnp.pi * phase))
