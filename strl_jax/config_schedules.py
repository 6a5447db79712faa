"""What can be wrong inside a schedule, told before optax sees it."""

import inspect
import math
from typing import Any

from pydantic import BaseModel

from strl_jax.algorithms.schedules import SCHEDULES
from strl_jax.config_coerce import is_schedule, members
from strl_jax.config_errors import Problem, hint, not_one_of, show

MAPPING = "boundaries_and_scales"  # the one argument that is not a number


def schedule_problems(model: type[BaseModel], path: tuple, data: Any) -> list[Problem]:
    """Faults of the schedules among the values ``data`` of the section ``path``.

    A schedule is a mapping of ``name`` and the arguments of optax's schedule of
    that name: finite numbers (those of a learning rate not under 0), a bool for
    ``staircase``, and iterations to numbers in ``boundaries_and_scales``.
    """
    problems = []
    for key, value in data.items() if isinstance(data, dict) else ():
        field = model.model_fields.get(key)
        if field is not None and isinstance(value, dict) and is_schedule(members(field.annotation)):
            problems += _faults((*path, key), value, 0.0 if key == "schedule" else None)
    return problems


def _faults(path: tuple, schedule: dict, least: float | None) -> list[Problem]:
    name = schedule.get("name")
    if name not in list(SCHEDULES):
        return [Problem((*path, "name"), not_one_of(name, tuple(SCHEDULES)))]
    known = list(inspect.signature(SCHEDULES[name]).parameters)
    problems = []
    for key, value in schedule.items():
        if key == "name":
            continue
        if key not in known:
            text = f"unknown key; {name} takes {', '.join(known)}{hint(key, known)}"
            problems.append(Problem((*path, key), text))
        elif not _fits(key, value, least):
            allowed = "a mapping of iterations to numbers" if key == MAPPING else "a number"
            allowed += "" if least is None else " >= 0"
            problems.append(Problem((*path, key), f"{show(value)} is not allowed; it must be {allowed}"))
    return problems


def _fits(key: str, value: Any, least: float | None) -> bool:
    if key == "staircase":
        return isinstance(value, bool)
    if key != MAPPING:
        return _is_number(value, least)
    return isinstance(value, dict) and all(_is_number(n, least) for pair in value.items() for n in pair)


def _is_number(value: Any, least: float | None) -> bool:
    sane = type(value) in (int, float) and math.isfinite(value) and abs(value) <= 1e30
    return sane and (least is None or value >= least)
