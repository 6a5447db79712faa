"""What the arguments of optax's schedules may be: optax itself takes nearly all, and makes constants or NaN of it."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from strl_jax.algorithms import arguments
from strl_jax.algorithms.arguments import FACTOR, FRACTION, LARGEST, POWER, Allowed, Fault, count, parameters, within

COEFFICIENTS = within(-1e30, 1e30)  # float32 holds their differences too
COUNTS = ("transition_steps", "decay_steps", "transition_begin", "warmup_steps")
VALUES = ("value", "init_value", "end_value", "peak_value")
SCALES = "boundaries_and_scales"


def faults(name: str, schedule: Callable, given: Mapping[str, Any], values: Allowed) -> list[Fault]:
    """What is wrong with the arguments ``given``, as ``read`` returns them, to optax's ``schedule`` called ``name``.

    Args:
        values: what the schedule's values may be.
    """
    found = list(arguments.faults(parameters(schedule), _allowed(values), given))
    return found if found or name not in RELATIONS else list(RELATIONS[name](values, **given))


def read(spec: Mapping) -> dict[str, Any]:
    """A schedule without its name, and with numbers of iterations as integers: in YAML 1e3 is none."""
    given = {key: _whole(value) if key in COUNTS else value for key, value in spec.items() if key != "name"}
    if isinstance(given.get(SCALES), Mapping):
        given[SCALES] = {_whole(boundary): scale for boundary, scale in given[SCALES].items()}
    return given


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _allowed(values: Allowed) -> dict[str, Allowed]:
    """What each argument of the schedules may be."""

    def is_scales(given: Any) -> bool:
        least, most = count(0), within(0, 1e30)
        return isinstance(given, Mapping) and all(least.fits(i) and most.fits(scale) for i, scale in given.items())

    return {
        **dict.fromkeys(VALUES, values),
        "transition_steps": count(),
        "decay_steps": count(),
        "transition_begin": count(0),
        "warmup_steps": count(0),
        "power": POWER,
        "exponent": POWER,
        "alpha": FRACTION,
        "decay_rate": FACTOR,
        "staircase": Allowed("true or false", lambda value: isinstance(value, bool)),
        SCALES: Allowed(f"a mapping of iterations from 0 to {LARGEST} to numbers from 0 to 1e+30", is_scales),
    }


def _exponential(
    values: Allowed, init_value: float, decay_rate: float, end_value: float | None = None, **_
) -> Iterator[Fault]:
    if decay_rate <= 1:
        if end_value is not None and end_value > init_value:
            allowed = f"at most init_value, {init_value:g}, where decay_rate is not above 1"
            yield Fault("end_value", end_value, "wrong", allowed)
    elif init_value <= 0:
        yield Fault("init_value", init_value, "wrong", "above 0 where decay_rate is above 1")
    elif end_value is None or end_value < init_value:
        allowed = f"at least init_value, {init_value:g}, where decay_rate is above 1"
        yield Fault("end_value", end_value, "missing" if end_value is None else "wrong", allowed)


def _warmup_cosine(
    values: Allowed, peak_value: float, warmup_steps: int, decay_steps: int, end_value: float = 0.0, **_
) -> Iterator[Fault]:
    if decay_steps <= warmup_steps:
        yield Fault("decay_steps", decay_steps, "wrong", f"above warmup_steps, {warmup_steps}, which it includes")
    if abs(end_value) > abs(peak_value):  # optax takes their ratio
        yield Fault("end_value", end_value, "wrong", f"no larger than peak_value, {peak_value:g}")


def _piecewise(
    values: Allowed, init_value: float, boundaries_and_scales: Mapping | None = None, **_
) -> Iterator[Fault]:
    value = init_value
    for boundary, scale in sorted((boundaries_and_scales or {}).items()):
        value *= scale
        if not values.fits(value):
            allowed = f"such that all values are {values.words.replace('a number ', '')}; at {boundary} it is {value:g}"
            yield Fault(SCALES, boundaries_and_scales, "wrong", allowed)
            return


# what arguments that are right alone must be to each other
RELATIONS: dict[str, Callable[..., Iterator[Fault]]] = {
    "exponential_decay": _exponential,
    "warmup_cosine_decay": _warmup_cosine,
    "piecewise_constant": _piecewise,
}
