"""Velocity-tracking legged robots on MuJoCo MJX, in the manner of legged_gym."""

import copy
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from strl_jax.envs.base import Env, where
from strl_jax.envs.legged import commands, observations, randomize, rewards, robot
from strl_jax.envs.legged.camera import depth_image
from strl_jax.envs.legged.config import LeggedConfig
from strl_jax.envs.legged.physics import Motion, Physics, Places, Variation
from strl_jax.envs.legged.rotations import rotate_back, yaw
from strl_jax.envs.legged.state import Legged, Record, body_velocities
from strl_jax.envs.legged.terrain import heights
from strl_jax.envs.legged.terrain.ground import Ground
from strl_jax.envs.legged.terrain.levels import OnField
from strl_jax.types import Array, EnvState, Obs


class LeggedEnv(Env):
    """A robot that has to follow commanded velocities: ``legged:flat`` and, on a terrain, ``legged:rough`` in a config.

    Args:
        config: the environment; see ``LeggedConfig``.

    Attributes:
        terrain: the ground; None: flat, at height 0.

    Raises:
        ValueError: the robot's file, names or numbers or the terrain's do not fit.
    """

    def __init__(self, config: LeggedConfig | None = None):
        self.config = config = LeggedConfig() if config is None else config
        self.terrain = None if config.terrain.mesh_type == "plane" else heights.build(config.terrain)
        self.ground = Ground(config.terrain, self.terrain)
        self.robot = robot.load(config.robot, config.control, config.sim, own_planes=self.terrain is not None)
        self.dt = config.dt
        self.action_size = len(self.robot.dof)
        self.episode_length = config.steps(config.episode.episode_length_s)
        self.observation_shapes = observations.shapes(config, self.action_size, len(self.robot.feet))
        forces = any(name in rewards.active(config.rewards) for name in rewards.FORCES)
        control = config.control
        self.physics = Physics(self.robot, control.action_scale, control.decimation, forces, self.terrain)
        # Under jit their traces are kept: several programs use them, and MJX takes seconds to trace.
        self._advance, self._places = jax.jit(jax.vmap(self.physics.advance)), jax.jit(jax.vmap(self.physics.places))
        velocity = np.full(self.action_size, config.robot.velocity_limit)
        r = self.robot
        self._limits = rewards.limits(config.rewards, r.lower, r.upper, velocity, r.torque_limit, r.default)
        _check_mass(config, self.robot.model.body_mass[self.robot.base])

    @property
    def action_scale(self) -> float:
        """rad of a joint's target for an action of 1."""
        return self.config.control.action_scale

    @property
    def lin_vel_scale(self) -> float:
        """Factor of planar velocities and their commands in observations."""
        return self.config.normalization.obs_scales.lin_vel

    def reset(self, key: Array) -> EnvState:
        """Fresh environments for ``key[B]``: near the default pose, slowly moving, at a random heading."""
        batch, first = key.shape[0], self.config.episode.start_length_s
        keys = jax.vmap(lambda k: jax.random.split(k, 5), out_axes=1)(key)
        start_key, vary_key, command_key, field_key, next_key = keys
        field = self.ground.draw(field_key)
        motion, feet, contact = jax.vmap(self._start)(start_key, field)
        limit = self.episode_length if first is None else self.config.steps(first)
        state = Legged(
            motion=motion,
            variation=self._varied(vary_key),
            command=commands.draw(command_key),
            command_level=jnp.full(batch, commands.first_level(self.config.commands), jnp.float32),
            limit=jnp.full(batch, limit, jnp.int32),
            age=jnp.zeros(batch, jnp.int32),
            tracking=jnp.zeros(batch),
            action=jnp.zeros((batch, self.action_size)),
            feet=feet,
            contact=contact,
            air_time=jnp.zeros(contact.shape),
            key=next_key,
            field=field,
        )
        no = jnp.zeros(batch, bool)
        return EnvState(state, self.observe(state), jnp.zeros(batch), no, no, {}, {})

    def step(self, state: EnvState, action: Array) -> EnvState:
        """One control step. Rewards see the command that was acted on; a new one is drawn after them."""
        return self.recorded(state, action)[0]

    def recorded(self, state: EnvState, action: Array) -> tuple[EnvState, Record]:
        """``step``, and what it showed."""
        old: Legged = state.physics
        most = self.config.normalization.clip_actions
        action = jnp.clip(action, -most, most)
        push_key, command_key, next_key = jax.vmap(lambda k: jax.random.split(k, 3), out_axes=1)(old.key)
        motion, torque, force = self._advance(old.motion, old.variation, action, old.action)
        places = self._places(motion)
        age = old.age + 1
        terminated = self._fallen(motion, places)
        quantities = self._quantities(old, motion, places, torque, force, action, terminated)
        reward, terms = rewards.total(self.config.rewards, self._limits, quantities, self.dt)

        tracking = rewards.TERMS["tracking_lin_vel"](quantities, self.config.rewards, self._limits)
        every = self.config.steps(self.config.commands.resampling_time)
        new = old.replace(
            motion=self._pushed(push_key, age, motion),
            command=where(age % every == 0, commands.draw(command_key), old.command),
            age=age,
            tracking=old.tracking + tracking,
            action=action,
            feet=places.feet,
            contact=places.contact,
            air_time=jnp.where(places.contact, 0.0, old.air_time + self.dt),
            key=next_key,
            field=self.ground.asked(old.field, self.dt * jnp.linalg.norm(quantities.command[:, :2], axis=-1)),
        )
        stepped = EnvState(
            physics=new,
            obs=self.observe(new),
            reward=reward,
            terminated=terminated,
            timeout=(age >= old.limit) | self.ground.outside(motion.qpos),
            metrics=terms | self._measured(quantities, new),
            extras={},
        )
        velocity = jnp.concatenate([quantities.lin_vel[:, :2], quantities.ang_vel[:, 2:]], axis=-1)
        return stepped, Record(motion.qpos, quantities.command, velocity, torque, places.contact, terminated)

    def evaluated(self) -> "LeggedEnv":
        """The same robots without pushes and curricula: every episode has its whole length and all commands."""
        other = copy.copy(self)  # with the traces of this one
        other.config = self.config.evaluated()
        other.ground = Ground(other.config.terrain, self.terrain)
        return other

    def scores(self, means: dict[str, Array]) -> dict[str, Array]:
        """``tracking_error`` (RMSD of the planar velocity, m/s), ``yaw_error`` (rad/s) and ``CoT``.

        The cost of transport is the motors' work, without regard to its sign, over weight times way.
        """
        return {
            "tracking_error": jnp.sqrt(means["squared_lin_vel_error"]),
            "yaw_error": jnp.sqrt(means["squared_ang_vel_error"]),
            "CoT": means["power"] / means["weight_speed"],
        }

    def merge(self, done: Array, fresh: EnvState, state: EnvState) -> EnvState:
        """``fresh`` where ``done``, but an environment keeps its curricula and, if so configured, its variation."""
        old = state.physics
        new = where(done, self.ground.go_on(old, fresh.physics), old)
        level = commands.next_level(self.config.commands, old.command_level, old.tracking / old.limit)
        longer = jnp.minimum(old.limit + jnp.maximum(old.limit // 2, 1), self.episode_length)
        new = new.replace(
            command_level=jnp.where(done, level, old.command_level),
            limit=jnp.where(done & (old.age >= old.limit), longer, old.limit),
        )
        # Several take one fresh state: what is drawn for an episode comes from each environment's own key.
        keys = jax.vmap(lambda k: jax.random.split(jax.random.fold_in(k, 3), 3), out_axes=1)(old.key)
        varied = self._varied(keys[2]) if self.config.domain_rand.each_episode else old.variation
        new = new.replace(
            key=where(done, keys[0], old.key),
            command=where(done, commands.draw(keys[1]), old.command),
            variation=where(done, varied, old.variation),
        )
        return state.replace(physics=new, obs=where(done, self.observe(new), state.obs))

    def simulator(self) -> tuple[Callable, Callable]:
        """MJX alone: a control step without rewards, commands and observations."""

        def step(state: EnvState, action: Array) -> EnvState:
            old = state.physics
            motion, _, _ = self._advance(old.motion, old.variation, action, action)
            return state.replace(physics=old.replace(motion=motion))

        return self.reset, step

    def observe(self, state: Legged) -> Obs:
        """All components ``[B, ...]``: a function of the state alone, the noise of its key."""
        config, r = self.config, self.robot
        lin_vel, ang_vel, gravity = body_velocities(state.motion)
        joints, rates = state.motion.qpos[:, r.qpos], state.motion.qvel[:, r.dof]
        base, turn = state.motion.qpos[:, :3], state.motion.qpos[:, 3:7]
        heading = yaw(turn)
        command = commands.velocity(config.commands, state.command, state.command_level, heading)
        feet = rotate_back(turn[:, None], state.feet - base[:, None])
        noise_key = jax.vmap(lambda k: jax.random.fold_in(k, 0))(state.key)
        obs = {
            "proprioception": observations.proprioception(
                config, lin_vel, ang_vel, gravity, command, joints - r.default, rates, state.action, noise_key
            ),
            "amp": observations.amp(joints, feet, lin_vel, ang_vel, rates, self.ground.clearance(state.motion.qpos)),
            "height_scan": observations.height_scan(config, self.terrain, base, heading),
            **observations.privileged(config, lin_vel, state.contact, state.variation),
            **self._ahead(state),
        }
        return {name: obs[name].astype(jnp.float32) for name in self.observation_shapes}

    def _ahead(self, state: Legged) -> Obs:
        """The components ``engaging_block`` and ``forward_depth``, where there is a terrain and a camera."""
        place, turn, obs = state.motion.qpos[:, :3], state.motion.qpos[:, 3:7], {}
        if self.terrain is not None:
            obs["engaging_block"] = self.ground.engaging_block(state)
        if self.config.camera is not None:
            height = None if self.terrain is None else self.terrain.height
            key = jax.vmap(lambda k: jax.random.fold_in(k, 2))(state.key)
            look = jax.vmap(lambda *pose: depth_image(self.config.camera, height, *pose))
            obs["forward_depth"] = look(place, turn, key)
        return obs

    def _varied(self, key: Array) -> Variation:
        """Robots and ground drawn anew for ``key[B]``."""
        rand, delay = self.config.domain_rand, self.config.control.delay
        return jax.vmap(lambda k: randomize.variation(rand, delay, self.action_size, k))(key)

    def _start(self, key: Array, field: OnField | None) -> tuple[Motion, Array, Array]:
        joint_key, yaw_key, place_key, speed_key = jax.random.split(key, 4)
        episode = self.config.episode
        noise = jax.random.uniform(joint_key, (self.action_size,), minval=-1.0, maxval=1.0)
        joints = jnp.clip(self.robot.default * (1 + episode.joint_noise * noise), self.robot.lower, self.robot.upper)
        turn = jax.random.uniform(yaw_key, minval=-jnp.pi, maxval=jnp.pi)
        xy = self.ground.start(place_key, field)
        motion, feet, contact = self.physics.stand(joints.astype(jnp.float32), turn, xy)
        most = episode.velocity_noise
        speed = jax.random.uniform(speed_key, (6,), minval=-most, maxval=most)
        return motion.replace(qvel=motion.qvel.at[:6].set(speed)), feet, contact

    def _pushed(self, key: Array, age: Array, motion: Motion) -> Motion:
        rand = self.config.domain_rand
        if rand.push_interval_s is None:
            return motion
        every = self.config.steps(rand.push_interval_s)
        linear = randomize.push(rand.max_push_vel_xy, every, key, age, motion.qvel[:, :3])
        return motion.replace(qvel=motion.qvel.at[:, :3].set(linear))

    def _fallen(self, motion: Motion, places: Places) -> Array:
        episode, fallen = self.config.episode, places.failed
        if episode.max_tilt is not None:
            fallen |= -body_velocities(motion)[2][:, 2] < jnp.cos(episode.max_tilt)
        if episode.min_height is not None:
            fallen |= self.ground.clearance(motion.qpos) < episode.min_height
        return fallen

    def _quantities(
        self, old: Legged, motion: Motion, places: Places, torque, force, action, terminated
    ) -> rewards.Quantities:
        lin_vel, ang_vel, gravity = body_velocities(motion)
        rates, heading = motion.qvel[:, self.robot.dof], yaw(old.motion.qpos[:, 3:7])
        return rewards.Quantities(
            lin_vel=lin_vel,
            ang_vel=ang_vel,
            gravity=gravity,
            height=self.ground.clearance(motion.qpos),
            joint_pos=motion.qpos[:, self.robot.qpos],
            joint_vel=rates,
            joint_acc=(rates - old.motion.qvel[:, self.robot.dof]) / self.dt,
            torque=torque,
            action=action,
            last_action=old.action,
            command=commands.velocity(self.config.commands, old.command, old.command_level, heading),
            landed=places.contact & ~old.contact,
            air_time=old.air_time + self.dt,
            foot_force=force,
            collisions=places.collisions,
            terminated=terminated,
        )

    def _measured(self, q: rewards.Quantities, state: Legged) -> dict[str, Array]:
        """What the log shows beside the reward terms: see ``scores``; m/s, rad/s, W; and the curricula."""
        squared = jnp.square(q.command[:, :2] - q.lin_vel[:, :2]).sum(-1)
        weight = 9.81 * (self.robot.model.body_mass.sum() + state.variation.added_mass)
        measured = {
            "squared_lin_vel_error": squared,
            "squared_ang_vel_error": jnp.square(q.command[:, 2] - q.ang_vel[:, 2]),
            "power": jnp.abs(q.torque * q.joint_vel).sum(-1),
            "weight_speed": weight * jnp.linalg.norm(q.lin_vel[:, :2], axis=-1),
        }
        if self.config.commands.curriculum:
            measured["command_level"] = state.command_level
        if self.config.episode.start_length_s is not None:
            measured["episode_limit"] = state.limit * self.dt
        if self.terrain is not None and self.config.terrain.curriculum:
            measured["terrain_level"] = state.field.level.astype(jnp.float32)
        return measured


def _check_mass(config: LeggedConfig, mass: float) -> None:
    added = config.domain_rand.added_mass_range
    if added is not None and added[0] <= -mass:
        raise ValueError(f"domain_rand.added_mass_range: {list(added)} is not allowed; the base has {mass:g} kg")
