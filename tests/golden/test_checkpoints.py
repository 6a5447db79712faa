"""The torch library's checkpoints through the real command: outputs, moments, iteration."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import same, write
from jax.flatten_util import ravel_pytree

from golden.files import FOLDER, Golden, paths, ppo_fields, to_flax
from strl_jax.envs.base import Env
from strl_jax.interop import torch_checkpoint
from strl_jax.run_folder import run_dir
from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.torch_files.file import load_torch
from strl_jax.types import EnvState

FLOAT32 = {"rtol": 1e-4, "atol": 2e-6}


@dataclass(frozen=True)
class Still(Env):
    """Shows zeros of the sizes that a checkpoint wants."""

    actor: int
    critic: int
    actions: int
    dt = 0.1
    episode_length = 8

    @property
    def observation_shapes(self):
        return {"obs": (self.actor,), "privileged": (self.critic,)}

    @property
    def action_size(self):
        return self.actions

    def reset(self, key):
        zeros, no = jnp.zeros(key.shape[0]), jnp.zeros(key.shape[0], bool)
        obs = {name: jnp.zeros((key.shape[0], *shape)) for name, shape in self.observation_shapes.items()}
        return EnvState(zeros, obs, zeros, no, no, {}, {})

    def step(self, state, action):
        no = jnp.zeros(action.shape[0], bool)
        return EnvState(state.physics, state.obs, state.physics, no, no, {}, {})


def settings(config: dict) -> dict:
    """A config for the policy of a golden file."""
    recurrent = {name: config[name] for name in ("rnn_type", "rnn_hidden_size", "rnn_num_layers") if name in config}
    kwargs = {"actor": config["num_actor_obs"], "critic": config["num_critic_obs"], "actions": config["num_actions"]}
    groups = {"actor": ["obs"], "critic": ["privileged"]}
    return {
        "compat": "st_rl",
        "env": {"name": f"{__name__}:Still", "num_envs": 4, "kwargs": kwargs, "groups": groups},
        "policy": {
            "actor_hidden_dims": config["hid"],
            "critic_hidden_dims": config["chid"],
            "activation": config["act"],
            "init_noise_std": config["std"],
            **recurrent,
        },
        "algorithm": ppo_fields(config) | {"num_mini_batches": 1},
        "runner": {"policy_class_name": config["cls"], "num_steps_per_env": 4},
    }


@pytest.fixture(scope="module", params=paths("ckpt_*.npz"), ids=lambda path: path.stem)
def imported(request, tmp_path_factory):
    """A golden file, and a runner that has loaded what the command made of its checkpoint."""
    golden, folder = Golden(request.param), tmp_path_factory.mktemp("imported")
    config = write(folder / "config.yaml", settings(golden.config))
    file, out = FOLDER / golden.config["file"], folder / "run"
    assert torch_checkpoint.main([str(file), "--config", str(config), "--out", str(out)]) == 0
    runner = OnPolicyRunner(None, run_dir.read_config(out)[0])
    runner.load(out)
    yield golden, runner
    runner.close()


def test_outputs(imported):
    golden, runner = imported
    policy, dones = runner.algorithm.policy, golden["in/dones"].astype(bool)
    reset = np.concatenate([np.ones_like(dones[:1]), dones[:-1]])  # a done clears the memory of the next step
    groups = {"actor": golden["in/obs"], "critic": golden["in/critic_obs"]}
    output = jax.jit(policy.apply)(
        runner.train_state.params["policy"], groups, policy.initial_carry(reset.shape[1]), reset
    )
    np.testing.assert_allclose(output.mean, golden["exp/action_mean"], **FLOAT32)
    np.testing.assert_allclose(output.value[..., None], golden["exp/values"], **FLOAT32)
    assert (output.std == golden["param/std"]).all()


def test_weights_moments_and_counts(imported):
    golden, runner = imported
    state = runner.train_state
    adam = next(part for part in jax.tree.leaves(state.opt_state, is_leaf=_is_adam) if _is_adam(part))
    np.testing.assert_array_equal(*_flat(state.params["policy"], golden.group("param")))
    names = golden.config["param_order"]
    for key, moment in (("exp_avg", adam.mu), ("exp_avg_sq", adam.nu)):
        expected = {name: golden[f"optim/{name}/{key}"] for name in names}
        np.testing.assert_array_equal(moment, ravel_pytree(to_flax(expected))[0], err_msg=key)
    assert adam.count == golden["optim/step"] == golden.config["adam_steps"]
    assert (state.iteration, runner.progress.iteration) == (golden.config["iter"], golden.config["iter"])
    assert state.learning_rate["policy"] == np.float32(golden.config["lr"])


def test_file_is_read_without_torch(imported):
    golden, _ = imported
    weights = load_torch(FOLDER / golden.config["file"])["model_state_dict"]
    assert list(weights) == golden.config["param_order"]
    for name, value in weights.items():
        np.testing.assert_array_equal(value, golden[f"param/{name}"], err_msg=name)


def test_the_runner_loads_the_file_itself(imported):
    golden, runner = imported
    direct = OnPolicyRunner(None, runner.config)
    direct.load(FOLDER / golden.config["file"])
    assert same(direct.train_state, runner.train_state)
    assert direct.current_learning_iteration == golden.config["iter"]
    direct.close()


def _flat(variables, weights) -> list:
    return [np.asarray(ravel_pytree(tree)[0]) for tree in (variables, to_flax(weights))]


def _is_adam(part) -> bool:
    return hasattr(part, "nu")
