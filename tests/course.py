"""An environment of made-up observations, and run folders of it that sub-policies and teachers are read from."""

import json
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from tiny import make_state, normal

from strl_jax.config import from_dict
from strl_jax.envs.base import Env
from strl_jax.run_folder import run_dir
from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.sharding import make_mesh
from strl_jax.types import EnvState, RunningStats

ENVS, ACTIONS = 3, 2
# entry 9 of proprioception is the command, 10 and 11 are the last actions
SHAPES = {"proprioception": (12,), "height": (2,), "selection": (2,)}
LIN_VEL = {"normalization": {"obs_scales": {"lin_vel": 2.0}}}
UNITS = {"control": {"action_scale": 0.5}, **LIN_VEL}


@dataclass(frozen=True)
class Course(Env):
    """Observations are numbers of their own, the first sub-policy is selected, the reward is the first action."""

    shapes: tuple = tuple(SHAPES.items())
    action_size: int = ACTIONS
    action_scale: float | tuple = 1.0
    lin_vel_scale: float = 2.0
    dt = 0.02
    episode_length = 2

    @property
    def observation_shapes(self):
        return dict(self.shapes)

    def reset(self, key):
        zeros, no = jnp.zeros(key.shape[0]), jnp.zeros(key.shape[0], bool)
        obs = {name: jnp.ones((key.shape[0], *shape)) for name, shape in self.shapes}
        if "selection" in obs:
            obs["selection"] = jnp.zeros_like(obs["selection"]).at[:, 0].set(1.0)
        return EnvState(zeros, obs, zeros, no, no, {}, {})

    def step(self, state, action):
        no = jnp.zeros(action.shape[0], bool)
        return EnvState(state.physics, state.obs, action[:, 0], no, no, {}, {})


def numbers(seed: int, shape: tuple) -> RunningStats:
    return RunningStats(normal(seed, 0, shape), 0.5 + normal(seed, 1, shape) ** 2, jnp.float32(9.0))


def saved(path, env: Course, name: str, seed: int, actor=("proprioception", "height"), **policy) -> OnPolicyRunner:
    """A run folder whose weights and statistics are not those of a start, and its runner."""
    settings = {
        "env": {"name": "course:Course", "num_envs": ENVS, "groups": {"actor": list(actor)}},
        "policy": {"class_name": name, "actor_hidden_dims": [4], "critic_hidden_dims": [4], **policy},
        "algorithm": {"empirical_normalization": True, "normalization_eps": 0.25},
        "runner": {"logger": "none"},
    }
    config, _ = from_dict(settings)
    runner = OnPolicyRunner(
        env, config, run_dir.create(path, config, run_dir.units(env)), mesh=make_mesh(jax.devices()[:1])
    )
    stats = {
        group: {
            part: numbers(seed + i, shape) for i, (part, shape) in enumerate(zip(own.names, own.shapes, strict=True))
        }
        for group, own in runner.algorithm.groups.items()
    }
    runner.train_state = make_state(runner.algorithm, seed).replace(stats=stats)
    runner.rollout_state = jnp.zeros(2)  # saved, not read
    runner.save()
    runner.checkpointer.wait()
    return runner


def write_json(folder, value) -> None:
    (folder / "config.json").write_text(value if isinstance(value, str) else json.dumps(value))
