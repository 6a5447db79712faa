"""The MuJoCo model of a legged robot: the package's quadruped, or another MJCF file and the names of its parts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import mujoco
import numpy as np

from strl_jax.envs.legged import mjcf
from strl_jax.envs.legged.config import ControlConfig, RobotConfig, SimConfig

GEOM, BODY, JOINT = mujoco.mjtObj.mjOBJ_GEOM, mujoco.mjtObj.mjOBJ_BODY, mujoco.mjtObj.mjOBJ_JOINT
MAX_PLANES = 31  # bits of contype: each plane collides with one geom, and each pair needs its own bit


@dataclass(frozen=True, eq=False)
class Robot:
    """A compiled model and the values that control and rewards need; joints are in the order of the config.

    Attributes:
        model: MuJoCo's model: a free base, hinge joints, no actuators, and one ground plane, or one for
            each geom that can touch the ground.
        ground: geom indices of the ground planes.
        touching: geom indices of the geoms that belong to the planes of ``ground``, in the same order; empty
            if all geoms share one plane.
        base: index of the base's body.
        feet: geom indices [F].
        qpos, dof: addresses of the joints [A] in positions and velocities.
        default, lower, upper: joint angles [A], rad; ``default`` is the angle at action 0.
        stiffness, damping, torque_limit: [A], Nm/rad, Nm s/rad and Nm.
        penalized, terminal: for each body, the geom indices whose contact with the ground is a collision,
            or ends the episode.
    """

    model: mujoco.MjModel
    ground: np.ndarray
    touching: np.ndarray
    base: int
    feet: np.ndarray
    qpos: np.ndarray
    dof: np.ndarray
    default: np.ndarray
    stiffness: np.ndarray
    damping: np.ndarray
    torque_limit: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    penalized: tuple[np.ndarray, ...]
    terminal: tuple[np.ndarray, ...]


def load(config: RobotConfig, control: ControlConfig, sim: SimConfig, own_planes: bool = False) -> Robot:
    """The robot of a config.

    Args:
        own_planes: each geom that can touch the ground has its own plane, which the physics moves under it.

    Raises:
        ValueError: the file does not exist or is not MJCF; the model has no body, geom or joint of a name;
            not all joints of the model are named; a joint has no angle, gain or limit; or there are more geoms
            than possible planes. One line that begins with the config's key.
    """
    spec = mjcf.read(config.path)
    original = mjcf.compiled(spec, config.path)
    joints = _joints(original, config)
    limits = _torque_limits(original, joints, config)
    model = mjcf.compiled(_simplified(spec, config, sim, own_planes), config.path)
    ground = np.flatnonzero(model.geom_contype)
    masks = model.geom_contype[ground] if own_planes else []
    ranges = np.where(model.jnt_limited[joints, None] > 0, model.jnt_range[joints], [-np.inf, np.inf])
    return Robot(
        model=model,
        ground=ground,
        touching=np.array([np.flatnonzero(model.geom_conaffinity == mask)[0] for mask in masks], int),
        base=_index(model, BODY, config.base, "base"),
        feet=_feet(model, config),
        qpos=model.jnt_qposadr[joints],
        dof=model.jnt_dofadr[joints],
        default=_defaults(config, ranges[:, 0], ranges[:, 1]),
        stiffness=_per_joint(control.stiffness, config.joints, "control.stiffness"),
        damping=_per_joint(control.damping, config.joints, "control.damping"),
        torque_limit=limits,
        lower=ranges[:, 0],
        upper=ranges[:, 1],
        penalized=_geoms(model, config.penalize_contacts_on, "penalize_contacts_on", config.feet),
        terminal=_geoms(model, config.terminate_after_contacts_on, "terminate_after_contacts_on", config.feet),
    )


def _simplified(spec: mujoco.MjSpec, config: RobotConfig, sim: SimConfig, own_planes: bool) -> mujoco.MjSpec:
    """The model without actuators, sensors and self-collisions, and with one ground plane, or one for each geom."""
    for item in [*spec.actuators, *spec.sensors, *spec.keys, *spec.pairs, *spec.excludes]:
        spec.delete(item)
    touching = [geom for geom in spec.geoms if _touches_ground(geom, config)]
    if own_planes and len(touching) > MAX_PLANES:
        count = len(touching)
        raise ValueError(f"robot.collide: {count} geoms can touch the ground; on a terrain at most {MAX_PLANES} can")
    priority = 1 + max(geom.priority for geom in spec.geoms)
    for geom in spec.geoms:
        geom.contype, geom.conaffinity = 0, 0
    for number, geom in enumerate(touching):
        geom.conaffinity = 1 << number * own_planes
    for number in range(len(touching) if own_planes else 1):
        kind, mask = mujoco.mjtGeom.mjGEOM_PLANE, 1 << number
        ground = spec.worldbody.add_geom(type=kind, size=[0, 0, 1], contype=mask, conaffinity=0)
        ground.priority = priority  # the contact then has the friction of the ground
        ground.condim = 3
    option = spec.option
    option.timestep, option.iterations, option.ls_iterations = sim.dt, sim.iterations, sim.ls_iterations
    option.integrator, option.solver = mujoco.mjtIntegrator.mjINT_EULER, mujoco.mjtSolver.mjSOL_NEWTON
    option.cone = mujoco.mjtCone.mjCONE_PYRAMIDAL
    off, on = mujoco.mjtDisableBit, mujoco.mjtEnableBit
    option.disableflags = (option.disableflags | off.mjDSBL_EULERDAMP) & ~(off.mjDSBL_CONTACT | off.mjDSBL_CONSTRAINT)
    option.enableflags &= ~(on.mjENBL_ENERGY | on.mjENBL_FWDINV)  # unused values that MJX does not support
    return spec


def _touches_ground(geom: mujoco.MjsGeom, config: RobotConfig) -> bool:
    """Whether the geom can touch the ground: a foot or, with ``collide``, a primitive that collides in the file."""
    primitive = (mujoco.mjtGeom.mjGEOM_SPHERE, mujoco.mjtGeom.mjGEOM_CAPSULE, mujoco.mjtGeom.mjGEOM_BOX)
    other = config.collide and geom.type in primitive and geom.parent.name != "world"
    return geom.name in config.feet or (other and (geom.contype > 0 or geom.conaffinity > 0))


def _joints(model: mujoco.MjModel, config: RobotConfig) -> np.ndarray:
    base = _index(model, BODY, config.base, "base")
    first = model.body_jntadr[base]
    if first != 0 or model.jnt_type[0] != mujoco.mjtJoint.mjJNT_FREE:
        raise ValueError(
            f"robot.base: {config.base} is not allowed; its joint must be the model's first and a free joint"
        )
    joints = _indices(model, JOINT, config.joints, "joints")
    for name, joint in zip(config.joints, joints, strict=True):
        if model.jnt_type[joint] != mujoco.mjtJoint.mjJNT_HINGE:
            raise ValueError(f"robot.joints: {name} is not allowed; it must be a hinge joint")
    if len(joints) != model.njnt - 1:
        missing = [name or "a joint without a name" for name in _names(model, JOINT)[1:] if name not in config.joints]
        listed = f"{len(joints)} of the model's {model.njnt - 1} joints are listed"
        raise ValueError(f"robot.joints: {listed}; missing: {', '.join(missing)}")
    return joints


def _torque_limits(model: mujoco.MjModel, joints: np.ndarray, config: RobotConfig) -> np.ndarray:
    """Limits [A] in Nm: the config's, otherwise the smallest limit of the joint and its actuators in the file."""
    if config.torque_limit is not None:
        return _per_joint(config.torque_limit, config.joints, "robot.torque_limit")
    joint_limits = np.abs(model.jnt_actfrcrange[joints]).min(axis=1)
    limits = np.where(model.jnt_actfrclimited[joints] > 0, joint_limits, np.inf)
    at_joint = np.isin(model.actuator_trntype, [mujoco.mjtTrn.mjTRN_JOINT, mujoco.mjtTrn.mjTRN_JOINTINPARENT])
    for actuator in np.flatnonzero(at_joint & (model.actuator_forcelimited > 0)):
        limit = np.abs(model.actuator_gear[actuator, 0] * model.actuator_forcerange[actuator]).min()
        driven = joints == model.actuator_trnid[actuator, 0]
        limits[driven] = np.minimum(limits[driven], limit)
    for name in np.array(config.joints)[np.isinf(limits) | (limits == 0)]:
        raise ValueError(f"robot.torque_limit: null is not allowed; the model has no torque limit for {name}")
    return limits


def _per_joint(value: float | Mapping[str, float], joints: Iterable[str], key: str) -> np.ndarray:
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


def _geoms(model: mujoco.MjModel, bodies: Sequence[str], key: str, feet: Sequence[str]) -> tuple[np.ndarray, ...]:
    """The geom indices of each body, without feet."""
    excluded = [_index(model, GEOM, name, "feet") for name in feet]
    groups = []
    for name, body in zip(bodies, _indices(model, BODY, bodies, key), strict=True):
        if body == 0:
            raise ValueError(f"robot.{key}: {name} is not part of the robot")
        groups.append(np.setdiff1d(np.flatnonzero(model.geom_bodyid == body), excluded))
        if not len(groups[-1]):
            raise ValueError(f"robot.{key}: {name} has no geom that is not a foot")
    return tuple(groups)


def _feet(model: mujoco.MjModel, config: RobotConfig) -> np.ndarray:
    """Geom indices [F]."""
    feet = _indices(model, GEOM, config.feet, "feet")
    for name in np.array(config.feet)[model.geom_bodyid[feet] == 0]:
        raise ValueError(f"robot.feet: {name} is not part of the robot")
    return feet


def _indices(model: mujoco.MjModel, kind: mujoco.mjtObj, names: Sequence[str], key: str) -> np.ndarray:
    """The index of each name. Raises ``ValueError`` for a name that is unknown or is listed twice."""
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"robot.{key}: {name} is listed twice")
    return np.array([_index(model, kind, name, key) for name in names])


def _defaults(config: RobotConfig, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Joint angles [A] at action 0, rad. Raises ``ValueError`` for an angle outside the range of its joint."""
    angles = _per_joint(config.default_joint_angles, config.joints, "robot.default_joint_angles")
    for name, angle, low, high in zip(config.joints, angles, lower, upper, strict=True):
        if not low <= angle <= high:
            raise ValueError(
                f"robot.default_joint_angles: {angle:g} of {name} is not allowed; it must be in [{low:g}, {high:g}]"
            )
    return angles


def _index(model: mujoco.MjModel, kind: mujoco.mjtObj, name: str, key: str) -> int:
    index = mujoco.mj_name2id(model, kind, name)
    if index < 0:
        known = ", ".join(name for name in _names(model, kind) if name) or "none with a name"
        raise ValueError(f"robot.{key}: the model has no {mujoco.mju_type2Str(kind)} {name!r}; it has {known}")
    return index


def _names(model: mujoco.MjModel, kind: mujoco.mjtObj) -> list[str]:
    count = {GEOM: model.ngeom, BODY: model.nbody, JOINT: model.njnt}[kind]
    return [mujoco.mj_id2name(model, kind, index) or "" for index in range(count)]
