"""The model that MJX simulates: the robot of a file on our ground, without actuators and self-collisions."""

from collections.abc import Sequence

import mujoco

from strl_jax.envs.legged.config import SimConfig

MAX_PLANES = 31  # bits of contype: each plane collides with one geom, and each pair needs its own bit


def simplify(
    spec: mujoco.MjSpec, touching: Sequence[mujoco.MjsGeom], sim: SimConfig, own_planes: bool
) -> mujoco.MjSpec:
    """Changes a specification and returns it.

    Args:
        touching: the geoms that the ground holds; no others collide.
        sim: time step and iterations of the solver.
        own_planes: one ground plane for each geom of ``touching``, in the same order; otherwise one for all.

    Raises:
        ValueError: there are more geoms than possible planes; one line.
    """
    for item in [*spec.actuators, *spec.sensors, *spec.keys, *spec.pairs, *spec.excludes]:
        spec.delete(item)
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
    _set_options(spec.option, sim)
    return spec


def _set_options(option: mujoco.MjOption, sim: SimConfig) -> None:
    option.timestep, option.iterations, option.ls_iterations = sim.dt, sim.iterations, sim.ls_iterations
    option.integrator, option.solver = mujoco.mjtIntegrator.mjINT_EULER, mujoco.mjtSolver.mjSOL_NEWTON
    option.cone = mujoco.mjtCone.mjCONE_PYRAMIDAL
    off, on = mujoco.mjtDisableBit, mujoco.mjtEnableBit
    option.disableflags = (option.disableflags | off.mjDSBL_EULERDAMP) & ~(off.mjDSBL_CONTACT | off.mjDSBL_CONSTRAINT)
    option.enableflags &= ~(on.mjENBL_ENERGY | on.mjENBL_FWDINV)  # unused values that MJX does not support
