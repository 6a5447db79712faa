"""The parts of a robot that can touch the ground: its feet, and the bodies whose contact is penalised or ends it."""

import warnings
from collections.abc import Mapping, Sequence

import mujoco
import numpy as np

from strl_jax.envs.legged.config import RobotConfig
from strl_jax.envs.legged.names import BODY, GEOM, indices

PRIMITIVES = (mujoco.mjtGeom.mjGEOM_SPHERE, mujoco.mjtGeom.mjGEOM_CAPSULE, mujoco.mjtGeom.mjGEOM_BOX)


def colliding(model: mujoco.MjModel) -> np.ndarray:
    """Whether each geom can collide in the file, bool[G]: by its masks, or as part of a ``<pair>``."""
    collides = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
    collides[np.concatenate([model.pair_geom1, model.pair_geom2])] = True
    return collides


def feet(model: mujoco.MjModel, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Foot -> indices of its geoms. Raises ``ValueError`` for a geom that is unknown or not part of the robot."""
    geoms = indices(model, GEOM, names, "feet")
    for name in np.array(names)[model.geom_bodyid[geoms] == 0]:
        raise ValueError(f"robot.feet: {name} is not part of the robot")
    return {name: np.array([geom]) for name, geom in zip(names, geoms, strict=True)}


def bodies(
    model: mujoco.MjModel, names: Sequence[str], key: str, feet: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Body -> indices of its geoms that can collide in the file, without the geoms of feet.

    Bodies with visual geoms only are left out, with a warning.

    Args:
        names: bodies of the config's key ``robot.KEY``.
        feet: result of ``feet``.

    Raises:
        ValueError: a body is unknown, is not part of the robot, or has no geom apart from feet.
    """
    others, collides, groups = np.ones(model.ngeom, bool), colliding(model), {}
    others[np.concatenate(list(feet.values()))] = False
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
