"""Checkpoints of real runners of rsl_rl 2 to 5: equal outputs, moments in the right places, and what is refused."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from commands import log, write
from rsl_rl_files import FOLDER, LARGE, RND, observations, recorded, resets, settings

from strl_jax import train
from strl_jax.algorithms.hooks import Collected
from strl_jax.builders import torch_state
from strl_jax.builders.algorithm import assemble
from strl_jax.builders.environment import make_env
from strl_jax.config import from_dict
from strl_jax.interop import torch_checkpoint
from strl_jax.run_folder import run_dir
from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.torch_files.file import TorchFileError, load_torch

RL = [f"{version}_{variant}" for version in (4, 5) for variant in ("mlp", "lstm", "gru", "rnd")]
STUDENTS = ["2_student", "3_student", "3_student_gru", "4_student", "4_student_gru", "5_student", "5_student_gru"]
EXACT = {"rtol": 0, "atol": 1e-6}
# Start of a name in the file -> path in the policy; numbers of linear layers are 0, 2, 4.
PATHS = {
    "actor_state_dict.mlp.": "actor",
    "critic_state_dict.mlp.": "critic",
    "actor_state_dict.rnn.rnn.": "memory_actor",
    "critic_state_dict.rnn.rnn.": "memory_critic",
}


def read(name: str, tmp_path, file: dict | None = None, **algorithm):
    """The parts of a file, the notes, and the runner."""
    runner = OnPolicyRunner(None, from_dict(settings(name, tmp_path, **algorithm))[0])
    runner.close()
    file = load_torch(FOLDER / f"rsl_rl_{name}.pt") if file is None else file
    fresh = runner.programs.states[0]
    return *torch_state.read_parts(file, runner.algorithm, fresh, runner.steps_per_iteration), runner


def refused(name: str, tmp_path, file: dict | None = None, **algorithm) -> list[str]:
    with pytest.raises(TorchFileError) as caught:
        read(name, tmp_path, file, **algorithm)
    return str(caught.value).split("\n")


def outputs(parts: dict, runner: OnPolicyRunner, arrays: dict, method: str | None = None):
    """Result of the policy on the recorded observations."""
    algorithm, reset = runner.algorithm, resets(arrays)
    names = ("actor",) if method == "act" else ("actor", "critic")
    groups = algorithm.pack(parts["stats"], observations(arrays), names)
    carry = algorithm.policy.initial_carry(reset.shape[1])
    return jax.jit(algorithm.policy.apply, static_argnames="method")(
        parts["params"]["policy"], groups, carry, reset, method=method
    )


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
    collected = Collected(obs, obs, obs, nothing, valid, {}, jnp.int32(0), params, state=jnp.zeros(valid.shape[1]))
    (hook,) = runner.algorithm.reward_hooks
    bonus = hook.reward(collected, parts["stats"], nothing).reward
    np.testing.assert_allclose(bonus * arrays["rnd_weight"], arrays["intrinsic"], **EXACT)
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


@pytest.mark.parametrize("name", STUDENTS)
def test_a_student_becomes_the_actor(name, tmp_path):
    parts, lines, runner = read(name, tmp_path)
    arrays = recorded(name)
    mean, _, _ = outputs(parts, runner, arrays, method="act")
    np.testing.assert_allclose(mean, arrays["actions"], **EXACT)
    assert not any(key.endswith("critic") for key in parts["params"]["policy"]["params"])
    assert "log_std" in parts["params"]["policy"]["params"]
    assert parts["stats"].keys() == {"actor"}
    assert parts["opt_state"] == {}
    assert parts["learning_rate"]["policy"] == np.float32(1e-3)
    (line,) = [line for line in lines if line.startswith("distillation: ")]
    assert all(word in line for word in ("student", "actor", "critic", "optimizer", "fresh"))


def test_a_student_without_a_standard_deviation(tmp_path):
    file = load_torch(FOLDER / "rsl_rl_5_student.pt")
    del file["student_state_dict"]["distribution.std_param"]
    parts, lines, _ = read("5_student", tmp_path, file)
    assert "log_std" not in parts["params"]["policy"]["params"]
    assert "policy.init_noise_std" in lines[0]


def teaching(name: str, tmp_path, **algorithm) -> dict:
    """The config of TPPO with the teacher of a distillation."""
    values = settings(name, tmp_path, class_name="TPPO", **algorithm)
    values["env"]["groups"]["teacher"] = LARGE
    policy = values["policy"] | {"actor_hidden_dims": [4]}
    values["algorithm"]["teacher_policy"] = policy | {"teacher_ac_path": str(FOLDER / f"rsl_rl_{name}.pt")}
    return values


@pytest.mark.parametrize("name", STUDENTS)
def test_a_teacher_teaches(name, tmp_path):
    config, _ = from_dict(teaching(name, tmp_path))
    made, arrays = assemble(config, make_env(config.env)), recorded(name)
    teacher, data = made.algorithm.act_hook.teacher, made.data["teacher"]
    groups, reset = teacher.pack({"teacher": data}, observations(arrays)), resets(arrays)
    carry = teacher.policy.initial_carry(reset.shape[1])
    mean, _, _ = teacher.policy.apply(data["variables"], groups, carry, reset, method="act")
    np.testing.assert_allclose(mean, arrays["second"], **EXACT)


def test_a_teacher_without_a_standard_deviation(tmp_path):
    """Up to version 3, the only standard deviation of the file is the student's."""
    for change in ({"distill_target": "kl"}, {"action_labels_from_sample": True}):
        config, _ = from_dict(teaching("3_student", tmp_path, **change))
        with pytest.raises(ValueError, match=r"teacher_ac_path: .*rsl_rl_3_student\.pt: it has no std") as caught:
            assemble(config, make_env(config.env))
        assert "kl" in str(caught.value)
    config, _ = from_dict(teaching("5_student", tmp_path, distill_target="kl"))
    std = assemble(config, make_env(config.env)).data["teacher"]["variables"]["params"]["std"]
    file = load_torch(FOLDER / "rsl_rl_5_student.pt")["teacher_state_dict"]
    np.testing.assert_array_equal(std, file["distribution.std_param"])


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


RND_FAULTS = {
    "state_normalization": ("state_normalizer", True, "true"),
    "reward_normalization": ("reward_normalizer", "discounted", "discounted"),
}


@pytest.mark.parametrize("key", RND_FAULTS)
def test_statistics_of_rnd_on_one_side(key, tmp_path):
    part, on, way_out = RND_FAULTS[key]
    assert refused("5_rnd", tmp_path, rnd_cfg=RND | {key: False}) == [
        f"rnd_state_dict, {part}: in the file, not in the config; use algorithm.rnd_cfg.{key}={way_out}"
    ]
    file = load_torch(FOLDER / "rsl_rl_5_rnd.pt")
    file["rnd_state_dict"] = {k: v for k, v in file["rnd_state_dict"].items() if not k.startswith(part)}
    assert refused("5_rnd", tmp_path, file, rnd_cfg=RND | {key: on}) == [
        f"rnd_state_dict, {part}: in the config, not in the file; use algorithm.rnd_cfg.{key}=false"
    ]


def test_statistics_of_a_discounted_sum_are_not_those_of_the_reward(tmp_path):
    parts, lines, _ = read("5_rnd", tmp_path, rnd_cfg=RND | {"reward_normalization": True})
    assert "rnd_reward" not in parts["stats"]
    (line,) = [line for line in lines if "reward_normalizer" in line]
    assert line.endswith("algorithm.rnd_cfg.reward_normalization=discounted")


def test_statistics_of_rnd_of_another_size(tmp_path):
    file = load_torch(FOLDER / "rsl_rl_5_rnd.pt")
    file["rnd_state_dict"]["state_normalizer._var"] = np.ones((1, 3), np.float32)
    (line,) = refused("5_rnd", tmp_path, file)
    assert line.startswith("rnd_state_dict, state_normalizer, _var: 3 entries in the file, 4 in")


CONTINUED = ["5_mlp", *(pytest.param(name, marks=pytest.mark.slow) for name in (*RL[:-4], *RL[-3:], *STUDENTS))]


@pytest.mark.parametrize("name", CONTINUED)
def test_training_continues(name, tmp_path, capsys):
    config = write(tmp_path / "config.yaml", settings(name, tmp_path / "logs"))
    file, out = FOLDER / f"rsl_rl_{name}.pt", tmp_path / "run"
    assert torch_checkpoint.main([str(file), "--config", str(config), "--out", str(out)]) == 0
    runner = OnPolicyRunner(None, run_dir.read_config(out)[0])
    runner.load(out)
    state = jax.device_get(runner.train_state)
    runner.close()
    parts, _, runner = read(name, tmp_path)
    for group, expected in parts["params"].items():
        for network, values in expected["params"].items():
            jax.tree.map(np.testing.assert_array_equal, state.params[group]["params"][network], values)
    start = int(state.iteration)
    assert train.main(["--resume", str(out), f"runner.max_iterations={start + 1}"]) == 0
    (line,) = log(out)
    assert line["iteration"] == start + 1
    assert all(np.isfinite(value) for key, value in line.items() if key.startswith("Loss/"))
