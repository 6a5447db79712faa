"""torch's schedulers that raise and lower the learning rate, and the momentum in the opposite direction.

"Cyclical Learning Rates for Training Neural Networks" (https://arxiv.org/abs/1506.01186), and "Super-Convergence:
Very Fast Training of Neural Networks Using Large Learning Rates" (https://arxiv.org/abs/1708.07120).
"""

import math
from typing import Annotated, Literal

import jax.numpy as jnp
from pydantic import Field, model_validator

from strl_jax.algorithms.scheduler import Scheduler
from strl_jax.algorithms.schedules import LARGEST, Factor, Steps
from strl_jax.section import Fraction, Positive
from strl_jax.types import Array

Rate = Annotated[float, Field(ge=0, le=1e3)]  # training diverges with larger rates
Momentum = Annotated[float, Field(ge=0, lt=1)]


class Cycle(Scheduler):
    """A scheduler that also changes the momentum."""

    cycle_momentum: bool = True

    @property
    def changes_momentum(self) -> bool:
        """As ``cycle_momentum`` says."""
        return self.cycle_momentum


class CyclicLR(Cycle):
    """From ``base_lr`` to ``max_lr`` and back, again and again; the optimiser's learning rate is not used."""

    base_lr: Rate
    max_lr: Rate
    step_size_up: Steps = 2000
    step_size_down: Steps | None = None
    mode: Literal["triangular", "triangular2", "exp_range"] = "triangular"
    gamma: Factor = 1.0
    base_momentum: Momentum = 0.8
    max_momentum: Momentum = 0.9

    def rate(self, initial, i):
        return self.base_lr + (self.max_lr - self.base_lr) * self._height(i)

    def momentum(self, i):
        return self.max_momentum - (self.max_momentum - self.base_momentum) * self._height(i)

    def _height(self, i: Array) -> Array:
        """0 at the start of a cycle, and at its peak the scale of the mode: 1, 0.5^cycle or gamma^i."""
        up, down = self.step_size_up, self.step_size_down or self.step_size_up
        now, cycle = i % (up + down), i // (up + down)
        height = jnp.where(now <= up, now / up, (up + down - now) / down)
        if self.mode == "triangular":
            return height
        return height * (power(0.5, cycle) if self.mode == "triangular2" else power(self.gamma, i))


class OneCycleLR(Cycle):
    """Up to ``max_lr``, then down for the rest of ``total_steps``; the optimiser's learning rate is not used.

    ``total_steps`` may be given as ``epochs * steps_per_epoch``. After them, torch raises an error; here the last
    values stay.
    """

    max_lr: Rate
    total_steps: Steps | None = None
    epochs: Steps | None = None
    steps_per_epoch: Steps | None = None
    pct_start: Fraction = 0.3
    anneal_strategy: Literal["cos", "linear"] = "cos"
    base_momentum: Momentum = 0.85
    max_momentum: Momentum = 0.95
    div_factor: Positive = 25.0
    final_div_factor: Positive = 1e4
    three_phase: bool = False

    @model_validator(mode="after")
    def _steps_are_given_once(self):
        whole, parts = self.total_steps is not None, [self.epochs is not None, self.steps_per_epoch is not None]
        if whole == all(parts) or whole == any(parts):
            raise ValueError("total_steps: it must be given, or epochs and steps_per_epoch in its place")
        if self._last >= LARGEST:
            raise ValueError(f"epochs: {self.epochs} times steps_per_epoch must be at most {LARGEST}")
        return self

    @property
    def _last(self) -> int:
        """The last step."""
        return (self.total_steps or self.epochs * self.steps_per_epoch) - 1

    def rate(self, initial, i):
        start = self.max_lr / self.div_factor
        end = start / self.final_div_factor
        middle = (start,) if self.three_phase else ()
        return self._annealed((start, self.max_lr, *middle, end), i)

    def momentum(self, i):
        middle = (self.max_momentum,) if self.three_phase else ()
        return self._annealed((self.max_momentum, self.base_momentum, *middle, self.max_momentum), i)

    def _annealed(self, values: tuple[float, ...], i: Array) -> Array:
        """From each value to the next one, in one phase each."""
        last = self._last
        peak = self.pct_start * (last + 1) - 1  # the phases end between two steps
        ends = (peak, 2 * peak, last) if self.three_phase else (peak, last)
        i, result = jnp.minimum(i, last), None
        for start, end, before, after in reversed(list(zip((0, *ends), ends, values, values[1:], strict=False))):
            left = (end - i) / ((end - start) or 1.0)  # from 1 to 0
            phase = after + (before - after) * self._height(left)
            result = phase if result is None else jnp.where(i <= end, phase, result)
        return result

    def _height(self, left: Array) -> Array:
        """From 1 to 0 as ``left`` does: (1 - cos(pi left)) / 2, or ``left`` itself."""
        return left if self.anneal_strategy == "linear" else jnp.square(jnp.sin(0.5 * jnp.pi * left))


def power(base: float, exponent: Array) -> Array:
    """``base ** exponent``. The logarithm is in float64: a large exponent would multiply an error in float32."""
    return jnp.exp(exponent.astype(jnp.float32) * math.log(base))
