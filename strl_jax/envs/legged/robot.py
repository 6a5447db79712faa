"""A quadruped's MuJoCo model: our own, or any other MJCF by the names of its parts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import mujoco
import numpy as np

from strl_jax.envs.legged import mjcf
from strl_jax.envs.legged.config import ControlConfig, RobotConfig, SimConfig

GEOM, BODY, JOINT = mujoco.mjtObj.mjOBJ_GEOM, mujoco.mjtObj.mjOBJ_BODY, mujoco.mjtObj.mjOBJ_JOINT
MASKS = 31  # bits of a geom's contype by which a plane and its geom find each other


@dataclass(frozen=True, eq=False)
class Robot:
    """A compiled model with the numbers that control and rewards need, joints in the config's order.

    Attributes:
        model: MuJoCo's model: free base, hinge joints, no actuators, one ground plane, or one for each geom
            that touches the ground.
        ground: geom indices of the planes; ``touching`` those of the geoms that the planes, one after the
            other, are for, none where all geoms share one plane.
        base: index of the base's body.
        feet: geom indices [F].
        qpos, dof: addresses of the joints [A] in positions and velocities.
        default, stiffness, damping, torque_limit, lower, upper: [A].
        penalized, terminal: groups of geoms, one for each body, whose touching the ground counts.
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
        own_planes: each geom that touches the ground has its own plane, which is to be put under it.

    Raises:
        ValueError: one line that begins with the config's key: no such file, not MJCF, a body, geom or joint
            that the model lacks, joints that are not all of its joints, a joint without an angle, gain or limit,
            or more geoms than there can be planes.
    """
    spec = mjcf.read(config.path)
    original = mjcf.compiled(spec, config.path)
    joints = _joints(original, config)
    limits = _torque_limits(original, joints, config)
    model = mjcf.compiled(_prepared(spec, config, sim, own_planes), config.path)
    ground = np.flatnonzero(model.geom_contype)
    ranges = np.where(model.jnt_limited[joints, None] > 0, model.jnt_range[joints], [-np.inf, np.inf])
    return Robot(
        model=model,
        ground=ground,
        touching=_touching(model, ground) if own_planes else np.zeros(0, int),
        base=_index(model, BODY, config.base, "base"),
        feet=_feet(model, config),
        qpos=model.jnt_qposadr[joints],
        dof=model.jnt_dofadr[joints],
        default=_defaults(config, ranges[:, 0], ranges[:, 1]),
        stiffness=_by_name(control.stiffness, config.joints, "control.stiffness"),
        damping=_by_name(control.damping, config.joints, "control.damping"),
        torque_limit=limits,
        lower=ranges[:, 0],
        upper=ranges[:, 1],
        penalized=_geoms(model, config.penalize_contacts_on, "penalize_contacts_on", config.feet),
        terminal=_geoms(model, config.terminate_after_contacts_on, "terminate_after_contacts_on", config.feet),
    )


def _prepared(spec: mujoco.MjSpec, config: RobotConfig, sim: SimConfig, own_planes: bool) -> mujoco.MjSpec:
    """The model without actuators and self-collision, on a plane that its feet touch, or on one for each."""
    for item in [*spec.actuators, *spec.sensors, *spec.keys, *spec.pairs, *spec.excludes]:
        spec.delete(item)
    touching = [geom for geom in spec.geoms if _touches(geom, config)]
    if own_planes and len(touching) > MASKS:
        count = len(touching)
        raise ValueError(f"robot.collide: {count} geoms would touch the ground; on a terrain {MASKS} at most can")
    priority = 1 + max(geom.priority for geom in spec.geoms)
    for geom in spec.geoms:
        geom.contype, geom.conaffinity = 0, 0
    for number, geom in enumerate(touching):
        geom.conaffinity = 1 << number * own_planes
    for number in range(len(touching) if own_planes else 1):
        kind, mask = mujoco.mjtGeom.mjGEOM_PLANE, 1 << number
        ground = spec.worldbody.add_geom(type=kind, size=[0, 0, 1], contype=mask, conaffinity=0)
        ground.priority = priority  # its friction is the contact's
        ground.condim = 3
    option = spec.option
    option.timestep, option.iterations, option.ls_iterations = sim.dt, sim.iterations, sim.ls_iterations
    option.integrator, option.solver = mujoco.mjtIntegrator.mjINT_EULER, mujoco.mjtSolver.mjSOL_NEWTON
    option.cone = mujoco.mjtCone.mjCONE_PYRAMIDAL
    off, on = mujoco.mjtDisableBit, mujoco.mjtEnableBit
    option.disableflags = (option.disableflags | off.mjDSBL_EULERDAMP) & ~(off.mjDSBL_CONTACT | off.mjDSBL_CONSTRAINT)
    option.enableflags &= ~(on.mjENBL_ENERGY | on.mjENBL_FWDINV)  # numbers that nobody reads, and MJX refuses them
    return spec


def _touches(geom: mujoco.MjsGeom, config: RobotConfig) -> bool:
    """Whether the ground holds a geom of the file: a foot and, if so configured, what collides there."""
    primitive = (mujoco.mjtGeom.mjGEOM_SPHERE, mujoco.mjtGeom.mjGEOM_CAPSULE, mujoco.mjtGeom.mjGEOM_BOX)
    other = config.collide and geom.type in primitive and geom.parent.name != "world"
    return geom.name in config.feet or (other and (geom.contype > 0 or geom.conaffinity > 0))


def _touching(model: mujoco.MjModel, ground: np.ndarray) -> np.ndarray:
    """The geom that each plane is for."""
    return np.array([np.flatnonzero(model.geom_conaffinity == mask)[0] for mask in model.geom_contype[ground]])


def _joints(model: mujoco.MjModel, config: RobotConfig) -> np.ndarray:
    base = _index(model, BODY, config.base, "base")
    first = model.body_jntadr[base]
    if first != 0 or model.jnt_type[0] != mujoco.mjtJoint.mjJNT_FREE:
        raise ValueError(f"robot.base: {config.base} does not carry the model's first joint, a free one")
    joints = np.array([_index(model, JOINT, name, "joints") for name in config.joints])
    _check_once(config.joints, "joints")
    for name, joint in zip(config.joints, joints, strict=True):
        if model.jnt_type[joint] != mujoco.mjtJoint.mjJNT_HINGE:
            raise ValueError(f"robot.joints: {name} is not a hinge joint")
    if len(joints) != model.njnt - 1:
        lacking = [name or "one without a name" for name in _names(model, JOINT)[1:] if name not in config.joints]
        raise ValueError(
            f"robot.joints: {len(joints)} are named, the model has {model.njnt - 1}; lacking: {', '.join(lacking)}"
        )
    return joints


def _torque_limits(model: mujoco.MjModel, joints: np.ndarray, config: RobotConfig) -> np.ndarray:
    """Nm for each joint: the config's, else the smallest that its actuators and the joint itself have."""
    if config.torque_limit is not None:
        return _by_name(config.torque_limit, config.joints, "robot.torque_limit")
    own = np.abs(model.jnt_actfrcrange[joints]).min(axis=1)
    limits = np.where(model.jnt_actfrclimited[joints] > 0, own, np.inf)
    at_joint = np.isin(model.actuator_trntype, [mujoco.mjtTrn.mjTRN_JOINT, mujoco.mjtTrn.mjTRN_JOINTINPARENT])
    for actuator in np.flatnonzero(at_joint & (model.actuator_forcelimited > 0)):
        limit = np.abs(model.actuator_gear[actuator, 0] * model.actuator_forcerange[actuator]).min()
        here = joints == model.actuator_trnid[actuator, 0]
        limits[here] = np.minimum(limits[here], limit)
    for name in np.array(config.joints)[np.isinf(limits) | (limits == 0)]:
        raise ValueError(f"robot.torque_limit: it must be given: the model has none for {name}")
    return limits


def _by_name(value: float | Mapping[str, float], joints: Iterable[str], key: str) -> np.ndarray:
    """One number for each joint; of the parts of its name that the mapping has, the last counts."""
    if not isinstance(value, Mapping):
        return np.array([value for _ in joints], np.float64)
    for part in value:
        if not any(part in joint for joint in joints):
            raise ValueError(f"{key}: {part} fits none of the joints {', '.join(joints)}")
    numbers = []
    for joint in joints:
        fitting = [number for part, number in value.items() if part in joint]
        if not fitting:
            raise ValueError(f"{key}: nothing in it fits the joint {joint}; it has {', '.join(value) or 'nothing'}")
        numbers.append(fitting[-1])
    return np.array(numbers, np.float64)


def _geoms(model: mujoco.MjModel, bodies: Iterable[str], key: str, feet: Iterable[str]) -> tuple[np.ndarray, ...]:
    """Geoms of each body that are no feet."""
    excluded = [_index(model, GEOM, name, "feet") for name in feet]
    _check_once(bodies, key)
    groups = []
    for name in bodies:
        body = _index(model, BODY, name, key)
        if body == 0:
            raise ValueError(f"robot.{key}: {name} is not of the robot")
        groups.append(np.setdiff1d(np.flatnonzero(model.geom_bodyid == body), excluded))
        if not len(groups[-1]):
            raise ValueError(f"robot.{key}: {name} has no geom that is not a foot")
    return tuple(groups)


def _feet(model: mujoco.MjModel, config: RobotConfig) -> np.ndarray:
    """Their geoms."""
    _check_once(config.feet, "feet")
    feet = np.array([_index(model, GEOM, name, "feet") for name in config.feet])
    for name in np.array(config.feet)[model.geom_bodyid[feet] == 0]:
        raise ValueError(f"robot.feet: {name} is not of the robot")
    return feet


def _check_once(names: Iterable[str], key: str) -> None:
    for name in names:
        if list(names).count(name) > 1:
            raise ValueError(f"robot.{key}: {name} stands twice")


def _defaults(config: RobotConfig, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Angles at action 0, each in its joint's range."""
    angles = _by_name(config.default_joint_angles, config.joints, "robot.default_joint_angles")
    for name, angle, low, high in zip(config.joints, angles, lower, upper, strict=True):
        if not low <= angle <= high:
            raise ValueError(f"robot.default_joint_angles: {angle:g} of {name} is not in its range [{low:g}, {high:g}]")
    return angles


def _index(model: mujoco.MjModel, kind: mujoco.mjtObj, name: str, key: str) -> int:
    index = mujoco.mj_name2id(model, kind, name)
    if index < 0:
        word = {GEOM: "geom", BODY: "body", JOINT: "joint"}[kind]
        known = ", ".join(name for name in _names(model, kind) if name) or "none with a name"
        raise ValueError(f"robot.{key}: the model has no {word} {name!r}; it has {known}")
    return index


def _names(model: mujoco.MjModel, kind: mujoco.mjtObj) -> list[str]:
    count = {GEOM: model.ngeom, BODY: model.nbody, JOINT: model.njnt}[kind]
    return [mujoco.mj_id2name(model, kind, index) or "" for index in range(count)]
