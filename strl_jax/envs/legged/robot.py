"""The MuJoCo model of a legged robot: the package's quadruped, or another MJCF file and the names of its parts."""

from collections.abc import Mapping
from dataclasses import dataclass

import mujoco
import numpy as np

from strl_jax.envs.legged import joints, mjcf, parts, torque_limits
from strl_jax.envs.legged.config import ControlConfig, RobotConfig, SimConfig
from strl_jax.envs.legged.names import BODY, index, per_joint
from strl_jax.envs.legged.simplified import simplify


@dataclass(frozen=True, eq=False)
class Motors:
    """PD-controlled joints.

    Attributes:
        qpos, dof: addresses of the joints [N] in positions and velocities.
        default: angles [N], rad.
        stiffness, damping, torque_limit: [N], Nm/rad, Nm s/rad and Nm.
    """

    qpos: np.ndarray
    dof: np.ndarray
    default: np.ndarray
    stiffness: np.ndarray
    damping: np.ndarray
    torque_limit: np.ndarray


@dataclass(frozen=True, eq=False)
class Robot(Motors):
    """A compiled model and the values that control and rewards need.

    The joints are those of the actions [A], in the order of the config; ``default`` is the angle at action 0.

    Attributes:
        model: MuJoCo's model: a free base, hinge joints, no actuators, and one ground plane, or one for
            each geom that can touch the ground.
        ground: geom indices of the ground planes.
        touching: geom indices of the geoms that belong to the planes of ``ground``, in the same order; empty
            if all geoms share one plane.
        base: index of the base's body.
        feet: foot -> its geom indices, for F feet.
        joint_names: names of the joints [A].
        lower, upper: ranges of the joint angles [A], rad.
        held: the joints that are no actions, and stay at their default angles.
        penalized, terminal: body -> the geom indices whose contact with the ground is a collision,
            or ends the episode.
    """

    model: mujoco.MjModel
    ground: np.ndarray
    touching: np.ndarray
    base: int
    feet: Mapping[str, np.ndarray]
    joint_names: tuple[str, ...]
    lower: np.ndarray
    upper: np.ndarray
    held: Motors
    penalized: Mapping[str, np.ndarray]
    terminal: Mapping[str, np.ndarray]

    @property
    def foot_geoms(self) -> np.ndarray:
        """The geom indices of all feet, in the order of ``feet``."""
        return np.concatenate(list(self.feet.values()))

    @property
    def default_qpos(self) -> np.ndarray:
        """Positions [nq] of the default pose: the base is upright at the origin."""
        qpos = self.model.qpos0.copy()
        qpos[:7] = [0, 0, 0, 1, 0, 0, 0]
        qpos[self.qpos], qpos[self.held.qpos] = self.default, self.held.default
        return qpos


def load(config: RobotConfig, control: ControlConfig, sim: SimConfig, own_planes: bool = False) -> Robot:
    """The robot of a config.

    Args:
        own_planes: each geom that can touch the ground has its own plane, which the physics moves under it.

    Raises:
        ValueError: the file does not exist or is not MJCF; the model has no body, geom, joint or keyframe of a name;
            a joint is neither an action nor held; an action has no angle, gain or limit; or there are more geoms than
            possible planes. One line that begins with the config's key.
    """
    spec = mjcf.read(config.path)
    file = mjcf.compiled(spec, config.path)
    chosen = joints.select(file, config)
    motors = _motors(file, chosen, config, control)
    feet = parts.feet(file, config.feet)
    penalized, terminal = (
        parts.bodies(file, getattr(config, key), key, feet)
        for key in ("penalize_contacts_on", "terminate_after_contacts_on")
    )
    on_ground = set(parts.touching(file, config, feet))
    geoms = {file.bind(geom).id: geom for geom in spec.geoms}
    touching = [geom for number, geom in geoms.items() if number in on_ground]
    _set_armature(spec, (*chosen.names, *chosen.held_names), config)
    model = mjcf.compiled(simplify(spec, touching, sim, own_planes), config.path)
    new = {number: model.bind(geom).id for number, geom in geoms.items()}  # the planes of the ground move the indices

    def renumbered(groups: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: np.array([new[number] for number in group]) for name, group in groups.items()}

    moved = chosen.indices
    ranges = np.where(model.jnt_limited[moved, None] > 0, model.jnt_range[moved], [-np.inf, np.inf])
    split = len(chosen.names)
    return Robot(
        **{name: values[:split] for name, values in motors.items()},
        held=Motors(**{name: values[split:] for name, values in motors.items()}),
        model=model,
        ground=np.flatnonzero(model.geom_contype),
        touching=np.array([model.bind(geom).id for geom in touching] if own_planes else [], int),
        base=index(model, BODY, config.base, "base"),
        feet=renumbered(feet),
        joint_names=chosen.names,
        lower=ranges[:, 0],
        upper=ranges[:, 1],
        penalized=renumbered(penalized),
        terminal=renumbered(terminal),
    )


def _motors(
    file: mujoco.MjModel, chosen: joints.Joints, config: RobotConfig, control: ControlConfig
) -> dict[str, np.ndarray]:
    """The attributes of ``Motors`` for the actions, followed by the held joints, ``[A + H]`` each."""
    names, numbers = (*chosen.names, *chosen.held_names), np.concatenate([chosen.indices, chosen.held_indices])
    return {
        "qpos": file.jnt_qposadr[numbers],
        "dof": file.jnt_dofadr[numbers],
        "default": joints.default_angles(file, chosen, config),
        "stiffness": per_joint(control.stiffness, names, "control.stiffness"),
        "damping": per_joint(control.damping, names, "control.damping"),
        "torque_limit": torque_limits.of(file, numbers, names, config.torque_limit, chosen.held_names),
    }


def _set_armature(spec: mujoco.MjSpec, names: tuple[str, ...], config: RobotConfig) -> None:
    if config.armature is not None:
        for name, value in zip(names, per_joint(config.armature, names, "robot.armature"), strict=True):
            spec.joint(name).armature = value
