"""Environments that also tell what each step showed, and robots that follow given commands."""

import copy
from collections.abc import Callable

from strl_jax.envs.base import Env
from strl_jax.types import Array, EnvState

SHOWN = "shown"  # the name in the extras


class Recording(Env):
    """``env``, whose steps put what they showed into ``extras["shown"]``: name -> ``[B, ...]``.

    Of an environment with ``recorded`` it is all of its record; of one on MuJoCo ``qpos``.
    """

    def __init__(self, env: Env):
        self.env = env
        self.observation_shapes, self.action_size = env.observation_shapes, env.action_size
        self.dt, self.episode_length = env.dt, env.episode_length
        self.merge, self.finite, self.scores = env.merge, env.finite, env.scores

    def reset(self, key: Array) -> EnvState:
        """As ``env``."""
        return self.env.reset(key)

    def step(self, state: EnvState, action: Array) -> EnvState:
        """As ``env``, with other extras."""
        if records(self.env):
            after, record = self.env.recorded(state, action)
            return after.replace(extras={SHOWN: dict(vars(record))})
        after, positions = self.env.step(state, action), positions_of(self.env)
        return after.replace(extras={SHOWN: {} if positions is None else {"qpos": positions(after)}})


class CommandedRecording(Recording):
    """Robots of a legged environment that follow one command each for all of their episode.

    Args:
        env: the environment.
        commands: ``[B, 3]``, m/s, m/s and rad/s.
        steps: no episode is longer.
    """

    def __init__(self, env: Env, commands: Array, steps: int):
        unit = dict.fromkeys(("lin_vel_x", "lin_vel_y", "ang_vel_yaw"), (0.0, 1.0))  # a draw is its command
        changes = {
            "ranges": env.config.commands.ranges.model_copy(update=unit),
            "heading_command": False,
            "zero_probability": 0.0,
            "smallest": 0.0,
            "curriculum": False,
            "resampling_time": 2 * steps * env.dt,
        }
        other = copy.copy(env)  # with the traces of this one
        other.config = env.config.model_copy(update={"commands": env.config.commands.model_copy(update=changes)})
        super().__init__(other)
        self._commands = commands

    def reset(self, key: Array) -> EnvState:
        """Fresh robots for ``key[B]``, each with its command."""
        state = self.env.reset(key)
        drawn = state.physics.command.at[:, :3].set(self._commands)
        physics = state.physics.replace(command=drawn)
        return state.replace(physics=physics, obs=self.env.observe(physics))


def records(env: Env) -> bool:
    """Whether the environment is a robot with commands, which tells what its steps showed."""
    return hasattr(env, "recorded")


def positions_of(env: Env) -> Callable[[EnvState], Array] | None:
    """``state -> qpos[B, nq]`` of an adapter's environment on MuJoCo; None for any other."""
    return getattr(env, "positions", None)
