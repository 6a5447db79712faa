"""The joints of a robot: which are actions, which are held, and their default angles."""

from typing import NamedTuple

import mujoco
import numpy as np

from strl_jax.envs.legged.config import RobotConfig
from strl_jax.envs.legged.names import BODY, JOINT, all_names, expanded, index, indices

HINGE, SLIDE = int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE)


class Joints(NamedTuple):
    """Names and indices of the joints that are actions [A] and of the held joints [H]."""

    names: tuple[str, ...]
    indices: np.ndarray
    held_names: tuple[str, ...]
    held_indices: np.ndarray


def select(model: mujoco.MjModel, config: RobotConfig) -> Joints:
    """The joints of the config.

    Raises:
        ValueError: the base has no free joint, a joint is unknown, is listed twice or has the wrong type, or a joint
            of the model is neither an action nor held; one line.
    """
    base = index(model, BODY, config.base, "base")
    if model.body_jntadr[base] != 0 or model.jnt_type[0] != mujoco.mjtJoint.mjJNT_FREE:
        raise ValueError(
            f"robot.base: {config.base} is not allowed; its joint must be the model's first and a free joint"
        )
    known = all_names(model, JOINT)[1:]
    names = expanded(config.joints, known, "joints")
    moved = indices(model, JOINT, names, "joints")
    # A pattern means the joints that are left.
    held_names = expanded(config.held_joints, [name for name in known if name not in names], "held_joints")
    held = indices(model, JOINT, held_names, "held_joints")
    for name, joint in zip(names, moved, strict=True):
        if model.jnt_type[joint] != HINGE:
            raise ValueError(f"robot.joints: {name} is not allowed; it must be a hinge joint")
    for name, joint in zip(held_names, held, strict=True):
        if name in names:
            raise ValueError(f"robot.held_joints: {name} is listed in robot.joints")
        if model.jnt_type[joint] not in (HINGE, SLIDE):
            raise ValueError(f"robot.held_joints: {name} is not allowed; it must be a hinge or slide joint")
    missing = [name or "a joint without a name" for name in known if name not in {*names, *held_names}]
    if missing:
        listed = f"{len(known) - len(missing)} of the model's {len(known)} joints are listed"
        way = "list the others in robot.held_joints ('*': all others)"
        raise ValueError(f"robot.joints: {listed}; missing: {', '.join(missing)}; {way}")
    return Joints(tuple(names), moved, tuple(held_names), held)


def default_angles(model: mujoco.MjModel, joints: Joints, config: RobotConfig) -> np.ndarray:
    """The default angles [A + H] of the actions and the held joints, rad (of slide joints: m).

    Raises:
        ValueError: there is no such keyframe, an action has no angle, or an angle is outside of the joint's range.
    """
    names, numbers = (*joints.names, *joints.held_names), np.concatenate([joints.indices, joints.held_indices])
    address, angles, given = model.jnt_qposadr[numbers], model.qpos0.copy(), config.default_joint_angles
    if config.default_keyframe is not None:
        angles = _keyframe(model, config.default_keyframe)
    for part in given:
        if not any(part in name for name in names):
            what = f"{part} is not allowed; it is part of no joint name"
            raise ValueError(f"robot.default_joint_angles: {what}: {', '.join(names)}")
    result = angles[address]
    for place, (name, joint) in enumerate(zip(names, numbers, strict=True)):
        matches = [angle for part, angle in given.items() if part in name]
        if not matches and config.default_keyframe is None and name in joints.names:
            keys = ", ".join(given) or "none"
            raise ValueError(f"robot.default_joint_angles: no key is part of the joint name {name}; keys: {keys}")
        result[place] = matches[-1] if matches else result[place]
        low, high = model.jnt_range[joint] if model.jnt_limited[joint] else (-np.inf, np.inf)
        if not low <= result[place] <= high:
            key = "default_joint_angles" if matches or config.default_keyframe is None else "default_keyframe"
            limits = f"it must be in [{low:g}, {high:g}]"
            raise ValueError(f"robot.{key}: {result[place]:g} of {name} is not allowed; {limits}")
    return result


def _keyframe(model: mujoco.MjModel, name: str) -> np.ndarray:
    """Positions [nq] of a keyframe."""
    number = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_KEY, name)
    if number < 0:
        names = [mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_KEY, key) for key in range(model.nkey)]
        known = ", ".join(filter(None, names)) or "none with a name"
        raise ValueError(f"robot.default_keyframe: the model has no keyframe {name!r}; it has {known}")
    return model.key_qpos[number].copy()
