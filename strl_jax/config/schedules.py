"""What can be wrong inside a schedule, told before optax sees it."""

from typing import Any

from pydantic import BaseModel

from strl_jax.algorithms.arguments import RATE, Fault
from strl_jax.algorithms.schedule_arguments import COEFFICIENTS, faults, read
from strl_jax.algorithms.schedules import SCHEDULES
from strl_jax.config.errors import Problem, hint, not_one_of, show
from strl_jax.config.values import find_model, is_schedule, members


def schedule_problems(model: type[BaseModel], path: tuple, data: Any) -> list[Problem]:
    """Faults of the schedules among the values ``data`` of the section ``path``, and of the sections in it.

    A schedule is a mapping of ``name`` and the arguments of optax's schedule of that name. The path of each
    fault ends with the name of the argument.
    """
    problems = []
    for key, value in data.items() if isinstance(data, dict) else ():
        if key not in model.model_fields or not isinstance(value, dict):
            continue
        inner = find_model(model, (key,))
        if is_schedule(members(model.model_fields[key].annotation)):
            problems += _problems((*path, key), value)
        elif inner is not None:
            problems += schedule_problems(inner, (*path, key), value)
    return problems


def _problems(path: tuple, schedule: dict) -> list[Problem]:
    if "name" not in schedule:
        return [Problem((*path, "name"), f"it is missing; it must be one of {', '.join(SCHEDULES)}")]
    name = schedule["name"]
    if name not in list(SCHEDULES):
        return [Problem((*path, "name"), not_one_of(name, tuple(SCHEDULES)))]
    found = faults(name, SCHEDULES[name], read(schedule), RATE if path[-1] == "schedule" else COEFFICIENTS)
    return [Problem((*path, fault.key), _text(name, fault)) for fault in found]


def _text(name: str, fault: Fault) -> str:
    if fault.what == "unknown":
        return f"unknown key; {name} takes {fault.allowed}{hint(fault.key, fault.allowed.split(', '))}"
    found = "it is missing" if fault.what == "missing" else f"{show(fault.value)} is not allowed"
    return f"{found}; it must be {fault.allowed}"
