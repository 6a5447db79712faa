"""Torque limits of a robot's motors, from its config or its file."""

from collections.abc import Container, Sequence

import mujoco
import numpy as np

from strl_jax.envs.legged.config_types import Limit
from strl_jax.envs.legged.names import per_joint

TRN, GAIN, BIAS, DYN = mujoco.mjtTrn, mujoco.mjtGain, mujoco.mjtBias, mujoco.mjtDyn
AT_JOINT = (TRN.mjTRN_JOINT, TRN.mjTRN_JOINTINPARENT)
BOUNDED = (DYN.mjDYN_NONE, DYN.mjDYN_FILTER, DYN.mjDYN_FILTEREXACT)  # the activation stays in the range of the control


def of(
    model: mujoco.MjModel,
    joints: np.ndarray,
    names: Sequence[str],
    limit: Limit | dict[str, Limit] | None,
    unlimited: Container[str] = (),
) -> np.ndarray:
    """Limits [A] in Nm: those of the config, otherwise the smallest of all limits in the file.

    The file can limit the torque of a joint (``actuatorfrcrange``), the force of an actuator (``forcerange``) and, if
    the force is a multiple of the control as for ``<motor>``, the control (``ctrlrange``). The last two are
    multiplied by the gear.

    Args:
        model: the model of the file, with its actuators.
        joints: indices of the joints [A].
        names: their names.
        limit: ``robot.torque_limit``.
        unlimited: names of joints that may have no limit in the file; their limit is then infinite.

    Raises:
        ValueError: the file has no limit for a joint, or the config does not fit the joints; one line.
    """
    if limit is not None:
        return per_joint(limit, names, "robot.torque_limit")
    limited = model.jnt_actfrclimited[joints] > 0
    limits = np.where(limited, np.abs(model.jnt_actfrcrange[joints]).min(axis=1), np.inf)
    for actuator in np.flatnonzero(np.isin(model.actuator_trntype, AT_JOINT)):
        driven = joints == model.actuator_trnid[actuator, 0]
        limits[driven] = np.minimum(limits[driven], _of_actuator(model, actuator))
    limits[limits == 0] = np.inf
    for name, found in zip(names, limits, strict=True):
        if np.isinf(found) and name not in unlimited:
            raise ValueError(f"robot.torque_limit: null is not allowed; the model has no torque limit for {name}")
    return limits


def _of_actuator(model: mujoco.MjModel, actuator: int) -> float:
    """The largest torque of an actuator in Nm; infinity without a limit, or if it does not act on the joint."""
    gear = np.abs(model.actuator_gear[actuator, 0])
    forces = [np.inf]
    if model.actuator_forcelimited[actuator]:
        forces.append(np.abs(model.actuator_forcerange[actuator]).min())
    gain, bias = model.actuator_gainprm[actuator, 0], model.actuator_biasprm[actuator]
    proportional = model.actuator_gaintype[actuator] == GAIN.mjGAIN_FIXED and (
        model.actuator_biastype[actuator] == BIAS.mjBIAS_NONE
        or (model.actuator_biastype[actuator] == BIAS.mjBIAS_AFFINE and not bias[:3].any())
    )
    bounded = np.isin(model.actuator_dyntype[actuator], BOUNDED)
    if proportional and bounded and model.actuator_ctrllimited[actuator]:
        forces.append(np.abs(gain * model.actuator_ctrlrange[actuator]).min())
    if proportional and model.actuator_actlimited[actuator]:
        forces.append(np.abs(gain * model.actuator_actrange[actuator]).min())
    return gear * min(forces) if gear else np.inf
