"""Import of torch checkpoints, which are written here without torch: imported parts and refused files."""

import re
import shutil
from collections import OrderedDict
from pathlib import Path

import jax
import numpy as np
import optax
import pytest
from commands import call, log, settings, write
from torch_checkpoints import STD, checkpoint, statistics, weights
from torch_writer import save

from strl_jax import train
from strl_jax.builders import torch_state
from strl_jax.config import from_dict
from strl_jax.interop import torch_checkpoint
from strl_jax.run_folder import run_dir
from strl_jax.runners.on_policy import OnPolicyRunner


@pytest.fixture
def config(tmp_path):
    return write(tmp_path / "config.yaml", settings(tmp_path / "logs"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder from ``checkpoint()``."""
    folder = tmp_path_factory.mktemp("run")
    file = save(folder / "model_5.pt", checkpoint())
    config = write(folder / "config.yaml", settings(folder / "logs"))
    (folder / "out").mkdir()  # empty: may be used
    arguments = [str(file), "seed=4", "--config", str(config), "--out", str(folder / "out")]
    assert torch_checkpoint.main(arguments) == 0
    return folder / "out"


def test_everything_is_imported(run):
    config, _ = run_dir.read_config(run)
    assert config.seed == 4
    runner = OnPolicyRunner(None, config)
    runner.load(run)
    state, model = jax.device_get(runner.train_state), weights()
    runner.close()
    params = state.params["policy"]["params"]
    assert params["log_std"] == np.log(STD)
    assert (params["actor"]["layer_0"]["kernel"] == model["actor.0.weight"].T).all()
    assert (params["critic"]["layer_1"]["bias"] == model["critic.2.bias"]).all()
    adam = next(part for part in state.opt_state["policy"][1] if isinstance(part, optax.ScaleByAdamState))
    assert adam.count == 9
    # Parameters 0 to 8 are std, then weights and biases of the layers. Flat: actor, critic, log_std; biases first.
    # log_std: 1 x 0.5 = 0.5, and 2 x 0.5^2 = 0.5.
    sizes = [4, 12, 1, 4, 4, 12, 1, 4, 1]
    np.testing.assert_array_equal(adam.mu, np.repeat([3.0, 2.0, 5.0, 4.0, 7.0, 6.0, 9.0, 8.0, 0.5], sizes))
    np.testing.assert_array_equal(adam.nu, np.repeat([4.0, 3.0, 6.0, 5.0, 8.0, 7.0, 10.0, 9.0, 0.5], sizes))
    assert (state.iteration, runner.progress.iteration) == (5, 5)
    assert state.learning_rate["policy"] == np.float32(3e-4)
    goal, position = state.stats["critic"]["goal"], state.stats["actor"]["position"]
    assert (goal.mean.tolist(), goal.var.tolist(), goal.count) == ([[21.0, 22.0]], [[121.0, 122.0]], 7000)
    assert (position.mean.tolist(), position.var.tolist(), position.count) == ([10.0], [110.0], 7000)
    assert state.stats["reward"].count == 0


def test_training_continues(run, tmp_path):
    folder = Path(shutil.copytree(run, tmp_path / "run"))
    files = sorted(path.name for path in folder.iterdir())
    assert files == [".lock", "checkpoints", "config.json", "config.yaml", "metrics.jsonl"]
    assert train.main(["--resume", str(folder), "runner.max_iterations=6"]) == 0
    assert [line["iteration"] for line in log(folder)] == [6]
    assert sorted(path.name for path in (folder / "checkpoints" / "last").iterdir()) == ["5", "6"]


def test_an_interrupt_makes_no_folder(config, tmp_path, capsys, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(torch_checkpoint, "load_torch", interrupt)
    arguments = ("model_5.pt", "--config", config, "--out", tmp_path / "out")
    code, lines = call(capsys, torch_checkpoint.main, *arguments)
    assert (code, len(lines)) == (130, 1)  # 128 + SIGINT
    assert lines[0].startswith("error: interrupted")
    assert not (tmp_path / "out").exists()


FITS = "; .*algorithm.empirical_normalization={}"
FAULTS = {
    "shapes and names": (
        {"model_state_dict": weights(**{"actor.0.weight": np.zeros((4, 5), "f4"), "actor.4.bias": np.zeros(2, "f4")})},
        ["policy.critic_hidden_dims=[4, 6]"],
        [
            "actor.0.weight: shape [4, 5] in the file, shape [4, 3] in the policy",
            "critic.2.weight: shape [1, 4] in the file, shape [6, 4] in the policy",
            "critic.2.bias: shape [1] in the file, shape [6] in the policy",
            "actor.4.bias: in the file only, shape [2]",
            "critic/layer_2/bias: in the policy only, shape [1]",
            "critic/layer_2/kernel: in the policy only, shape [1, 6]",
            "critic_hidden_dims: [4] in the file, [4, 6] in the policy",
        ],
    ),
    "weights and statistics": (
        {
            "model_state_dict": weights(**{"critic.2.bias": np.zeros(3, "f4")}),
            "critic_obs_norm_state_dict": {"_mean": np.zeros((1, 3), "f4")},
        },
        [],
        [
            "critic.2.bias: shape [3] in the file, shape [1] in the policy",
            "statistics of the critic's observations, _var: in the policy only, 3 entries",
        ],
    ),
    "sizes of statistics": (
        {"obs_norm_state_dict": statistics(1.0) | {"_mean": np.zeros((1, 4), "f4")}},
        [],
        ["statistics of the actor's observations, _mean: 4 entries in the file, 3 in the policy"],
    ),
    "std": (
        {"model_state_dict": weights(std=np.float32([0.0]))},
        [],
        ["std: [0.0] is not allowed; a standard deviation must be > 0"],
    ),
    "not finite": (
        {"model_state_dict": weights(**{"actor.2.bias": np.float32([np.nan])})},
        [],
        ["actor.2.bias: not finite in the file"],
    ),
    "two standard deviations": (
        {"model_state_dict": weights(log_std=np.float32([0.0]))},
        [],
        ["log_std: the same parameter as std"],
    ),
    "statistics missing from the config": (
        {},
        ["algorithm.empirical_normalization=false"],
        ["the file has statistics of observations, the config has not" + FITS.format("true")],
    ),
    "statistics missing from the file": (
        {"obs_norm_state_dict": None, "critic_obs_norm_state_dict": OrderedDict()},
        [],
        ["the file has no statistics of observations, the config has" + FITS.format("false")],
    ),
    "statistics of one group and a large eps": (
        {"critic_obs_norm_state_dict": None},
        ["algorithm.normalization_eps=1"],
        ["statistics of the critic's observations: not in the file; algorithm.normalization_eps must be below 1"],
    ),
    "no model": (
        {"model_state_dict": None},
        [],
        [r"the file has no model_state_dict; it has optimizer_state_dict, .*"],
    ),
    "iteration": ({"iter": -1}, [], ["iter: -1 is not allowed; it must be an integer >= 0"]),
    "setting": ({}, ["algorithm.gama=1"], [r"override 'algorithm\.gama=1': .*unknown key; nearest is gamma"]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_has_its_line(fault, config, tmp_path, capsys):
    changes, overrides, expected = FAULTS[fault]
    file = save(tmp_path / "model_5.pt", checkpoint(**changes))
    before = sorted(tmp_path.iterdir())
    code, lines = call(
        capsys, torch_checkpoint.main, file, "--config", config, *overrides, "--out", tmp_path / "deep" / "out"
    )
    assert code == 2
    assert len(lines) == len(expected), lines
    for line, text in zip(lines, expected, strict=True):
        assert line == f"error: {text}" or re.fullmatch(f"error: {text}", line), line
    assert sorted(tmp_path.iterdir()) == before


def test_folder_that_is_taken(config, tmp_path, capsys):
    file = save(tmp_path / "model_5.pt", checkpoint())
    for out in (tmp_path, file):
        code, lines = call(capsys, torch_checkpoint.main, file, "--config", config, "--out", out)
        assert (code, lines) == (2, [f"error: --out: {out} exists and is not empty; name a new folder"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.yaml", "model_5.pt"]


def test_missing_arguments(config, capsys):
    code, lines = call(capsys, torch_checkpoint.main, "model_5.pt", "--config", config)
    assert (code, lines) == (2, ["error: the following arguments are required: --out"])


def imported(runner_config: dict, **changes) -> tuple[dict, list[str]]:
    """The imported parts of a file, and the notes."""
    config, _ = from_dict(runner_config)
    runner = OnPolicyRunner(None, config)
    try:
        fresh = runner.programs.states[0]
        return torch_state.read_parts(checkpoint(**changes), runner.algorithm, fresh, runner.steps_per_iteration)
    finally:
        runner.close()


def test_statistics_among_the_weights_and_notes(tmp_path):
    own = {
        f"{name}_obs_normalizer.{key}": value for name in ("actor", "critic") for key, value in statistics(3).items()
    }
    del own["critic_obs_normalizer.count"]
    config = settings(tmp_path)
    config["algorithm"]["schedule"] = "fixed"
    changes = {"obs_norm_state_dict": None, "critic_obs_norm_state_dict": None, "rnd_state_dict": {}, "infos": [1]}
    parts, lines = imported(config, model_state_dict=weights(**own), **changes)
    assert parts["stats"]["critic"]["goal"].mean.tolist() == [[4.0, 5.0]]
    # 5 iterations x 4 steps x 4 environments = 80
    assert (parts["stats"]["critic"]["goal"].count, parts["stats"]["actor"]["goal"].count) == (80, 7000)
    assert parts["learning_rate"]["policy"] == np.float32(1e-3)
    expected = (
        r"^std and log\(std\): .*chain rule",
        r"^learning rate: 0\.0003 in the file; .*schedule.* 0\.001$",
        "^rnd_state_dict: in the file, not",
        "^infos: in the file, not",
        "^count of the statistics: not in the file; 80 samples",
    )
    assert len(lines) == len(expected)
    assert all(map(re.search, expected, lines)), lines
