"""Numbers that change with the iteration, and the adaptive learning rate."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any

import jax.numpy as jnp
import optax
from pydantic import AfterValidator, Field

from strl_jax.algorithms.arguments import RATE, Allowed
from strl_jax.algorithms.schedule_arguments import COEFFICIENTS, faults, read
from strl_jax.types import Array

SCHEDULES: dict[str, Callable[..., optax.Schedule]] = {
    "constant": optax.constant_schedule,
    "linear": optax.linear_schedule,
    "polynomial": optax.polynomial_schedule,
    "cosine_decay": optax.cosine_decay_schedule,
    "exponential_decay": optax.exponential_decay,
    "warmup_cosine_decay": optax.warmup_cosine_decay_schedule,
    "piecewise_constant": optax.piecewise_constant_schedule,
}


def make(spec: float | Mapping, values: Allowed = COEFFICIENTS) -> optax.Schedule:
    """A number, or ``{"name": NAME, **arguments}`` of the optax schedule, as a function of the iteration.

    Args:
        values: what the values may be: COEFFICIENTS, or RATE.

    Raises:
        ValueError: unknown name, or an argument that is unknown, missing or not
            allowed. The message names schedule and argument, and says what is.
    """
    if not isinstance(spec, Mapping):
        return optax.constant_schedule(spec)
    name = spec.get("name")
    if name not in list(SCHEDULES):
        found = f"unknown schedule {name!r}" if "name" in spec else "the name of the schedule is missing"
        raise ValueError(f"{found}; known: {', '.join(SCHEDULES)}")
    arguments = read(spec)
    wrong = faults(name, SCHEDULES[name], arguments, values)
    if wrong:
        raise ValueError(f"schedule {name}: {wrong[0]}")
    return SCHEDULES[name](**arguments)


def _known(value: Any, values: Allowed = COEFFICIENTS) -> Any:
    if isinstance(value, dict):
        make(value, values)
    return value


KnownRate = AfterValidator(partial(_known, values=RATE))
Coefficient = Annotated[  # a number, or an optax schedule of the iteration
    Annotated[float, Field(ge=-1e30, le=1e30)] | dict[str, Any], AfterValidator(_known)
]


def adapt(
    learning_rate: Array,
    kl: Array,
    desired_kl: float,
    *,
    low: float = 1e-5,
    high: float = 1e-2,
    factor: float = 1.5,
) -> Array:
    """KL-adaptive learning rate of legged_gym and st_rl.

    Divided by ``factor`` above 2 ``desired_kl``, multiplied by it below half of
    it (and above 0), never outside [low, high].
    """
    slower = jnp.maximum(low, learning_rate / factor)
    faster = jnp.minimum(high, learning_rate * factor)
    return jnp.where(
        kl > 2.0 * desired_kl, slower, jnp.where((kl < 0.5 * desired_kl) & (kl > 0.0), faster, learning_rate)
    )
