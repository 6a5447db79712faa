"""Legged robots that follow velocity commands, on MuJoCo MJX.

After Rudin et al., "Learning to Walk in Minutes ..." (2021), https://arxiv.org/abs/2109.11978, and legged_gym.
"""

import copy
import warnings
from collections.abc import Callable

import jax
import jax.numpy as jnp

from strl_jax.envs.base import Env, where
from strl_jax.envs.legged import commands, default_pose, observations, randomize, rewards, robot
from strl_jax.envs.legged.camera import depth_image
from strl_jax.envs.legged.config import LeggedConfig
from strl_jax.envs.legged.physics import Motion, Physics, Places, Variation
from strl_jax.envs.legged.rotations import rotate_back, yaw
from strl_jax.envs.legged.state import Legged, Record, body_velocities
from strl_jax.envs.legged.terrain import heights, obstacles
from strl_jax.envs.legged.terrain.ground import Ground
from strl_jax.envs.legged.terrain.levels import OnField
from strl_jax.types import Array, EnvState, Obs

MIN_SPEED = 0.02  # m/s; a standing robot sways with a tenth of it


class LeggedEnv(Env):
    """A robot that must follow velocity commands; in a config ``legged:flat``, or ``legged:rough`` with a terrain.

    Args:
        config: see ``LeggedConfig``.

    Attributes:
        terrain: the ground; None: flat ground at height 0.
        action_scale: change of a joint's target for an action of 1, rad.
        lin_vel_scale: factor of linear velocities and their commands in observations.

    Raises:
        ValueError: a value of the robot, the terrain or the randomisation is not possible; one line that
            begins with the config's key.
    """

    def __init__(self, config: LeggedConfig | None = None):
        self.config = config = LeggedConfig() if config is None else config
        self.terrain = None if config.terrain.mesh_type == "plane" else heights.build(config.terrain)
        self.ground = Ground(config.terrain, self.terrain)
        self.robot = robot.load(config.robot, config.control, config.sim, own_planes=self.terrain is not None)
        fault = default_pose.fault(self.robot)
        if fault is not None:
            warnings.warn(fault, stacklevel=2)
        self.dt = config.dt
        self.action_scale, self.lin_vel_scale = config.control.action_scale, config.normalization.obs_scales.lin_vel
        self.action_size = len(self.robot.dof)
        self.episode_length = config.steps(config.episode.episode_length_s)
        self.observation_shapes = observations.shapes(config, self.action_size, len(self.robot.feet))
        forces = any(name in rewards.active(config.rewards) for name in rewards.FORCES)
        level = config.episode.level_feet
        self.physics = Physics(self.robot, self.action_scale, config.control.decimation, forces, self.terrain, level)
        # jit keeps the traces: several programs use the functions, and tracing MJX takes seconds.
        self._advance, self._places = jax.jit(jax.vmap(self.physics.advance)), jax.jit(jax.vmap(self.physics.places))
        r, velocity = self.robot, config.robot.velocity_limit
        self._limits = rewards.limits(config.rewards, r.lower, r.upper, velocity, r.torque_limit, r.default)
        randomize.check_mass(config.domain_rand, self.robot.model.body_mass[self.robot.base])

    def reset(self, key: Array) -> EnvState:
        """Initial states for ``key[B]``: near the default pose, with a low random velocity and a random heading."""
        batch, start_length = key.shape[0], self.config.episode.start_length_s
        keys = jax.vmap(lambda k: jax.random.split(k, 5), out_axes=1)(key)
        start_key, variation_key, command_key, field_key, next_key = keys
        field = self.ground.draw(field_key)
        motion, feet, contact = jax.vmap(self._start)(start_key, field)
        limit = self.episode_length if start_length is None else self.config.steps(start_length)
        state = Legged(
            motion=motion,
            variation=self._draw_variation(variation_key),
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
        false = jnp.zeros(batch, bool)
        return EnvState(state, self.observe(state), jnp.zeros(batch), false, false, {}, {})

    def step(self, state: EnvState, action: Array) -> EnvState:
        """One control step. The rewards use the command that the action followed; a new command is drawn after them."""
        return self.recorded(state, action)[0]

    def recorded(self, state: EnvState, action: Array) -> tuple[EnvState, Record]:
        """``step``, and the record of it for videos, plots and tables."""
        old: Legged = state.physics
        limit = self.config.normalization.clip_actions
        action = jnp.clip(action, -limit, limit)
        push_key, command_key, next_key = jax.vmap(lambda k: jax.random.split(k, 3), out_axes=1)(old.key)
        motion, torque, force = self._advance(old.motion, old.variation, action, old.action)
        places = self._places(motion)
        age = old.age + 1
        terminated = self._fallen(motion, places)
        quantities = self._quantities(old, motion, places, torque, force, action, terminated)
        reward, terms = rewards.total(self.config.rewards, self._limits, quantities, self.dt)

        tracking = rewards.TERMS["tracking_lin_vel"](quantities, self.config.rewards, self._limits)
        interval = self.config.steps(self.config.commands.resampling_time)
        new = old.replace(
            motion=self._pushed(push_key, age, motion),
            command=where(age % interval == 0, commands.draw(command_key), old.command),
            age=age,
            tracking=old.tracking + tracking,
            action=action,
            feet=places.feet,
            contact=places.contact,
            air_time=jnp.where(places.contact, 0.0, old.air_time + self.dt),
            key=next_key,
            field=self.ground.add_distance(old.field, self.dt * jnp.linalg.norm(quantities.command[:, :2], axis=-1)),
        )
        stepped = EnvState(
            physics=new,
            obs=self.observe(new),
            reward=reward,
            terminated=terminated,
            timeout=(age >= old.limit) | self.ground.outside(motion.qpos),
            metrics=terms | self._metrics(quantities, new),
            extras={},
        )
        velocity = jnp.concatenate([quantities.lin_vel[:, :2], quantities.ang_vel[:, 2:]], axis=-1)
        return stepped, Record(motion.qpos, quantities.command, velocity, torque, places.contact, terminated)

    def evaluated(self) -> "LeggedEnv":
        """The same robots without pushes and curricula: episodes have full length, commands their full range."""
        other = copy.copy(self)  # shares the traces
        other.config = self.config.evaluated()
        other.ground = Ground(other.config.terrain, self.terrain)
        return other

    def scores(self, means: dict[str, Array]) -> dict[str, Array]:
        """``tracking_error`` (RMS of the planar velocity error, m/s), ``yaw_error`` (RMS, rad/s) and ``CoT``.

        The cost of transport is the absolute work of the motors divided by weight times distance; NaN for robots that
        do not move, at mean speeds below ``MIN_SPEED``.
        """
        moves = means["weight_speed"] > MIN_SPEED * 9.81 * self.robot.model.body_mass.sum()
        return {
            "tracking_error": jnp.sqrt(means["squared_lin_vel_error"]),
            "yaw_error": jnp.sqrt(means["squared_ang_vel_error"]),
            "CoT": jnp.where(moves, means["power"] / means["weight_speed"], jnp.nan),
        }

    def merge(self, done: Array, fresh: EnvState, state: EnvState) -> EnvState:
        """``fresh`` where ``done``, but curriculum levels and, without ``each_episode``, variation are kept."""
        old = state.physics
        new = where(done, self.ground.move_to_next_field(old, fresh.physics), old)
        level = commands.next_level(self.config.commands, old.command_level, old.tracking / old.limit)
        longer = jnp.minimum(old.limit + jnp.maximum(old.limit // 2, 1), self.episode_length)
        # Several environments can take the same fresh state, so each draws from the key of its own state.
        keys = jax.vmap(lambda k: jax.random.split(jax.random.fold_in(k, 3), 3), out_axes=1)(old.key)
        variation = self._draw_variation(keys[2]) if self.config.domain_rand.each_episode else old.variation
        new = new.replace(
            command_level=jnp.where(done, level, old.command_level),
            limit=jnp.where(done & (old.age >= old.limit), longer, old.limit),
            key=where(done, keys[0], old.key),
            command=where(done, commands.draw(keys[1]), old.command),
            variation=where(done, variation, old.variation),
        )
        return state.replace(physics=new, obs=where(done, self.observe(new), state.obs))

    def simulator(self) -> tuple[Callable, Callable]:
        """``reset``, and a control step of MJX without rewards, commands and observations."""

        def step(state: EnvState, action: Array) -> EnvState:
            old = state.physics
            motion, _, _ = self._advance(old.motion, old.variation, action, action)
            return state.replace(physics=old.replace(motion=motion))

        return self.reset, step

    def observe(self, state: Legged) -> Obs:
        """All components ``[B, ...]``; they depend only on the state, the noise on its key."""
        config, r = self.config, self.robot
        lin_vel, ang_vel, gravity = body_velocities(state.motion)
        joints, joint_vel = state.motion.qpos[:, r.qpos], state.motion.qvel[:, r.dof]
        base, quaternion = state.motion.qpos[:, :3], state.motion.qpos[:, 3:7]
        heading = yaw(quaternion)
        command = commands.velocity(config.commands, state.command, state.command_level, heading)
        feet = rotate_back(quaternion[:, None], state.feet - base[:, None])
        noise_key = jax.vmap(lambda k: jax.random.fold_in(k, 0))(state.key)
        obs = {
            "proprioception": observations.proprioception(
                config, lin_vel, ang_vel, gravity, command, joints - r.default, joint_vel, state.action, noise_key
            ),
            "amp": observations.amp(
                joints, feet, lin_vel, ang_vel, joint_vel, self.ground.clearance(state.motion.qpos)
            ),
            "height_scan": observations.height_scan(config, self.terrain, base, heading),
            **observations.privileged(config, lin_vel, state.contact, state.variation),
            **self._terrain_components(state),
        }
        return {name: obs[name].astype(jnp.float32) for name in self.observation_shapes}

    def _terrain_components(self, state: Legged) -> Obs:
        """``engaging_block``, if there is a terrain, and ``forward_depth``, if there is a camera."""
        base, quaternion, obs = state.motion.qpos[:, :3], state.motion.qpos[:, 3:7], {}
        if self.terrain is not None:
            fields = jnp.asarray(self.terrain.obstacles), jnp.asarray(self.terrain.origins)
            obs["engaging_block"] = obstacles.engaging_block(self.config.terrain, *fields, state.field, base)
        if self.config.camera is not None:
            height = None if self.terrain is None else self.terrain.height
            key = jax.vmap(lambda k: jax.random.fold_in(k, 2))(state.key)
            image = jax.vmap(lambda *pose: depth_image(self.config.camera, height, *pose))
            obs["forward_depth"] = image(base, quaternion, key)
        return obs

    def _draw_variation(self, key: Array) -> Variation:
        """Random properties of robot and ground for ``key[B]``."""
        rand, delay = self.config.domain_rand, self.config.control.delay
        return jax.vmap(lambda k: randomize.variation(rand, delay, self.action_size, k))(key)

    def _start(self, key: Array, field: OnField | None) -> tuple[Motion, Array, Array]:
        """Initial motion, and ``feet`` and ``contact`` of ``Places``, of ONE environment."""
        joint_key, yaw_key, position_key, velocity_key = jax.random.split(key, 4)
        episode = self.config.episode
        noise = jax.random.uniform(joint_key, (self.action_size,), minval=-1.0, maxval=1.0)
        joints = jnp.clip(self.robot.default * (1 + episode.joint_noise * noise), self.robot.lower, self.robot.upper)
        heading = jax.random.uniform(yaw_key, minval=-jnp.pi, maxval=jnp.pi)
        xy = self.ground.start(position_key, field)
        motion, feet, contact = self.physics.stand(joints.astype(jnp.float32), heading, xy)
        limit = episode.velocity_noise
        velocity = jax.random.uniform(velocity_key, (6,), minval=-limit, maxval=limit)
        return motion.replace(qvel=motion.qvel.at[:6].set(velocity)), feet, contact

    def _pushed(self, key: Array, age: Array, motion: Motion) -> Motion:
        rand = self.config.domain_rand
        if rand.push_interval_s is None:
            return motion
        interval = self.config.steps(rand.push_interval_s)
        linear = randomize.push(rand.max_push_vel_xy, interval, key, age, motion.qvel[:, :3])
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
        joint_vel, heading = motion.qvel[:, self.robot.dof], yaw(old.motion.qpos[:, 3:7])
        return rewards.Quantities(
            lin_vel=lin_vel,
            ang_vel=ang_vel,
            gravity=gravity,
            height=self.ground.clearance(motion.qpos),
            joint_pos=motion.qpos[:, self.robot.qpos],
            joint_vel=joint_vel,
            joint_acc=(joint_vel - old.motion.qvel[:, self.robot.dof]) / self.dt,
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

    def _metrics(self, q: rewards.Quantities, state: Legged) -> dict[str, Array]:
        """Metrics ``[B]`` in addition to the reward terms: inputs of ``scores`` in SI units, and curriculum levels."""
        squared = jnp.square(q.command[:, :2] - q.lin_vel[:, :2]).sum(-1)
        weight = 9.81 * (self.robot.model.body_mass.sum() + state.variation.added_mass)
        metrics = {
            "squared_lin_vel_error": squared,
            "squared_ang_vel_error": jnp.square(q.command[:, 2] - q.ang_vel[:, 2]),
            "power": jnp.abs(q.torque * q.joint_vel).sum(-1),
            "weight_speed": weight * jnp.linalg.norm(q.lin_vel[:, :2], axis=-1),
        }
        if self.config.commands.curriculum:
            metrics["command_level"] = state.command_level
        if self.config.episode.start_length_s is not None:
            metrics["episode_limit"] = state.limit * self.dt
        if self.terrain is not None and self.config.terrain.curriculum:
            metrics["terrain_level"] = state.field.level.astype(jnp.float32)
        return metrics
