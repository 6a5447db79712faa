"""One environment's physics on MJX: PD control over simulator steps, and where its parts are."""

import contextlib

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from flax import struct

from strl_jax.envs.legged.robot import Robot
from strl_jax.envs.legged.terrain.heights import Terrain
from strl_jax.envs.precision import exact
from strl_jax.types import Array

with contextlib.redirect_stdout(None):  # mujoco.mjx prints that it lacks warp, which nothing here needs
    from mujoco import mjx

TOUCH = 0.001  # m above the ground at which a part still counts as touching it


@struct.dataclass
class Motion:
    """All that the simulator's next step depends on."""

    qpos: Array  # [nq], the base's position and quaternion (w first), then the joints
    qvel: Array  # [nv], the base's velocity in the world and its rotation in its own frame, then the joints
    warmstart: Array  # [nv], where the solver starts


@struct.dataclass
class Variation:
    """What differs between environments."""

    friction: Array  # []
    added_mass: Array  # [], kg on the base
    com: Array  # [3], displacement of the base's centre of mass, m
    strength: Array  # [A], factor of the motors' torque
    gains: Array  # [2], factors of stiffness and damping
    delay: Array  # [], seconds until an action acts


@struct.dataclass
class Places:
    """Where the parts are."""

    feet: Array  # [F, 3] in the world, centres
    contact: Array  # bool[F]
    collisions: Array  # bool[number of penalised bodies]
    failed: Array  # bool[], a body that must not touches the ground


class Physics:
    """The pure functions of ``robot``'s physics, each for ONE environment.

    Args:
        robot: the model and its numbers.
        action_scale: rad for an action of 1.
        decimation: simulator steps of a control step.
        forces: whether ``advance`` gives the contact forces; otherwise they are zeros.
        terrain: the ground, for a robot with its ``own_planes``; None: flat ground at height 0.

    Raises:
        ValueError: one line: the model has what MJX lacks.
    """

    def __init__(
        self, robot: Robot, action_scale: float, decimation: int, forces: bool, terrain: Terrain | None = None
    ):
        self.robot, self.decimation, self._scale, self._forces = robot, decimation, action_scale, forces
        self.terrain = terrain
        try:
            self._model = mjx.put_model(robot.model, impl="jax")
        except NotImplementedError as error:
            raise ValueError(f"robot.path: MJX cannot simulate this model: {error}") from None
        self._data = mjx.make_data(robot.model, impl="jax")
        self._foot_points = _points(robot.model, robot.feet)
        self._penalized = [_points(robot.model, geoms) for geoms in robot.penalized]
        self._terminal = [_points(robot.model, geoms) for geoms in robot.terminal]

    @exact
    def stand(self, joints: Array, yaw: Array, xy: Array | None = None) -> tuple[Motion, Array, Array]:
        """At rest with the joint angles ``[A]``, upright, its lowest foot on the ground.

        Args:
            xy: ``[2]``, place of the base; None: the world's origin.

        Returns:
            The motion, and ``feet`` and ``contact`` of ``Places``.
        """
        model = self.robot.model
        turn = jnp.stack([jnp.cos(yaw / 2), jnp.zeros(()), jnp.zeros(()), jnp.sin(yaw / 2)])
        place = jnp.zeros(3) if xy is None else jnp.append(xy, 0.0)
        qpos = jnp.asarray(model.qpos0, jnp.float32).at[:7].set(jnp.concatenate([place, turn]))
        qpos = qpos.at[self.robot.qpos].set(joints)
        data = self._kinematics(qpos)
        clearance, steepness = self._clearance(data, self._foot_points)
        lift = -(clearance / steepness).min()
        feet = data.geom_xpos[self.robot.feet].at[:, 2].add(lift)
        motion = Motion(qpos.at[2].set(lift), jnp.zeros(model.nv), jnp.zeros(model.nv))
        return motion, feet, self._by_foot(clearance + lift * steepness) < TOUCH

    @exact
    def advance(
        self, motion: Motion, variation: Variation, action: Array, before: Array
    ) -> tuple[Motion, Array, Array]:
        """One control step: ``decimation`` simulator steps in which the joints follow the action.

        Args:
            action, before: ``[A]``, this step's and the last one's, which acts until the delay is over.

        Returns:
            The motion after it, the last torques ``[A]`` and the last contact forces on the feet's
            bodies ``[F, 3]`` in the world.
        """
        robot, model = self.robot, self._vary(variation)

        def substep(carry, number):
            now = carry[0]
            acting = jnp.where(number * robot.model.opt.timestep < variation.delay, before, action)
            torque = self.torque(now, variation, acting)
            applied = jnp.zeros(robot.model.nv).at[robot.dof].set(torque)
            data = self._data.replace(qpos=now.qpos, qvel=now.qvel, qacc_warmstart=now.warmstart, qfrc_applied=applied)
            placed = self._placed(model, data)
            data = mjx.step(placed, data)
            return (Motion(data.qpos, data.qvel, data.qacc_warmstart), torque, self._foot_forces(placed, data)), None

        start = (motion, jnp.zeros(len(robot.dof)), jnp.zeros((len(robot.feet), 3)))
        return jax.lax.scan(substep, start, jnp.arange(self.decimation))[0]

    def torque(self, motion: Motion, variation: Variation, action: Array) -> Array:
        """Torques ``[A]`` of the PD law, limited, in Nm."""
        robot = self.robot
        error = robot.default + self._scale * action - motion.qpos[robot.qpos]
        stiffness, damping = robot.stiffness * variation.gains[0], robot.damping * variation.gains[1]
        torque = variation.strength * (stiffness * error - damping * motion.qvel[robot.dof])
        return jnp.clip(torque, -robot.torque_limit, robot.torque_limit).astype(jnp.float32)

    @exact
    def places(self, motion: Motion) -> Places:
        """Where the robot's parts are in a motion."""
        data = self._kinematics(motion.qpos)
        touching = [self._clearance(data, points)[0].min() < TOUCH for points in self._penalized]
        failed = [self._clearance(data, points)[0].min() < TOUCH for points in self._terminal]
        return Places(
            feet=data.geom_xpos[self.robot.feet],
            contact=self._by_foot(self._clearance(data, self._foot_points)[0]) < TOUCH,
            collisions=jnp.stack(touching) if touching else jnp.zeros(0, bool),
            failed=jnp.stack(failed).any() if failed else jnp.zeros((), bool),
        )

    def _kinematics(self, qpos: Array):
        return mjx.kinematics(self._model, self._data.replace(qpos=qpos))

    def _clearance(self, data, points: tuple[np.ndarray, np.ndarray, np.ndarray]) -> tuple[Array, Array]:
        """Distance of each point's surface from the plane of the ground under it, and the normal's z, ``[P]``."""
        geom, offset, radius = points
        place = data.geom_xpos[geom] + (data.geom_xmat[geom] * offset[:, None]).sum(-1)
        if self.terrain is None:
            return place[:, 2] - radius, jnp.ones(len(geom))
        height, normal = self.terrain.surface(place[:, :2])
        return (place[:, 2] - height) * normal[:, 2] - radius, normal[:, 2]

    def _placed(self, model, data):
        """The model with the plane of each geom that touches the ground put on the terrain under that geom.

        MJX finds the same places of the bodies again; the compiler merges the two.
        """
        if self.terrain is None:
            return model
        xy = mjx.kinematics(model, data).geom_xpos[self.robot.touching, :2]
        height, normal = self.terrain.surface(xy)
        turn = jnp.stack([1 + normal[:, 2], -normal[:, 1], normal[:, 0], jnp.zeros(len(xy))], axis=-1)  # z to normal
        turn = turn / jnp.linalg.norm(turn, axis=-1, keepdims=True)
        return model.replace(
            geom_pos=model.geom_pos.at[self.robot.ground].set(jnp.concatenate([xy, height[:, None]], axis=-1)),
            geom_quat=model.geom_quat.at[self.robot.ground].set(turn),
        )

    def _by_foot(self, clearance: Array) -> Array:
        """Height of each foot ``[F]`` from that of the feet's points."""
        geom = self._foot_points[0]
        return jnp.stack([clearance[geom == foot].min() for foot in self.robot.feet])

    def _vary(self, variation: Variation):
        """The model with one environment's friction and base."""
        model, base = self._model, self.robot.base
        mass = model.body_mass[base] + variation.added_mass
        return model.replace(
            geom_friction=model.geom_friction.at[self.robot.ground, 0].set(variation.friction),
            body_mass=model.body_mass.at[base].set(mass),
            body_subtreemass=model.body_subtreemass.at[base].add(variation.added_mass),
            body_inertia=model.body_inertia.at[base].multiply(mass / model.body_mass[base]),
            body_ipos=model.body_ipos.at[base].add(variation.com),
        )

    def _foot_forces(self, model, data) -> Array:
        if not self._forces:
            return jnp.zeros((len(self.robot.feet), 3))
        data = mjx.rne_postconstraint(model, data)
        return data._impl.cfrc_ext[self.robot.model.geom_bodyid[self.robot.feet], 3:]


def _points(model: mujoco.MjModel, geoms: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points whose lowest, less its radius, is the lowest of the geoms.

    Their geoms [P], places in the frames of these [P, 3], and radii [P].

    Exact for spheres, capsules and boxes; other shapes are taken as their boxes.
    """
    signs = np.array(np.meshgrid([-1, 1], [-1, 1], [-1, 1])).reshape(3, -1).T
    rows = []
    for geom in geoms:
        radius, half = model.geom_size[geom, :2]
        if model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_SPHERE:
            rows.append((geom, np.zeros(3), radius))
        elif model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_CAPSULE:
            rows += [(geom, np.array([0, 0, sign * half]), radius) for sign in (-1, 1)]
        else:
            centre, size = model.geom_aabb[geom, :3], model.geom_aabb[geom, 3:]
            rows += [(geom, centre + sign * size, 0.0) for sign in signs]
    return (
        np.array([row[0] for row in rows], int),
        np.array([row[1] for row in rows], np.float32).reshape(-1, 3),
        np.array([row[2] for row in rows], np.float32),
    )
