"""Numbers that change with the iteration, and the adaptive learning rate."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import jax.numpy as jnp
import optax
from pydantic import AfterValidator

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


def make(spec: float | Mapping) -> optax.Schedule:
    """A number, or ``{"name": NAME, **arguments}`` of the optax schedule, as a function of the iteration.

    Raises:
        ValueError: unknown name, or arguments that the schedule does not take.
    """
    if not isinstance(spec, Mapping):
        return optax.constant_schedule(spec)
    arguments = dict(spec)
    name = arguments.pop("name", None)
    if name not in SCHEDULES:
        raise ValueError(f"unknown schedule {name!r}; known: {', '.join(SCHEDULES)}")
    try:
        return SCHEDULES[name](**arguments)
    except TypeError as error:
        raise ValueError(f"schedule {name!r}: {error}") from None


def _known(value: Any) -> Any:
    if isinstance(value, dict):
        make(value)
    return value


KnownSchedule = AfterValidator(_known)
Coefficient = Annotated[float | dict[str, Any], KnownSchedule]  # a number, or an optax schedule of the iteration


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
