"""The calls of st_rl's runner: each works, or one line says what to use instead."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import Walk
from st_rl_style import make, one_line, train_cfg

from strl_jax import algorithms
from strl_jax.config import ConfigError
from strl_jax.runners import AmpPolicyRunner, OnPolicyRunner
from strl_jax.runners.inference import InferencePolicy
from strl_jax.sharding import make_mesh

OBS = {"position": jnp.ones((2, 1)), "goal": jnp.ones((2, 1, 2))}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A runner after two iterations, with its run folder."""
    runner = make(tmp_path_factory.mktemp("run"))
    runner.learn(num_learning_iterations=2, init_at_random_ep_len=True)
    yield runner
    runner.close()


@pytest.fixture
def fresh():
    runner = make()
    yield runner
    runner.close()


# ---- constructor


def test_device_is_the_fourth_argument(fresh):
    assert fresh.mesh.devices.tolist() == [jax.devices()[0]]
    assert fresh.device == jax.devices()[0]
    runner = make(None, "cpu:2", num_steps_per_env=2)
    runner.learn(1)
    assert runner.train_state.iteration.devices() == {jax.devices()[2]} == {runner.device}
    runner.close()
    for device in (jax.devices()[1], "CPU:1"):
        runner = make(device=device)
        assert runner.device == jax.devices()[1]
        runner.close()
    runner = OnPolicyRunner(Walk(), train_cfg() | {"env": {"num_envs": 8}, "runner": {"num_eval_envs": 8}})
    assert runner.mesh.size == len(jax.devices())
    runner.close()


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cpu:99", "cpu:", "cpu:-1", "", "quantum", 0, "cpu:x"])
def test_device_that_does_not_exist(device):
    with pytest.raises(ConfigError) as caught:
        make(device=device)
    one_line(caught.value, f"device: {device!r}", "cpu:0")


def test_mesh_is_a_keyword():
    mesh = make_mesh(jax.devices()[:2])
    with pytest.raises(ConfigError) as caught:
        make(device=mesh)
    one_line(caught.value, "device", "mesh=")
    with pytest.raises(ConfigError) as caught:
        OnPolicyRunner(Walk(), train_cfg(), device="cpu", mesh=mesh)
    one_line(caught.value, "device", "mesh")
    with pytest.raises(TypeError):
        OnPolicyRunner(Walk(), train_cfg(), None, None, mesh)
    runner = OnPolicyRunner(Walk(), train_cfg(), mesh=mesh)
    assert runner.mesh is mesh
    runner.close()


class VecEnv:
    """An environment of the user's torch code."""

    num_envs = 4


def test_environment_of_torch():
    with pytest.raises(ConfigError) as caught:
        OnPolicyRunner(VecEnv(), train_cfg(), device="cpu")
    one_line(caught.value, "VecEnv", "observation_shapes", "strl_jax.envs.base.Env")


class APPO:
    """An algorithm object of the user's torch code."""


def test_algorithm_object_as_train_cfg(tmp_path):
    with pytest.raises(ConfigError) as caught:
        AmpPolicyRunner(Walk(), APPO(), device="cuda:0", log_dir=str(tmp_path / "logs"))
    one_line(caught.value, "train_cfg", "APPO", "algorithm_class_name", "dict")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["PPO", "APPO", "TPPO", "ATPPO", "EstimatorPPO", "EstimatorTPPO"])
def test_algorithm_classes(name):
    with pytest.raises(ImportError) as caught:
        getattr(algorithms, name)
    one_line(caught.value, name, "runner.algorithm_class_name")
    with pytest.raises(AttributeError):
        algorithms.Nothing  # noqa: B018


def test_amp_policy_runner(tmp_path):
    np.save(tmp_path / "expert.npy", np.zeros((5, 2), np.float32))
    config = train_cfg() | {"env": {"num_envs": 4, "groups": {"amp": ["position"]}}}
    config["policy"] |= {"class_name": "AmpActorCritic", "amp_discriminator": {"hidden_dims": [3]}}
    config["algorithm"] |= {"class_name": "APPO", "expert_file": str(tmp_path / "expert.npy")}
    runner = AmpPolicyRunner(Walk(), config, device="cpu", log_dir=str(tmp_path / "logs"))
    runner.learn(num_learning_iterations=1)
    assert 0.0 < runner.metrics_velrmsd < 2.0
    assert runner.metrics_CoT > 0.0
    runner.close()
    with pytest.raises(ConfigError) as caught:
        AmpPolicyRunner(Walk(), train_cfg(), device="cpu")
    one_line(caught.value, "runner.algorithm_class_name", "PPO", "APPO")


@pytest.mark.parametrize("name", ["TwoStageRunner", "DemonstrationSaver", "DaggerSaver"])
def test_classes_that_are_not_here(name):
    with pytest.raises(ImportError) as caught:
        exec(f"from strl_jax.runners import {name}")
    one_line(caught.value, name)
    with pytest.raises(AttributeError):
        importlib.import_module("strl_jax.runners").Nothing  # noqa: B018


# ---- the loop of learn, as st_rl writes it


def test_the_calls_of_the_loop(trained):
    for call in (trained.train_mode, trained.eval_mode):
        with pytest.warns(UserWarning, match="_mode: no effect"):
            call()
    values = trained.evaluation()
    assert values["Eval/mean_return"] == trained.metrics_return
    assert trained.current_learning_iteration == 2
    for owner, names in {
        trained: ("rollout_step", "log", "init_writter", "init_writer", "cfg", "writer", "tot_timesteps"),
        trained.alg: ("act", "process_env_step", "compute_returns", "update", "storage", "optimizer", "state_dict"),
    }.items():
        for name in names:
            assert not hasattr(owner, name)
            with pytest.raises(AttributeError) as caught:
                getattr(owner, name)
            one_line(caught.value, repr(name), ": ")


def test_names_that_no_version_has(trained):
    for owner in (trained, trained.alg):
        with pytest.raises(AttributeError, match=r"no attribute 'lern'$"):
            owner.lern  # noqa: B018


def test_alg(trained, fresh):
    assert trained.alg is trained.alg
    assert trained.alg.policy is trained.algorithm.policy
    assert trained.alg.device == trained.device
    assert trained.alg.learning_rate == float(trained.train_state.learning_rate["policy"])
    assert fresh.alg.learning_rate == pytest.approx(fresh.config.algorithm.learning_rate)
    policy = trained.alg.actor_critic
    assert isinstance(policy, InferencePolicy)
    assert trained.alg.actor_critic is policy
    np.testing.assert_array_equal(policy.act_inference(OBS), trained.get_inference_policy()(OBS))
    with pytest.raises(RuntimeError, match="call learn or load first"):
        fresh.alg.actor_critic  # noqa: B018
    fresh.load(trained.log_dir)
    first = fresh.alg.actor_critic
    fresh.learn(1)
    assert fresh.alg.actor_critic is not first


def test_inference_policy_on_a_device(trained):
    policy = trained.get_inference_policy(device="cpu:3")
    action = policy(OBS)
    assert action.devices() == {jax.devices()[3]}
    np.testing.assert_allclose(action, trained.get_inference_policy()(OBS), rtol=1e-6)
    with pytest.raises(ConfigError) as caught:
        trained.get_inference_policy("cuda:0")
    one_line(caught.value, "cuda:0", "cpu:0")
