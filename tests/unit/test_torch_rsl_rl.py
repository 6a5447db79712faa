"""Checkpoints of real runners of rsl_rl 2 to 5: equal outputs, moments in the right places, and what is refused."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from rsl_rl_files import EXACT, FOLDER, RND, check_continues, observations, outputs, read, recorded, settings

from strl_jax.algorithms.hooks import Collected
from strl_jax.builders import torch_state
from strl_jax.config import from_dict
from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.torch_files.file import TorchFileError, load_torch

RL = [f"{version}_{variant}" for version in (4, 5) for variant in ("mlp", "lstm", "gru", "rnd")]
# Start of a name in the file -> path in the policy; numbers of linear layers are 0, 2, 4.
PATHS = {
    "actor_state_dict.mlp.": "actor",
    "critic_state_dict.mlp.": "critic",
    "actor_state_dict.rnn.rnn.": "memory_actor",
    "critic_state_dict.rnn.rnn.": "memory_critic",
}


def refused(name: str, tmp_path, file: dict | None = None, **algorithm) -> list[str]:
    with pytest.raises(TorchFileError) as caught:
        read(name, tmp_path, file, **algorithm)
    return str(caught.value).split("\n")


@pytest.mark.parametrize("name", RL)
def test_actions_and_values_are_equal(name, tmp_path):
    parts, lines, runner = read(name, tmp_path)
    arrays = recorded(name)
    output = outputs(parts, runner, arrays)
    np.testing.assert_allclose(output.mean, arrays["actions"], **EXACT)
    np.testing.assert_allclose(output.value[..., None], arrays["second"], **EXACT)
    assert parts["iteration"] == arrays["iteration"] == 2
    assert parts["learning_rate"]["policy"] == np.float32(arrays["learning_rate"])
    assert parts["learning_rate"]["policy"] != np.float32(1e-3)  # it has adapted
    critic = "statistics of the critic's observations: not in the file"
    assert any(line.startswith(critic) for line in lines) == name.endswith("lstm")
    assert not any("not used" in line or "start" in line for line in lines)


def locate(name: str) -> tuple[tuple[str, ...], bool]:
    """Path of a parameter of the file, and whether torch has it transposed."""
    start, network = next((start, network) for start, network in PATHS.items() if name.startswith(start))
    rest = name.removeprefix(start)
    if network.startswith("memory"):
        return (network, rest), rest.startswith("weight")
    number, kind = rest.split(".")
    return (network, f"layer_{int(number) // 2}", "kernel" if kind == "weight" else kind), kind == "weight"


def torch_moments(arrays: dict, key: str) -> dict[str, np.ndarray]:
    """Parameter of the file -> its moment, recorded by parameter, not by number."""
    found = (re.fullmatch(rf"optimizer/(.*)/{key}", name) for name in arrays)
    return {match[1]: arrays[match[0]] for match in found if match}


def unravel(runner: OnPolicyRunner, group: str, parts: dict, name: str) -> dict:
    """The moment ``mu`` or ``nu`` as nested dicts."""
    adam = next(part for part in parts["opt_state"][group][1] if isinstance(part, optax.ScaleByAdamState))
    params = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), runner.programs.states[0].params[group])
    return jax.flatten_util.ravel_pytree(params)[1](jnp.asarray(getattr(adam, name)))["params"], adam.count


@pytest.mark.parametrize("name", RL)
def test_moments_belong_to_the_same_parameters(name, tmp_path):
    parts, _, runner = read(name, tmp_path)
    arrays, weights = recorded(name), load_torch(FOLDER / f"rsl_rl_{name}.pt")["actor_state_dict"]
    for ours, theirs, power in (("mu", "exp_avg", 1), ("nu", "exp_avg_sq", 2)):
        found, count = unravel(runner, "policy", parts, ours)
        given = torch_moments(arrays, theirs)
        deviation = next(key for key in given if "std" in key)
        assert count == 12  # 3 iterations x 2 epochs x 2 minibatches
        # d/dlog(std) = std d/dstd; a file with log(std) keeps its moment
        scale = 1.0 if "log" in deviation else weights[deviation.removeprefix("actor_state_dict.")]
        np.testing.assert_allclose(found.pop("log_std"), given.pop(deviation) * scale**power, rtol=1e-6)
        given = {key: value for key, value in given.items() if not key.startswith("rnd_")}
        for key, value in given.items():
            path, transposed = locate(key)
            leaf = found
            for part in path:
                leaf = leaf[part]
            np.testing.assert_array_equal(leaf, value.T if transposed else value, err_msg=key)
        assert len(given) == len(jax.tree.leaves(found))


@pytest.mark.parametrize("name", ["2_rnd", "4_rnd", "5_rnd"])
def test_intrinsic_reward_is_equal(name, tmp_path):
    frozen = {"normalization_until": 1e-30}  # the statistics of the file do not change
    parts, lines, runner = read(name, tmp_path, **({"empirical_normalization": name[0] == "2"} | frozen))
    arrays = recorded(name)
    obs, valid = observations(arrays), np.ones(arrays["dones"].shape, bool)
    params, nothing = parts["params"], jnp.zeros(valid.shape)
    (hook,) = runner.algorithm.reward_hooks
    state = hook.init_envs(valid.shape[1])
    collected = Collected(obs, obs, obs, nothing, valid, {}, jnp.int32(0), params, state=state)
    bonus = hook.reward(collected, parts["stats"], nothing).reward
    np.testing.assert_allclose(bonus, arrays["intrinsic"], **EXACT)
    assert arrays["rnd_weight"] == 0.2  # 2, times the time step
    assert not any("rnd" in line.lower() for line in lines if "learning rate" not in line)


@pytest.mark.parametrize("name", ["2_rnd", "4_rnd", "5_rnd"])
def test_moments_of_the_predictor(name, tmp_path):
    parts, lines, runner = read(name, tmp_path, empirical_normalization=name[0] == "2")
    arrays = recorded(name)
    for ours, theirs in (("mu", "exp_avg"), ("nu", "exp_avg_sq")):
        found, count = unravel(runner, "rnd", parts, ours)
        given = torch_moments(arrays, theirs)
        assert count == 12
        for number, layer in ((0, "layer_0"), (2, "layer_1")):
            weight, bias = (given[f"rnd_state_dict.predictor.{number}.{kind}"] for kind in ("weight", "bias"))
            np.testing.assert_array_equal(found[layer]["kernel"], weight.T)
            np.testing.assert_array_equal(found[layer]["bias"], bias)
    assert not any(line.startswith("learning rate of RND") for line in lines)
    values = {"empirical_normalization": name[0] == "2"}
    _, lines, _ = read(name, tmp_path, **values, rnd_cfg=RND | {"learning_rate": 1e-3})
    assert "learning rate of RND: 0.0005 in the file; continues with 0.001" in lines
    _, lines, _ = read(name, tmp_path, **values, rnd_cfg=None)
    unused = [line.split(":")[0] for line in lines if line.endswith("not used")]
    assert unused == ["rnd_state_dict", "rnd_optimizer_state_dict"]


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_standard_deviation_that_depends_on_the_state(version, tmp_path):
    (line,) = refused(f"{version}_heteroscedastic", tmp_path)
    name = "actor.4.weight" if version == 3 else "actor_state_dict.mlp.4.weight"
    assert line.startswith(f"{name}: 2 outputs for each of the 2 actions")
    assert "state_dependent_std" in line


def test_lines_name_what_the_file_has(tmp_path):
    values = settings("5_gru", tmp_path)
    values["policy"] |= {"actor_hidden_dims": [6, 7], "rnn_type": "lstm"}
    runner = OnPolicyRunner(None, from_dict(values)[0])
    runner.close()
    file = load_torch(FOLDER / "rsl_rl_5_gru.pt")
    with pytest.raises(TorchFileError) as caught:
        torch_state.read_parts(file, runner.algorithm, runner.programs.states[0], 16)
    lines = str(caught.value).split("\n")
    assert "actor_state_dict.mlp.2.weight: shape [5, 6] in the file, shape [7, 6] in the policy" in lines
    assert "critic_state_dict.rnn.rnn.bias_hh_l0: shape [15] in the file, shape [20] in the policy" in lines
    expected = [
        "actor_hidden_dims: [6, 5] in the file, [6, 7] in the policy",
        "rnn_type: gru in the file, lstm in the policy",
    ]
    assert lines[-2:] == expected


def test_a_memory_on_one_side(tmp_path):
    for name, other in (("4_gru", "4_mlp"), ("4_mlp", "4_gru")):
        lines = refused(other, tmp_path, load_torch(FOLDER / f"rsl_rl_{name}.pt"))
        (line,) = [line for line in lines if line.startswith("memory: ")]
        fits = "ActorCriticRecurrent" if name == "4_gru" else "ActorCritic"
        assert line.endswith(f"{fits} fits the file")
        assert "rnn_type gru, rnn_hidden_size 5, rnn_num_layers 1" in line


def test_a_memory_of_the_actor_alone(tmp_path):
    file = load_torch(FOLDER / "rsl_rl_5_gru.pt")
    file["critic_state_dict"] = load_torch(FOLDER / "rsl_rl_5_rnd.pt")["critic_state_dict"]
    lines = refused("5_gru", tmp_path, file)
    assert any(line.startswith("memory: ") and line.endswith("they must be the same") for line in lines)


@pytest.mark.parametrize("part", ["state", "reward"])
def test_statistics_of_rnd_on_one_side(part, tmp_path):
    start, key = f"rnd_state_dict, {part}_normalizer: in the", f"algorithm.rnd_cfg.{part}_normalization"
    wrong = RND | {f"{part}_normalization": False}
    assert refused("5_rnd", tmp_path, rnd_cfg=wrong) == [f"{start} file, not in the config; use {key}=true"]
    file = load_torch(FOLDER / "rsl_rl_5_rnd.pt")
    file["rnd_state_dict"] = {k: v for k, v in file["rnd_state_dict"].items() if not k.startswith(part)}
    assert refused("5_rnd", tmp_path, file) == [f"{start} config, not in the file; use {key}=false"]


def test_statistics_of_a_discounted_sum_are_not_those_of_the_reward(tmp_path):
    parts, lines, _ = read("5_rnd", tmp_path, rnd_cfg=RND | {"rsl_rl": False})
    assert "rnd_reward" not in parts["stats"]
    (line,) = [line for line in lines if "reward_normalizer" in line]
    assert line.endswith("algorithm.rnd_cfg.rsl_rl=true")


def test_statistics_of_rnd_of_another_size(tmp_path):
    file = load_torch(FOLDER / "rsl_rl_5_rnd.pt")
    file["rnd_state_dict"]["state_normalizer._var"] = np.ones((1, 3), np.float32)
    (line,) = refused("5_rnd", tmp_path, file)
    assert line.startswith("rnd_state_dict, state_normalizer, _var: 3 entries in the file, 4 in")


CONTINUED = ["5_mlp", *(pytest.param(name, marks=pytest.mark.slow) for name in RL if name != "5_mlp")]


@pytest.mark.parametrize("name", CONTINUED)
def test_training_continues(name, tmp_path):
    check_continues(name, tmp_path)
