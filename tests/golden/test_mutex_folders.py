"""Sub-policies from run folders with ``config.json`` and torch checkpoints, acting through the runner."""

import json
from collections import OrderedDict
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pytest
from torch_writer import save

from golden.files import Golden, paths
from strl_jax.envs.base import Env
from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.types import EnvState


@dataclass(frozen=True)
class Shapes(Env):
    """Only shapes: observations are zeros."""

    observation_shapes: dict
    action_size: int
    dt = 0.02
    episode_length = 2

    def reset(self, key):
        obs = {name: jnp.zeros((key.shape[0], *shape)) for name, shape in self.observation_shapes.items()}
        no = jnp.zeros(key.shape[0], bool)
        return EnvState(jnp.zeros(key.shape[0]), obs, jnp.zeros(key.shape[0]), no, no, {}, {})

    def step(self, state, action):
        no = jnp.zeros(action.shape[0], bool)
        return EnvState(state.physics, state.obs, action.sum(axis=1), no, no, {}, {})


FIRST, *OTHERS = paths("mutex_*.npz")


@pytest.mark.parametrize(
    "path", [FIRST, *(pytest.param(path, marks=pytest.mark.slow) for path in OTHERS)], ids=lambda path: path.stem
)
def test_folders_act_as_the_file_says(path, tmp_path):
    golden = Golden(path)
    config = golden.config
    folders = []
    for i, sub in enumerate(config["sub_configs"]):
        folder = tmp_path / f"sub_{i}"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(sub))
        weights = {"model_state_dict": OrderedDict(golden.group(f"sub{i}")), "iter": 3, "infos": None}
        save(folder / "model_3.pt", weights)
        (folder / "model_2.pt").write_bytes(b"an older one, which is not read")
        folders.append(str(folder))
    env = Shapes({name: tuple(shape) for name, shape in config["obs_segments"]}, config["num_actions"])
    policy = {
        "class_name": config["cls"],
        "sub_policy_class_name": config["sub_policy_class_name"],
        "sub_policy_paths": folders,
        "env_action_scale": config["env_action_scale"],
        "cmd_vel_mapping": config["cmd_vel_mapping"],
        "reset_non_selected": config["reset_non_selected"],
        "action_smoothing_buffer_len": config["action_smoothing_buffer_len"],
    }
    if "jump_down_vel" in config:
        policy["jump_down_vel"] = config["jump_down_vel"]
    settings = {"num_eval_envs": 4, "eval_interval": 0, "logger": "none"}
    env_settings = {"num_envs": 4, "groups": {"actor": list(env.observation_shapes)}}
    runner = OnPolicyRunner(env, {"env": env_settings, "policy": policy, "compat": "st_rl", "runner": settings})
    act = runner.get_inference_policy()
    for step, (obs, dones) in enumerate(zip(golden["in/obs"], golden["in/dones"], strict=True)):
        actions = act(jnp.asarray(obs))
        expected = golden["exp/actions"][step]
        np.testing.assert_allclose(actions, expected, rtol=1e-4, atol=2e-6, err_msg=f"step {step}")
        act.reset(dones)
    runner.close()
