"""Schedules: numbers that change with the iteration, and the KL-adaptive learning rate.

A config has a number, or a mapping of ``name`` and the arguments of optax's schedule
of that name. Optax accepts nearly every argument and computes a constant or NaN from
some of them; the models here have bounds within which every value is finite.
"""

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

import jax.numpy as jnp
import optax
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    WrapValidator,
    field_validator,
    model_serializer,
    model_validator,
)

from strl_jax.section import Fraction, Section
from strl_jax.types import Array

LARGEST = 10**9  # iterations; twice this number still fits into int32


def _whole(value: Any) -> Any:
    """A whole float as an integer: YAML reads 1e3 as a float."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _unchanged(value: Any, check: Callable[[Any], float]) -> Any:
    """An integer stays an integer: x**2 and x**2.0 differ in the last bit, and a stored config is as given."""
    check(value)
    return value


Factor = Annotated[float, Field(gt=0, le=1000), WrapValidator(_unchanged)]
Power = Annotated[float, Field(ge=1e-3, le=1e3), WrapValidator(_unchanged)]  # beyond: 0 or 1 in float32
Number = Annotated[float, Field(ge=-1e30, le=1e30)]  # float32 holds their differences too
Value = Annotated[Number, WrapValidator(_unchanged)]
Steps = Annotated[int, Field(ge=1, le=LARGEST), BeforeValidator(_whole)]  # a number of iterations
Step = Annotated[int, Field(ge=0, le=LARGEST), BeforeValidator(_whole)]  # an iteration, or a number that may be 0


class Schedule(Section):
    """One of optax's schedules; an iteration is an update of the policy.

    Attributes:
        name: name of the schedule.
        value: the constant.
        init_value, peak_value, end_value: value at the start, after the warm-up, and at the end.
        transition_begin: iterations before the value starts to change.
        transition_steps: iterations of the change; of exponential_decay, those of one decay_rate.
        decay_steps: iterations until the end of the decay; they include the warm-up.
        warmup_steps: iterations of the linear rise to peak_value.
        power: of the polynomial.
        alpha: end value as a share of init_value.
        exponent: of the cosine.
        decay_rate: factor after transition_steps iterations.
        staircase: the value changes at every multiple of transition_steps only.
        boundaries_and_scales: iteration to the factor that multiplies the value from this iteration on.
    """

    model_config = ConfigDict(strict=True)

    name: str

    def values(self) -> Iterator[tuple[str, float]]:
        """Pairs (argument, value) of values of the schedule; all its other values lie between these."""
        for key in ("value", "init_value", "peak_value", "end_value"):
            value = getattr(self, key, None)
            if value is not None:
                yield key, value

    @model_serializer(mode="wrap")
    def _as_given(self, serialize: Callable) -> dict[str, Any]:
        """Without defaults: a stored config has the keys that its author wrote."""
        return {key: value for key, value in serialize(self).items() if key in self.model_fields_set}


def _check_values(schedule: Schedule, least: float, most: float) -> Schedule:
    for key, value in schedule.values():
        if not least <= value <= most:
            raise ValueError(f"{key}: {value:g} is not allowed; values must be numbers from {least:g} to {most:g}")
    return schedule


class ConstantSchedule(Schedule):
    """The same value in every iteration."""

    name: Literal["constant"]
    value: Value


class LinearSchedule(Schedule):
    """A straight line from one value to another, then constant."""

    name: Literal["linear"]
    init_value: Value
    end_value: Value
    transition_steps: Steps
    transition_begin: Step = 0


class PolynomialSchedule(Schedule):
    """A polynomial from one value to another, then constant."""

    name: Literal["polynomial"]
    init_value: Value
    end_value: Value
    power: Power
    transition_steps: Steps
    transition_begin: Step = 0


class CosineDecaySchedule(Schedule):
    """Half a cosine wave from init_value to alpha * init_value, then constant."""

    name: Literal["cosine_decay"]
    init_value: Value
    decay_steps: Steps
    alpha: Fraction = 0.0
    exponent: Power = 1.0


class ExponentialDecaySchedule(Schedule):
    """init_value * decay_rate^(iteration / transition_steps), up to end_value."""

    name: Literal["exponential_decay"]
    init_value: Value
    transition_steps: Steps
    end_value: Value | None = None  # before decay_rate, whose check reads it
    decay_rate: Factor
    transition_begin: Step = 0
    staircase: bool = False

    @field_validator("decay_rate")
    @classmethod
    def _limited(cls, rate: float, info: Any) -> float:
        """Growth needs ``end_value`` as an upper limit; for decay, ``end_value`` is an optional lower limit."""
        start, end = info.data.get("init_value"), info.data.get("end_value")
        if start is None or "end_value" not in info.data:
            return rate  # that value is reported as an error already
        if rate <= 1 and end is not None and end > start:
            raise ValueError(f"it must be above 1 where end_value {end:g} is above init_value {start:g}")
        if rate > 1 and (start <= 0 or end is None or end < start):
            raise ValueError("it must be at most 1, or init_value above 0 and end_value at least init_value")
        return rate


class WarmupCosineDecaySchedule(Schedule):
    """A linear rise to peak_value, then half a cosine wave to end_value."""

    name: Literal["warmup_cosine_decay"]
    init_value: Value
    peak_value: Value
    warmup_steps: Step
    decay_steps: Steps
    end_value: Value = 0.0
    exponent: Power = 1.0

    @field_validator("decay_steps")
    @classmethod
    def _includes_the_warmup(cls, steps: int, info: Any) -> int:
        if steps <= info.data.get("warmup_steps", 0):
            raise ValueError(f"it must be above warmup_steps {info.data['warmup_steps']}, which it includes")
        return steps

    @field_validator("end_value")
    @classmethod
    def _at_most_the_peak(cls, end: float, info: Any) -> float:
        peak = info.data.get("peak_value")  # optax takes their ratio
        if peak is not None and abs(end) > abs(peak):
            raise ValueError(f"it must be no larger than peak_value {peak:g}")
        return end


class PiecewiseConstantSchedule(Schedule):
    """A constant that is multiplied by a factor at each of several iterations."""

    name: Literal["piecewise_constant"]
    init_value: Value
    boundaries_and_scales: dict[Step, Annotated[float, Field(ge=0, le=1e30)]] | None = None

    def values(self) -> Iterator[tuple[str, float]]:
        """Adds the value after each boundary."""
        yield from super().values()
        value = self.init_value
        for _, scale in sorted((self.boundaries_and_scales or {}).items()):
            value *= scale
            yield "boundaries_and_scales", value

    @model_validator(mode="after")
    def _finite(self):
        return _check_values(self, -1e30, 1e30)


SCHEDULES: dict[str, Callable[..., optax.Schedule]] = {
    "constant": optax.constant_schedule,
    "linear": optax.linear_schedule,
    "polynomial": optax.polynomial_schedule,
    "cosine_decay": optax.cosine_decay_schedule,
    "exponential_decay": optax.exponential_decay,
    "warmup_cosine_decay": optax.warmup_cosine_decay_schedule,
    "piecewise_constant": optax.piecewise_constant_schedule,
}

AnySchedule = Annotated[
    ConstantSchedule
    | LinearSchedule
    | PolynomialSchedule
    | CosineDecaySchedule
    | ExponentialDecaySchedule
    | WarmupCosineDecaySchedule
    | PiecewiseConstantSchedule,
    Field(discriminator="name"),
]
Coefficient = Number | AnySchedule
# a learning rate: training diverges with rates above 1000
RateSchedule = Annotated[AnySchedule, AfterValidator(lambda schedule: _check_values(schedule, 0, 1e3))]
# a time limit in steps
LengthSchedule = Annotated[AnySchedule, AfterValidator(lambda schedule: _check_values(schedule, 1, LARGEST))]


def make(spec: float | Schedule) -> optax.Schedule:
    """A number or a schedule of a config as a function of the iteration."""
    if not isinstance(spec, Schedule):
        return optax.constant_schedule(spec)
    return SCHEDULES[spec.name](**{key: getattr(spec, key) for key in spec.model_fields_set - {"name"}})


def adapt(
    learning_rate: Array,
    kl: Array,
    desired_kl: float,
    *,
    low: float = 1e-5,
    high: float = 1e-2,
    factor: float = 1.5,
) -> Array:
    """The KL-adaptive learning rate of legged_gym and st_rl.

    Divided by ``factor`` where ``kl`` is above 2 ``desired_kl``, multiplied by it where
    ``kl`` is below half of ``desired_kl`` (and above 0), never outside of [low, high].
    """
    slower = jnp.maximum(low, learning_rate / factor)
    faster = jnp.minimum(high, learning_rate * factor)
    return jnp.where(
        kl > 2.0 * desired_kl, slower, jnp.where((kl < 0.5 * desired_kl) & (kl > 0.0), faster, learning_rate)
    )
