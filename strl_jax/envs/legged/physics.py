"""The physics of one environment on MJX: PD control, simulator steps, positions of feet, and contacts."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from strl_jax.envs.legged import lowest
from strl_jax.envs.legged.robot import Robot
from strl_jax.envs.legged.rotations import product
from strl_jax.envs.legged.terrain.heights import Terrain
from strl_jax.envs.precision import exact
from strl_jax.types import Array

with contextlib.redirect_stdout(None):  # mujoco.mjx prints that warp is not installed; this package does not need it
    from mujoco import mjx

TOUCH = 0.001  # m; a part that is closer to the ground is in contact with it


@struct.dataclass
class Motion:
    """Everything that the next step of the simulator depends on."""

    qpos: Array  # [nq], position (m) and quaternion (w first) of the base, then joint angles (rad)
    qvel: Array  # [nv], base: linear velocity in the world (m/s), angular in its frame (rad/s); then joints (rad/s)
    warmstart: Array  # [nv], initial acceleration of the solver


@struct.dataclass
class Variation:
    """The properties that differ between environments."""

    friction: Array  # [], coefficient of the ground
    added_mass: Array  # [], kg on the base
    com: Array  # [3], displacement of the base's centre of mass, m
    strength: Array  # [A], factors of the motor torques
    gains: Array  # [2], factors of stiffness and damping of the PD law
    delay: Array  # [], seconds until a new action takes effect


@struct.dataclass
class Places:
    """Positions of the feet, and contacts with the ground."""

    feet: Array  # [F, 3], centres, m, in the world
    contact: Array  # bool[F]
    collisions: Array  # bool[penalised bodies]
    failed: Array  # bool[], a body of terminate_after_contacts_on touches the ground


class Physics:
    """The robot's physics as pure functions, each for ONE environment.

    Args:
        robot: the model and its values.
        action_scale: change of the joint target for an action of 1, rad.
        decimation: simulator steps per control step.
        forces: whether ``advance`` computes the contact forces; otherwise they are zeros.
        terrain: the ground, for a robot that was loaded with ``own_planes``; None: flat ground at height 0.
        level_feet: ``stand`` tilts the base so that all feet are on the ground.

    Raises:
        ValueError: MJX does not support the model; one line.
    """

    def __init__(
        self,
        robot: Robot,
        action_scale: float,
        decimation: int,
        forces: bool,
        terrain: Terrain | None = None,
        level_feet: bool = False,
    ):
        self.robot, self.decimation, self._scale, self._forces = robot, decimation, action_scale, forces
        self.terrain, self.level_feet = terrain, level_feet
        try:
            self._model = mjx.put_model(robot.model, impl="jax")
        except NotImplementedError as error:
            raise ValueError(f"robot.path: MJX cannot simulate this model: {error}") from None
        self._data = mjx.make_data(robot.model, impl="jax")
        self._feet = lowest.of(robot.model, robot.foot_geoms)
        self._penalized = [lowest.of(robot.model, geoms) for geoms in robot.penalized.values()]
        self._terminal = [lowest.of(robot.model, geoms) for geoms in robot.terminal.values()]

    @exact
    def stand(self, joints: Array, yaw: Array, xy: Array | None = None) -> tuple[Motion, Array, Array]:
        """The robot at rest, with its lowest foot on the ground; upright without ``level_feet``.

        Args:
            joints: ``[A]``, joint angles, rad.
            yaw: ``[]``, heading of the base, rad.
            xy: ``[2]``, position of the base, m; None: the world's origin.

        Returns:
            The motion, and ``feet`` and ``contact`` as in ``Places``.
        """
        model = self.robot.model
        quaternion = jnp.stack([jnp.cos(yaw / 2), jnp.zeros(()), jnp.zeros(()), jnp.sin(yaw / 2)])
        position = jnp.zeros(3) if xy is None else jnp.append(xy, 0.0)
        qpos = jnp.asarray(self.robot.default_qpos, jnp.float32).at[:7].set(jnp.concatenate([position, quaternion]))
        qpos = qpos.at[self.robot.qpos].set(joints)
        qpos = self._levelled(qpos) if self.level_feet else qpos
        data = self._kinematics(qpos)
        clearance, normal_z = self._clearance(data, self._feet)
        lift = -(clearance / normal_z).min()
        feet = self._foot_positions(data).at[:, 2].add(lift)
        motion = Motion(qpos.at[2].set(lift), jnp.zeros(model.nv), jnp.zeros(model.nv))
        return motion, feet, self._min_per_foot(clearance + lift * normal_z) < TOUCH

    def _levelled(self, qpos: Array) -> Array:
        """``qpos`` with the base tilted so that the lowest points of the feet are as close to a level as possible.

        The plane through them is fitted with least squares. The tilt is exact for feet with round soles.
        """
        data = self._kinematics(qpos)
        xy, height = self._foot_positions(data)[:, :2], self._min_per_foot(self._clearance(data, self._feet)[0])
        # Two feet, or feet in a line, give no slope across this line: its singular value is cut.
        slope = jnp.linalg.pinv(xy - xy.mean(axis=0), rtol=0.01) @ (height - height.mean())
        normal = jnp.append(-slope, 1.0) / jnp.sqrt(1 + (slope**2).sum())
        tilt = jnp.stack([1 + normal[2], normal[1], -normal[0], jnp.zeros(())])  # rotates the normal to the z axis
        return qpos.at[3:7].set(product(tilt / jnp.linalg.norm(tilt), qpos[3:7]))

    @exact
    def advance(
        self, motion: Motion, variation: Variation, action: Array, last_action: Array
    ) -> tuple[Motion, Array, Array]:
        """One control step: ``decimation`` simulator steps with PD control towards the action's joint targets.

        Args:
            action: ``[A]``, of this step.
            last_action: ``[A]``, of the step before; it is used until ``variation.delay`` has passed.

        Returns:
            The motion after the step, the torques ``[A]`` of the last simulator step in Nm, and its contact
            forces ``[F, 3]`` on the bodies of the feet in N, in the world frame.
        """
        robot, model = self.robot, self._model_of(variation)

        def substep(carry, number):
            now = carry[0]
            delayed = jnp.where(number * robot.model.opt.timestep < variation.delay, last_action, action)
            torque = self.torque(now, variation, delayed)
            applied = jnp.zeros(robot.model.nv).at[robot.dof].set(torque)
            if len(robot.held.dof):
                applied = applied.at[robot.held.dof].set(self._holding_torque(now))
            data = self._data.replace(qpos=now.qpos, qvel=now.qvel, qacc_warmstart=now.warmstart, qfrc_applied=applied)
            on_ground = self._with_planes(model, data)
            data = mjx.step(on_ground, data)
            return (Motion(data.qpos, data.qvel, data.qacc_warmstart), torque, self._foot_forces(on_ground, data)), None

        start = (motion, jnp.zeros(len(robot.dof)), jnp.zeros((len(robot.feet), 3)))
        return jax.lax.scan(substep, start, jnp.arange(self.decimation))[0]

    def torque(self, motion: Motion, variation: Variation, action: Array) -> Array:
        """Torques ``[A]`` of the PD law in Nm, clipped to the torque limits."""
        robot = self.robot
        error = robot.default + self._scale * action - motion.qpos[robot.qpos]
        stiffness, damping = robot.stiffness * variation.gains[0], robot.damping * variation.gains[1]
        torque = variation.strength * (stiffness * error - damping * motion.qvel[robot.dof])
        return jnp.clip(torque, -robot.torque_limit, robot.torque_limit).astype(jnp.float32)

    def _holding_torque(self, motion: Motion) -> Array:
        """Torques ``[H]`` in Nm that keep the held joints at their default angles, clipped to the torque limits."""
        held = self.robot.held
        torque = held.stiffness * (held.default - motion.qpos[held.qpos]) - held.damping * motion.qvel[held.dof]
        return jnp.clip(torque, -held.torque_limit, held.torque_limit).astype(jnp.float32)

    @exact
    def places(self, motion: Motion) -> Places:
        """Positions of the feet and contacts of a motion."""
        data = self._kinematics(motion.qpos)
        touching = [self._clearance(data, points)[0].min() < TOUCH for points in self._penalized]
        failed = [self._clearance(data, points)[0].min() < TOUCH for points in self._terminal]
        return Places(
            feet=self._foot_positions(data),
            contact=self._min_per_foot(self._clearance(data, self._feet)[0]) < TOUCH,
            collisions=jnp.stack(touching) if touching else jnp.zeros(0, bool),
            failed=jnp.stack(failed).any() if failed else jnp.zeros((), bool),
        )

    def _kinematics(self, qpos: Array):
        return mjx.kinematics(self._model, self._data.replace(qpos=qpos))

    def _clearance(self, data, shapes: lowest.Shapes) -> tuple[Array, Array]:
        """Distance of each shape from the tangent plane of the ground below it, and the normal's z; ``[P]`` each."""
        position = shapes.centres(data.geom_xpos, data.geom_xmat)
        if self.terrain is None:
            return position[:, 2] - shapes.reach(data.geom_xmat), jnp.ones(len(shapes.geom))
        height, normal = self.terrain.surface(position[:, :2])
        return (position[:, 2] - height) * normal[:, 2] - shapes.reach(data.geom_xmat, normal), normal[:, 2]

    def _with_planes(self, model, data):
        """The model with each ground plane moved to the terrain's tangent plane below its geom.

        MJX computes the same kinematics again in its step; the compiler merges the two.
        """
        if self.terrain is None:
            return model
        xy = mjx.kinematics(model, data).geom_xpos[self.robot.touching, :2]
        height, normal = self.terrain.surface(xy)
        # The quaternion that rotates the z axis to the normal.
        quaternion = jnp.stack([1 + normal[:, 2], -normal[:, 1], normal[:, 0], jnp.zeros(len(xy))], axis=-1)
        quaternion = quaternion / jnp.linalg.norm(quaternion, axis=-1, keepdims=True)
        return model.replace(
            geom_pos=model.geom_pos.at[self.robot.ground].set(jnp.concatenate([xy, height[:, None]], axis=-1)),
            geom_quat=model.geom_quat.at[self.robot.ground].set(quaternion),
        )

    def _min_per_foot(self, clearance: Array) -> Array:
        """The smallest clearance ``[F]`` of each foot's shapes, from that of all feet's shapes ``[P]``."""
        return jnp.stack([clearance[np.isin(self._feet.geom, foot)].min() for foot in self.robot.feet.values()])

    def _model_of(self, variation: Variation):
        """The model of one environment: its friction, and the mass, inertia and centre of mass of its base."""
        model, base = self._model, self.robot.base
        mass = model.body_mass[base] + variation.added_mass
        return model.replace(
            geom_friction=model.geom_friction.at[self.robot.ground, 0].set(variation.friction),
            body_mass=model.body_mass.at[base].set(mass),
            body_subtreemass=model.body_subtreemass.at[base].add(variation.added_mass),
            body_inertia=model.body_inertia.at[base].multiply(mass / model.body_mass[base]),
            body_ipos=model.body_ipos.at[base].add(variation.com),
        )

    def _foot_positions(self, data) -> Array:
        """Centre ``[F, 3]`` of each foot in the world, m: the mean of the centres of its geoms."""
        feet, geoms = self.robot.feet.values(), self.robot.foot_geoms
        if len(geoms) == len(feet):
            return data.geom_xpos[geoms]
        return jnp.stack([data.geom_xpos[group].mean(axis=0) for group in feet])

    def _foot_forces(self, model, data) -> Array:
        if not self._forces:
            return jnp.zeros((len(self.robot.feet), 3))
        force = mjx.rne_postconstraint(model, data)._impl.cfrc_ext[:, 3:]
        bodies = [np.unique(self.robot.model.geom_bodyid[group]) for group in self.robot.feet.values()]
        return jnp.stack([force[group].sum(axis=0) for group in bodies])
