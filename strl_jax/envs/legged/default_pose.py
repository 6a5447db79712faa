"""Checks of the default pose: the robot must stand on its feet, and on nothing else."""

import mujoco
import numpy as np

from strl_jax.envs.legged import lowest
from strl_jax.envs.legged.physics import TOUCH
from strl_jax.envs.legged.robot import Robot


def fault(robot: Robot) -> str | None:
    """One line that names the penalised and terminal bodies that touch the ground in the default pose, or None.

    The robot stands upright on its lowest foot.
    """
    data = mujoco.MjData(robot.model)
    data.qpos[:] = robot.default_qpos
    mujoco.mj_kinematics(robot.model, data)
    rotation = data.geom_xmat.reshape(-1, 3, 3)

    def height(geoms: np.ndarray) -> float:
        shapes = lowest.of(robot.model, geoms)
        return (shapes.centres(data.geom_xpos, rotation)[:, 2] - shapes.reach(rotation)).min()

    ground = min(map(height, robot.feet.values()))
    groups = {"penalize_contacts_on": robot.penalized, "terminate_after_contacts_on": robot.terminal}
    touching = [
        f"{', '.join(names)} ({key})"
        for key, bodies in groups.items()
        if (names := [name for name, geoms in bodies.items() if height(geoms) - ground < TOUCH])
    ]
    return f"robot: bodies that touch the ground in the default pose: {'; '.join(touching)}" if touching else None
