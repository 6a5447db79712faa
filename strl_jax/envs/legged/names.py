"""Names in a robot's config: indices of the model's bodies, geoms and joints, and values by parts of joint names."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

import mujoco
import numpy as np

GEOM, BODY, JOINT = mujoco.mjtObj.mjOBJ_GEOM, mujoco.mjtObj.mjOBJ_BODY, mujoco.mjtObj.mjOBJ_JOINT


def all_names(model: mujoco.MjModel, kind: mujoco.mjtObj) -> list[str]:
    """The names of all bodies, geoms or joints of the model; "" for one without a name."""
    count = {GEOM: model.ngeom, BODY: model.nbody, JOINT: model.njnt}[kind]
    return [mujoco.mj_id2name(model, kind, index) or "" for index in range(count)]


def index(model: mujoco.MjModel, kind: mujoco.mjtObj, name: str, key: str) -> int:
    """The index of a name. Raises ``ValueError``, which begins with ``robot.key``, for an unknown name."""
    number = mujoco.mj_name2id(model, kind, name)
    if number < 0:
        known = ", ".join(name for name in all_names(model, kind) if name) or "none with a name"
        raise ValueError(f"robot.{key}: the model has no {mujoco.mju_type2Str(kind)} {name!r}; it has {known}")
    return number


def indices(model: mujoco.MjModel, kind: mujoco.mjtObj, names: Sequence[str], key: str) -> np.ndarray:
    """The index of each name. Raises ``ValueError`` for a name that is unknown or is listed twice."""
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"robot.{key}: {name} is listed twice")
    return np.array([index(model, kind, name, key) for name in names], int)


def expanded(entries: Sequence[str], known: Sequence[str], key: str) -> list[str]:
    """The names of a list of names and patterns; the names of a pattern are in the order of ``known``.

    Raises:
        ValueError: a pattern fits no name; one line that begins with ``robot.key``.
    """
    names = []
    for entry in entries:
        if entry in known or not is_pattern(entry):
            names.append(entry)
            continue
        fitting = [name for name in known if name and fnmatchcase(name, entry)]
        if not fitting:
            raise ValueError(f"robot.{key}: {entry} fits no name; there are {', '.join(filter(None, known)) or 'none'}")
        names += fitting
    return names


def is_pattern(text: str) -> bool:
    """Whether a name has one of the wildcards ``*``, ``?`` and ``[``."""
    return any(letter in text for letter in "*?[")


def per_joint(value: float | Mapping[str, float], joints: Iterable[str], key: str) -> np.ndarray:
    """One number for each joint [A]. A mapping has parts of joint names as keys; the last matching key is used."""
    if not isinstance(value, Mapping):
        return np.array([value for _ in joints], np.float64)
    for part in value:
        if not any(part in joint for joint in joints):
            raise ValueError(f"{key}: {part} is not allowed; it is part of no joint name: {', '.join(joints)}")
    numbers = []
    for joint in joints:
        matches = [number for part, number in value.items() if part in joint]
        if not matches:
            raise ValueError(f"{key}: no key is part of the joint name {joint}; keys: {', '.join(value) or 'none'}")
        numbers.append(matches[-1])
    return np.array(numbers, np.float64)
