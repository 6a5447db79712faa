"""Import of discriminators and random network distillation: weights, and moments in the right order."""

import re
from collections import OrderedDict

import jax
import numpy as np
import optax
import pytest
from commands import call, log, settings, write
from torch_checkpoints import adam_state, checkpoint, weights
from torch_writer import save

from strl_jax import train
from strl_jax.builders import torch_state
from strl_jax.config import from_dict
from strl_jax.interop import torch_checkpoint
from strl_jax.run_folder import run_dir
from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.torch_files.file import TorchFileError

START = "^statistics of the discriminator's states: not in the file"
CHAIN = r"^std and log\(std\): .*chain rule"


def matches(lines: list[str], *patterns: str) -> bool:
    """Whether each line contains its pattern, in order."""
    return len(lines) == len(patterns) and all(map(re.search, patterns, lines))


RND = {"num_outputs": 2, "predictor_hidden_dims": [3], "target_hidden_dims": []}


def judge(**changes) -> OrderedDict:
    """A discriminator of pairs of positions: 2 numbers, one hidden layer of 3."""
    shapes = {"trunk.0.weight": (3, 2), "trunk.0.bias": (3,), "amp_linear.weight": (1, 3), "amp_linear.bias": (1,)}
    rng = np.random.default_rng(6)
    found = OrderedDict((f"discriminator.{name}", rng.normal(size=shape)) for name, shape in shapes.items())
    found |= {f"discriminator.{name}": value for name, value in changes.items()}
    return OrderedDict((name, np.float32(value)) for name, value in found.items())


def amp_checkpoint(**changes) -> dict:
    """A whole file of an actor-critic with a discriminator, whose parameters come after the others."""
    model = weights() | judge()
    return checkpoint(**{"model_state_dict": model, "optimizer_state_dict": adam_state(model), **changes})


def amp_settings(folder, **compat) -> dict:
    """APPO for ``commands.Walk``, whose discriminator sees pairs of positions."""
    np.save(folder / "expert.npy", np.zeros((5, 2), np.float32))
    values = settings(folder / "logs")
    values["compat"] = compat
    values["env"]["groups"] = {"amp": ["position"]}
    values["policy"] |= {"class_name": "AmpActorCritic", "amp_discriminator": {"hidden_dims": [3]}}
    values["algorithm"] |= {"class_name": "APPO", "expert_file": str(folder / "expert.npy")}
    return values


def read(values: dict, file: dict) -> tuple[dict, list[str], OnPolicyRunner]:
    """The imported parts of a file, the notes, and the runner."""
    runner = OnPolicyRunner(None, from_dict(values)[0])
    runner.close()
    fresh = runner.programs.states[0]
    return *torch_state.read_parts(file, runner.algorithm, fresh, runner.steps_per_iteration), runner


def moments(state) -> optax.ScaleByAdamState:
    return next(part for part in state[1] if isinstance(part, optax.ScaleByAdamState))


# Parameters 0 to 8 are the policy's: std, then weights and biases of the layers; 9 to 12 the discriminator's.
# Flat: actor, critic, log_std; biases first. log_std: 1 x 0.5 = 0.5.
POLICY = np.repeat([3.0, 2.0, 5.0, 4.0, 7.0, 6.0, 9.0, 8.0, 0.5], [4, 12, 1, 4, 4, 12, 1, 4, 1])
JUDGE = np.repeat([11.0, 10.0, 13.0, 12.0], [3, 6, 1, 3])


def test_a_separate_optimizer_starts_fresh(tmp_path):
    parts, lines, runner = read(amp_settings(tmp_path), amp_checkpoint())
    found, file = parts["params"]["discriminator"]["params"]["trunk"], judge()
    np.testing.assert_array_equal(found["layer_0"]["kernel"], file["discriminator.trunk.0.weight"].T)
    np.testing.assert_array_equal(found["layer_0"]["bias"], file["discriminator.trunk.0.bias"])
    np.testing.assert_array_equal(found["layer_1"]["kernel"], file["discriminator.amp_linear.weight"].T)
    np.testing.assert_array_equal(found["layer_1"]["bias"], file["discriminator.amp_linear.bias"])
    assert parts["params"]["policy"]["params"].keys() == {"actor", "critic", "log_std"}
    assert parts["opt_state"].keys() == {"policy"}
    adam = moments(parts["opt_state"]["policy"])
    np.testing.assert_array_equal(adam.mu, POLICY)
    assert moments(runner.programs.states[0].opt_state["discriminator"]).mu.shape == (13,)  # 3 + 6 + 1 + 3
    assert matches(lines, "^optimizer: the discriminator has a separate one.* start at 0", CHAIN, START)


def test_the_policys_optimizer_covers_it(tmp_path):
    parts, lines, runner = read(amp_settings(tmp_path, discriminator_with_policy=True), amp_checkpoint())
    adam = moments(parts["opt_state"]["policy"])
    np.testing.assert_array_equal(adam.mu, np.concatenate([JUDGE, POLICY]))
    # The second moments are larger by 1; that of log_std is 2 x 0.5^2 = 0.5.
    np.testing.assert_array_equal(adam.nu[:-1], adam.mu[:-1] + 1)
    assert (adam.count, adam.nu[-1]) == (9, 0.5)
    assert moments(runner.programs.states[0].opt_state["policy"]).mu.shape == adam.mu.shape
    assert matches(lines, CHAIN, START)


def test_its_parameters_are_numbered_where_the_file_has_them(tmp_path):
    """The same file with the discriminator first: 0 to 3 are the discriminator's, 4 to 12 the policy's."""
    model = judge() | weights()
    file = amp_checkpoint(model_state_dict=model, optimizer_state_dict=adam_state(model))
    parts, _, _ = read(amp_settings(tmp_path, discriminator_with_policy=True), file)
    adam = moments(parts["opt_state"]["policy"])
    np.testing.assert_array_equal(adam.mu[:13], JUDGE - 9)
    np.testing.assert_array_equal(adam.mu[13:-1], POLICY[:-1] + 4)
    assert adam.mu[-1] == 2.5  # std is the fifth: 5 x 0.5


@pytest.mark.parametrize("together", [False, True])
def test_a_file_without_a_discriminator(together, tmp_path):
    parts, lines, _ = read(amp_settings(tmp_path, discriminator_with_policy=together), checkpoint())
    assert parts["params"].keys() == {"policy"}
    fresh = "^the file has no discriminator"
    if together:
        assert isinstance(moments(parts["opt_state"]["policy"]).mu, jax.ShapeDtypeStruct)  # fresh
        assert matches(lines, "^optimizer: .*no discriminator.* start at 0", fresh)
    else:
        np.testing.assert_array_equal(moments(parts["opt_state"]["policy"]).mu, POLICY)
        assert matches(lines, CHAIN, fresh)


def test_an_optimizer_of_other_parameters_is_not_imported(tmp_path):
    """Nine parameters for thirteen: which ones cannot be known."""
    file = amp_checkpoint(optimizer_state_dict=adam_state(weights()))
    parts, lines, _ = read(amp_settings(tmp_path, discriminator_with_policy=True), file)
    assert isinstance(moments(parts["opt_state"]["policy"]).mu, jax.ShapeDtypeStruct)
    assert matches(lines, "^optimizer: 9 parameters in 1 groups for the model's 13 .* start at 0", START)


@pytest.mark.slow
def test_training_continues(tmp_path):
    file = save(tmp_path / "model_5.pt", amp_checkpoint())
    config = write(tmp_path / "config.yaml", amp_settings(tmp_path, discriminator_with_policy=True))
    arguments = [str(file), "--config", str(config), "--out", str(tmp_path / "run")]
    assert torch_checkpoint.main(arguments) == 0
    runner = OnPolicyRunner(None, run_dir.read_config(tmp_path / "run")[0])
    runner.load(tmp_path / "run")
    state = jax.device_get(runner.train_state)
    runner.close()
    np.testing.assert_array_equal(moments(state.opt_state["policy"]).mu, np.concatenate([JUDGE, POLICY]))
    kernel = state.params["discriminator"]["params"]["trunk"]["layer_0"]["kernel"]
    np.testing.assert_array_equal(kernel, judge()["discriminator.trunk.0.weight"].T)
    assert train.main(["--resume", str(tmp_path / "run"), "runner.max_iterations=6"]) == 0
    (line,) = log(tmp_path / "run")
    assert line["iteration"] == 6
    assert np.isfinite(line["Loss/discriminator_expert_loss"])


FAULTS = {
    "another size": (
        judge(**{"trunk.0.weight": np.zeros((3, 4))}),
        ["discriminator.trunk.0.weight: shape [3, 4] in the file, shape [3, 2] in the config"],
    ),
    "unknown names": (
        judge(**{"amp_linear.scale": np.zeros(1), "body.0.weight": np.zeros((1, 1))}),
        [
            "discriminator.amp_linear.scale: in the file only, shape [1]",
            "discriminator.body.0.weight: in the file only, shape [1, 1]",
        ],
    ),
    "one layer more": (
        judge(**{"trunk.2.weight": np.zeros((3, 3)), "trunk.2.bias": np.zeros(3)}),
        [
            "discriminator.amp_linear.weight: in the file only, shape [1, 3]",
            "discriminator.amp_linear.bias: in the file only, shape [1]",
            "discriminator.trunk.2.weight: shape [3, 3] in the file, shape [1, 3] in the config",
            "discriminator.trunk.2.bias: shape [3] in the file, shape [1] in the config",
        ],
    ),
    "a layer less": (
        OrderedDict(list(judge().items())[:2]),
        [
            "discriminator/trunk/layer_1/bias: in the config only, shape [1]",
            "discriminator/trunk/layer_1/kernel: in the config only, shape [1, 3]",
        ],
    ),
    "not finite": (
        judge(**{"trunk.0.bias": [0.0, np.inf, 0.0]}),
        ["discriminator.trunk.0.bias: not finite in the file"],
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_discriminator_that_does_not_fit(fault, tmp_path, capsys):
    inner, expected = FAULTS[fault]
    file = save(tmp_path / "model_5.pt", amp_checkpoint(model_state_dict=weights() | inner))
    config = write(tmp_path / "config.yaml", amp_settings(tmp_path))
    code, lines = call(capsys, torch_checkpoint.main, file, "--config", config, "--out", tmp_path / "out")
    assert (code, lines) == (2, [f"error: {line}" for line in expected])
    assert not (tmp_path / "out").exists()


def test_a_discriminator_for_a_config_without_one(tmp_path):
    with pytest.raises(TorchFileError) as caught:
        read(settings(tmp_path), amp_checkpoint())
    assert str(caught.value) == "discriminator: in the file only; APPO and ATPPO with an Amp policy class have one"


def rnd_settings(folder) -> dict:
    values = settings(folder / "logs")
    values["algorithm"]["rnd_cfg"] = RND
    values["env"]["groups"] = {"rnd": ["position"]}
    return values


def distillation(**changes) -> dict:
    """rsl_rl's of a position: a predictor with a hidden layer of 3, a linear target, 2 outputs."""
    shapes = {"predictor.0.weight": (3, 1), "predictor.0.bias": (3,), "predictor.2.weight": (2, 3)}
    shapes |= {"predictor.2.bias": (2,), "target.0.weight": (2, 1), "target.0.bias": (2,)}
    rng = np.random.default_rng(7)
    return {name: np.float32(rng.normal(size=shape)) for name, shape in shapes.items()} | changes


def test_random_network_distillation(tmp_path):
    file = distillation(**{"weight_scheduler.step": np.zeros(1, "f4")})
    parts, lines, runner = read(rnd_settings(tmp_path), checkpoint(rnd_state_dict=file))
    predictor, target = (parts["params"][name]["params"] for name in ("rnd", "rnd_target"))
    np.testing.assert_array_equal(predictor["layer_1"]["kernel"], file["predictor.2.weight"].T)
    np.testing.assert_array_equal(predictor["layer_0"]["bias"], file["predictor.0.bias"])
    np.testing.assert_array_equal(target["layer_0"]["kernel"], file["target.0.weight"].T)
    fresh = runner.programs.states[0].params
    for name in ("rnd", "rnd_target"):
        assert jax.tree.map(np.shape, parts["params"][name]) == jax.tree.map(lambda leaf: leaf.shape, fresh[name])
    assert matches(lines, CHAIN, "^rnd_optimizer_state_dict: not in the file", "^rnd_state_dict, weight_scheduler: ")


def test_random_network_distillation_of_one_side(tmp_path):
    parts, lines, _ = read(rnd_settings(tmp_path), checkpoint())
    assert parts["params"].keys() == {"policy"}
    assert matches(lines, CHAIN, "^the file has no rnd_state_dict")
    _, lines, _ = read(settings(tmp_path), checkpoint(rnd_state_dict=distillation()))
    assert matches(lines, CHAIN, "^rnd_state_dict: in the file, not")


def test_random_network_distillation_that_does_not_fit(tmp_path):
    file = distillation(**{"target.0.weight": np.zeros((1, 1), "f4"), "target.1": 3})
    with pytest.raises(TorchFileError) as caught:
        read(rnd_settings(tmp_path), checkpoint(rnd_state_dict=file))
    assert str(caught.value).split("\n") == [
        "rnd_state_dict.target.0.weight: shape [1, 1] in the file, shape [2, 1] in the config",
        "rnd_state_dict.target.1: in the file only, shape []",
    ]


def test_a_learning_rate_of_a_scheduler(tmp_path):
    """1e-3 is halved after 4 iterations; the file is of the fifth."""
    values = amp_settings(tmp_path)
    values["algorithm"] |= {
        "class_name": "ATPPO",
        "teacher_policy": {
            "teacher_ac_path": str(
                save(tmp_path / "teacher.pt", checkpoint(obs_norm_state_dict=None, critic_obs_norm_state_dict=None))
            )
        },
        "schedule": "fixed",
        "lr_scheduler_class_name": "StepLR",
        "lr_scheduler": {"step_size": 4, "gamma": 0.5},
    }
    values["algorithm"]["teacher_policy"] |= {"actor_hidden_dims": [4], "critic_hidden_dims": [4]}
    parts, lines, _ = read(values, amp_checkpoint(lr_scheduler_state_dict={"last_epoch": 5}))
    assert parts["learning_rate"]["policy"] == np.float32(5e-4)
    assert any(re.search(r"^learning rate: 0\.0003 in the file; .*schedule.* 0\.0005$", line) for line in lines)
    assert any(line.startswith("lr_scheduler_state_dict: in the file, not") for line in lines)
