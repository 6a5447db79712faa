"""Environments for playback: they record every step, and robots can follow given commands."""

import copy
from collections.abc import Callable

from strl_jax.envs.base import Env
from strl_jax.types import Array, EnvState

ENV_RECORD = "env_record"  # name in the extras


class RecordedEnv(Env):
    """``env`` whose steps store a record in their extras, under ``ENV_RECORD``: name -> ``[B, ...]``.

    The record of a legged environment is that of its method ``recorded``; of another
    environment on MuJoCo it is ``qpos``; otherwise it is empty.
    """

    def __init__(self, env: Env):
        self.env = env
        self.observation_shapes, self.action_size = env.observation_shapes, env.action_size
        self.dt, self.episode_length = env.dt, env.episode_length
        self.merge, self.finite, self.scores = env.merge, env.finite, env.scores

    def reset(self, key: Array) -> EnvState:
        """See ``Env``."""
        return self.env.reset(key)

    def step(self, state: EnvState, action: Array) -> EnvState:
        """See ``Env``; the record replaces the extras."""
        if can_record(self.env):
            after, record = self.env.recorded(state, action)
            return after.replace(extras={ENV_RECORD: dict(vars(record))})
        after, positions = self.env.step(state, action), positions_of(self.env)
        return after.replace(extras={ENV_RECORD: {} if positions is None else {"qpos": positions(after)}})


class CommandedEnv(RecordedEnv):
    """A legged environment whose robots each follow one given command for the whole episode.

    Args:
        env: the environment.
        commands: vx, vy and yaw rate of each robot, ``[B, 3]``, m/s, m/s and rad/s.
        steps: largest number of steps of an episode.
    """

    resets_alone = False

    def __init__(self, env: Env, commands: Array, steps: int):
        unit = dict.fromkeys(("lin_vel_x", "lin_vel_y", "ang_vel_yaw"), (0.0, 1.0))  # then a draw is the command
        changes = {
            "ranges": env.config.commands.ranges.model_copy(update=unit),
            "heading_command": False,
            "zero_probability": 0.0,
            "smallest": 0.0,
            "curriculum": False,
            "resampling_time": 2 * steps * env.dt,
        }
        other = copy.copy(env)  # a shallow copy shares the jitted functions and their traces
        other.config = env.config.model_copy(update={"commands": env.config.commands.model_copy(update=changes)})
        super().__init__(other)
        self._commands = commands

    def reset(self, key: Array) -> EnvState:
        """Robots in their initial states, drawn with ``key[B]``, each with its command."""
        state = self.env.reset(key)
        drawn = state.physics.command.at[:, :3].set(self._commands)
        physics = state.physics.replace(command=drawn)
        return state.replace(physics=physics, obs=self.env.observe(physics))


def can_record(env: Env) -> bool:
    """Whether this is a legged environment: its robots follow commands, and ``recorded`` returns a record."""
    return hasattr(env, "recorded")


def positions_of(env: Env) -> Callable[[EnvState], Array] | None:
    """``state -> qpos[B, nq]`` for an adapter of a simulator on MuJoCo; None for any other environment."""
    return getattr(env, "positions", None)
