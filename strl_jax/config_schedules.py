"""What can be wrong inside a schedule, told before optax sees it."""

import inspect
from typing import Any

from pydantic import BaseModel

from strl_jax.algorithms.schedules import SCHEDULES
from strl_jax.config_coerce import is_schedule, members
from strl_jax.config_errors import Problem, hint, not_one_of, show

MAPPING = "boundaries_and_scales"  # the one argument that is not a number


def schedule_problems(model: type[BaseModel], path: tuple, data: Any) -> list[Problem]:
    """Faults of the schedules among the values ``data`` of the section ``path``.

    A schedule is a mapping of ``name`` and the arguments of optax's schedule of
    that name: numbers (or bools), and iterations to numbers in ``boundaries_and_scales``.
    """
    problems = []
    for key, value in data.items() if isinstance(data, dict) else ():
        field = model.model_fields.get(key)
        if field is not None and isinstance(value, dict) and is_schedule(members(field.annotation)):
            problems += _faults((*path, key), value)
    return problems


def _faults(path: tuple, schedule: dict) -> list[Problem]:
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
        elif not _fits(key, value):
            allowed = "a mapping of iterations to numbers" if key == MAPPING else "a number"
            problems.append(Problem((*path, key), f"{show(value)} is not allowed; it must be {allowed}"))
    return problems


def _fits(key: str, value: Any) -> bool:
    if key != MAPPING:
        return isinstance(value, int | float)
    return isinstance(value, dict) and all(isinstance(n, int | float) for pair in value.items() for n in pair)
