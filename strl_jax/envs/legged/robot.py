"""The MuJoCo model of a legged robot: the package's quadruped, or another MJCF file and the names of its parts."""

from collections.abc import Mapping
from dataclasses import dataclass

import mujoco
import numpy as np

from strl_jax.envs.legged import mjcf, parts, torque_limits
from strl_jax.envs.legged.config import ControlConfig, RobotConfig, SimConfig
from strl_jax.envs.legged.names import BODY, JOINT, all_names, index, indices, per_joint
from strl_jax.envs.legged.simplified import simplify


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
        feet: foot -> its geom indices, for F feet.
        qpos, dof: addresses of the joints [A] in positions and velocities.
        default, lower, upper: joint angles [A], rad; ``default`` is the angle at action 0.
        stiffness, damping, torque_limit: [A], Nm/rad, Nm s/rad and Nm.
        penalized, terminal: body -> the geom indices whose contact with the ground is a collision,
            or ends the episode.
    """

    model: mujoco.MjModel
    ground: np.ndarray
    touching: np.ndarray
    base: int
    feet: Mapping[str, np.ndarray]
    qpos: np.ndarray
    dof: np.ndarray
    default: np.ndarray
    stiffness: np.ndarray
    damping: np.ndarray
    torque_limit: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    penalized: Mapping[str, np.ndarray]
    terminal: Mapping[str, np.ndarray]

    @property
    def foot_geoms(self) -> np.ndarray:
        """The geom indices of all feet, in the order of ``feet``."""
        return np.concatenate(list(self.feet.values()))


def load(config: RobotConfig, control: ControlConfig, sim: SimConfig, own_planes: bool = False) -> Robot:
    """The robot of a config.

    Args:
        own_planes: each geom that can touch the ground has its own plane, which the physics moves under it.

    Raises:
        ValueError: the file does not exist or is not MJCF; the model has no body, geom or joint of a name;
            a body has no geom that can collide; not all joints of the model are named; a joint has no angle,
            gain or limit; or there are more geoms than possible planes. One line that begins with the config's key.
    """
    spec = mjcf.read(config.path)
    file = mjcf.compiled(spec, config.path)
    joints = _joints(file, config)
    limits = torque_limits.of(file, joints, config.joints, config.torque_limit)
    feet = parts.feet(file, config.feet)
    penalized, terminal = (
        parts.bodies(file, getattr(config, key), key, feet)
        for key in ("penalize_contacts_on", "terminate_after_contacts_on")
    )
    on_ground = set(parts.touching(file, config, feet))
    geoms = {file.bind(geom).id: geom for geom in spec.geoms}
    touching = [geom for number, geom in geoms.items() if number in on_ground]
    model = mjcf.compiled(simplify(spec, touching, sim, own_planes), config.path)
    new = {number: model.bind(geom).id for number, geom in geoms.items()}  # the planes of the ground move the indices

    def renumbered(groups: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: np.array([new[number] for number in group]) for name, group in groups.items()}

    ranges = np.where(model.jnt_limited[joints, None] > 0, model.jnt_range[joints], [-np.inf, np.inf])
    return Robot(
        model=model,
        ground=np.flatnonzero(model.geom_contype),
        touching=np.array([model.bind(geom).id for geom in touching] if own_planes else [], int),
        base=index(model, BODY, config.base, "base"),
        feet=renumbered(feet),
        qpos=model.jnt_qposadr[joints],
        dof=model.jnt_dofadr[joints],
        default=_defaults(config, ranges[:, 0], ranges[:, 1]),
        stiffness=per_joint(control.stiffness, config.joints, "control.stiffness"),
        damping=per_joint(control.damping, config.joints, "control.damping"),
        torque_limit=limits,
        lower=ranges[:, 0],
        upper=ranges[:, 1],
        penalized=renumbered(penalized),
        terminal=renumbered(terminal),
    )


def _joints(model: mujoco.MjModel, config: RobotConfig) -> np.ndarray:
    base = index(model, BODY, config.base, "base")
    first = model.body_jntadr[base]
    if first != 0 or model.jnt_type[0] != mujoco.mjtJoint.mjJNT_FREE:
        raise ValueError(
            f"robot.base: {config.base} is not allowed; its joint must be the model's first and a free joint"
        )
    joints = indices(model, JOINT, config.joints, "joints")
    for name, joint in zip(config.joints, joints, strict=True):
        if model.jnt_type[joint] != mujoco.mjtJoint.mjJNT_HINGE:
            raise ValueError(f"robot.joints: {name} is not allowed; it must be a hinge joint")
    if len(joints) != model.njnt - 1:
        missing = [
            name or "a joint without a name" for name in all_names(model, JOINT)[1:] if name not in config.joints
        ]
        listed = f"{len(joints)} of the model's {model.njnt - 1} joints are listed"
        raise ValueError(f"robot.joints: {listed}; missing: {', '.join(missing)}")
    return joints


def _defaults(config: RobotConfig, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Joint angles [A] at action 0, rad. Raises ``ValueError`` for an angle outside the range of its joint."""
    angles = per_joint(config.default_joint_angles, config.joints, "robot.default_joint_angles")
    for name, angle, low, high in zip(config.joints, angles, lower, upper, strict=True):
        if not low <= angle <= high:
            raise ValueError(
                f"robot.default_joint_angles: {angle:g} of {name} is not allowed; it must be in [{low:g}, {high:g}]"
            )
    return angles
