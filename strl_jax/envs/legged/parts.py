"""The parts of a robot that can touch the ground: its feet, and the bodies whose contact is penalised or ends it."""

import warnings
from collections.abc import Mapping, Sequence

import mujoco
import numpy as np

from strl_jax.envs.legged.config import RobotConfig
from strl_jax.envs.legged.names import BODY, GEOM, all_names, expanded, index, indices, is_pattern

PRIMITIVES = (mujoco.mjtGeom.mjGEOM_SPHERE, mujoco.mjtGeom.mjGEOM_CAPSULE, mujoco.mjtGeom.mjGEOM_BOX)


def colliding(model: mujoco.MjModel) -> np.ndarray:
    """Whether each geom can collide in the file, bool[G]: by its masks, or as part of a ``<pair>``."""
    collides = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
    collides[np.concatenate([model.pair_geom1, model.pair_geom2])] = True
    return collides


def feet(model: mujoco.MjModel, entries: Sequence[str | Sequence[str]]) -> dict[str, np.ndarray]:
    """Foot -> indices of its geoms; a foot that is given as a list has the name of its first item.

    Args:
        entries: ``robot.feet``.

    Raises:
        ValueError: a name is unknown or not part of the robot, a body has no geom that can collide, or a geom
            belongs to two feet; one line.
    """
    groups: dict[str, np.ndarray] = {}
    for entry in entries:
        items = [entry] if isinstance(entry, str) else entry
        geoms = np.concatenate([_geoms_of(model, item) for item in items])
        for geom in geoms:
            label = mujoco.mj_id2name(model, GEOM, geom) or f"a geom of {items[0]}"
            if model.geom_bodyid[geom] == 0:
                raise ValueError(f"robot.feet: {label} is not part of the robot")
            if any(geom in other for other in groups.values()) or (geoms == geom).sum() > 1:
                raise ValueError(f"robot.feet: {label} is listed twice")
        groups[items[0]] = geoms
    return groups


def _geoms_of(model: mujoco.MjModel, name: str) -> np.ndarray:
    """The geoms that a geom's name, a pattern of geoms' names or a body's name means."""
    names, collides = all_names(model, GEOM), colliding(model)
    if name in names:
        return np.array([names.index(name)])
    if is_pattern(name):
        fitting = set(expanded([name], [each for each, can in zip(names, collides, strict=True) if can], "feet"))
        return np.array([geom for geom, each in enumerate(names) if each in fitting])
    if name not in all_names(model, BODY):
        geoms, bodies = (", ".join(filter(None, all_names(model, kind))) or "none" for kind in (GEOM, BODY))
        what = f"the model has no geom or body {name!r}"
        raise ValueError(f"robot.feet: {what}; it has the geoms {geoms} and the bodies {bodies}")
    geoms = np.flatnonzero(collides & (model.geom_bodyid == index(model, BODY, name, "feet")))
    if not len(geoms):
        raise ValueError(f"robot.feet: the body {name} has no geom that can collide")
    return geoms


def bodies(
    model: mujoco.MjModel, names: Sequence[str], key: str, feet: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Body -> indices of its geoms that can collide in the file, without the geoms of feet.

    Bodies with visual geoms only are left out, with a warning.

    Args:
        names: bodies, or patterns of their names, of the config's key ``robot.KEY``.
        feet: result of ``feet``.

    Raises:
        ValueError: a body is unknown, is not part of the robot, or has no geom apart from feet.
    """
    others, collides, groups = np.ones(model.ngeom, bool), colliding(model), {}
    others[np.concatenate(list(feet.values()))] = False
    names = expanded(names, all_names(model, BODY), key)
    for name, body in zip(names, indices(model, BODY, names, key), strict=True):
        if body == 0:
            raise ValueError(f"robot.{key}: {name} is not part of the robot")
        geoms = others & (model.geom_bodyid == body)
        if not geoms.any():
            raise ValueError(f"robot.{key}: {name} has no geom that is not a foot")
        groups[name] = np.flatnonzero(geoms & collides)
    visual = [name for name, geoms in groups.items() if not len(geoms)]
    if visual:
        never = "no geom of these bodies can collide in the file, so they never touch the ground"
        warnings.warn(f"robot.{key}: {never}: {', '.join(visual)}", stacklevel=2)
    return {name: geoms for name, geoms in groups.items() if len(geoms)}


def touching(model: mujoco.MjModel, config: RobotConfig, feet: Mapping[str, np.ndarray]) -> np.ndarray:
    """Indices of the geoms that the ground holds: feet and, with ``collide``, primitives that collide in the file."""
    holds = np.zeros(model.ngeom, bool)
    if config.collide:
        holds = colliding(model) & np.isin(model.geom_type, PRIMITIVES) & (model.geom_bodyid > 0)
    holds[np.concatenate(list(feet.values()))] = True
    return np.flatnonzero(holds)
