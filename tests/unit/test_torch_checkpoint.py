"""Import of torch checkpoints, which are written here without torch: imported parts and refused files."""

import os
import pickle
import re
import shutil
import zipfile
from collections import OrderedDict
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny
from commands import call, log, settings, write
from torch_checkpoints import STD, adam_state, checkpoint, statistics, weights
from torch_writer import STORAGES, archive, plain, save, tensor

from strl_jax import train
from strl_jax.algorithms import optimizers
from strl_jax.builders import torch_state
from strl_jax.config import from_dict
from strl_jax.interop import torch_checkpoint
from strl_jax.modules.policy import Policy
from strl_jax.run_folder import run_dir
from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.torch_files import layouts
from strl_jax.torch_files.file import TorchFileError, load_torch
from strl_jax.torch_files.moments import import_moments
from strl_jax.torch_files.weights import import_weights, parameter_shapes


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
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoints", "config.json", "config.yaml"]
    assert train.main(["--resume", str(folder), "runner.max_iterations=6"]) == 0
    assert [line["iteration"] for line in log(folder)] == [6]
    assert sorted(path.name for path in (folder / "checkpoints" / "last").iterdir()) == ["5", "6"]


class Evil:
    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


def test_code_is_refused_and_not_run(config, tmp_path, capsys):
    file = archive(tmp_path / "model_1.pt", pickle.dumps({"model_state_dict": Evil(tmp_path / "ran")}, 2))
    code, lines = call(capsys, torch_checkpoint.main, file, "--config", config, "--out", tmp_path / "out")
    assert code == 2
    assert len(lines) == 1
    assert re.search(r"^error: .*model_1\.pt: rejected: the file names (posix|nt)\.system;", lines[0])
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "out").exists()


def cut(path: Path) -> None:
    path.write_bytes(save(path, checkpoint()).read_bytes()[:-200])


def flip(path: Path) -> None:
    content = bytearray(save(path, checkpoint()).read_bytes())
    content[content.find(STD.tobytes())] ^= 1
    path.write_bytes(content)


FILES = {
    "cut off": (cut, "damaged: File is not a zip file"),
    "one bit wrong": (flip, "damaged: Bad CRC-32 for file 'model/data/0'"),
    "text": (lambda path: path.write_text("weights"), "not a torch checkpoint: the file is not a zip archive"),
    "empty": (lambda path: path.touch(), "not a torch checkpoint: the file is not a zip archive"),
    "before torch 1.6": (
        lambda path: path.write_bytes(pickle.dumps(0x1950A86A20F9469CFC6C, 2)),
        "the format is that of torch before 1.6; load and save the file with torch 1.6 or newer",
    ),
    "another zip": (
        lambda path: zipfile.ZipFile(path, "w").writestr("a.txt", "a"),
        "not a torch checkpoint: the zip archive has no data.pkl",
    ),
    "a list": (lambda path: save(path, [1]), "the file must hold a dict, not list"),
    "no pickle": (lambda path: archive(path, b"\x80\x02}"), "damaged: "),
    "itself in itself": (lambda path: archive(path, b"\x80\x02}q\x00(X\x01\x00\x00\x00ah\x00u."), "damaged: "),
    "attributes": (
        lambda path: archive(path, b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nN}X\x01\x00\x00\x00aK\x01s\x86b."),
        "damaged: ",
    ),
    "bfloat16": (
        lambda path: archive(path, b"\x80\x02" + tensor("BFloat16", 0, 1, 0, [1], [1]) + b".", [b"ab"]),
        "the file holds bfloat16 tensors; save them as float32, with tensor.float()",
    ),
    "beyond its storage": (
        lambda path: archive(path, b"\x80\x02" + tensor("Byte", 0, 2, 1, [2], [1]) + b".", [b"ab"]),
        "damaged: a tensor reaches beyond its storage",
    ),
    "more than its storage": (
        lambda path: archive(path, b"\x80\x02" + tensor("Byte", 0, 2, 0, [2**40], [0]) + b".", [b"ab"]),
        "damaged: a tensor has more entries than its storage",
    ),
    "no file": (lambda path: None, "cannot be read: No such file or directory"),
}


@pytest.mark.parametrize("fault", FILES)
def test_file_that_is_not_read(fault, tmp_path):
    make, expected = FILES[fault]
    make(tmp_path / "model_1.pt")
    with pytest.raises(TorchFileError) as caught:
        load_torch(tmp_path / "model_1.pt")
    assert str(caught.value).startswith(f"{tmp_path}/model_1.pt: {expected}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("order", ["little", "big"])
def test_plain_values_and_dtypes(order, tmp_path):
    value = {"a": [1, 2.5, None, True, "text"], 7: OrderedDict(b={"c": -1})}
    arrays = {kind: np.asarray([[1, 0], [3, 1]]).astype(kind) for kind in STORAGES}
    swapped = {kind: array.astype(array.dtype.newbyteorder(">")) for kind, array in arrays.items()}
    found = load_torch(save(tmp_path / "a.pt", value | {"x": arrays if order == "little" else swapped}, order))
    read = found.pop("x")
    assert found == {"a": [1, 2.5, None, True, "text"], 7: {"b": {"c": -1}}}
    assert type(found[7]) is dict
    for kind, array in arrays.items():
        assert read[kind].dtype == kind
        np.testing.assert_array_equal(read[kind], array)


def test_views_of_one_storage(tmp_path):
    # entries 0 to 5; from the second on, with strides 1 and 2: rows [1, 3], [2, 4]
    parts = plain("a") + tensor("Byte", 0, 6, 1, [2, 2], [1, 2]) + plain("b") + tensor("Byte", 0, 6, 5, [], [])
    parts += plain("c") + tensor("Byte", 0, 6, 0, [0, 3], [3, 1])
    found = load_torch(archive(tmp_path / "a.pt", b"\x80\x02}(" + parts + b"u.", [bytes(range(6))]))
    assert found["a"].tolist() == [[1, 3], [2, 4]]
    assert (found["b"].tolist(), found["b"].shape) == (5, ())
    assert found["c"].shape == (0, 3)


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


def observing(algorithm) -> Policy:
    """The policy, with the observations of the algorithm's groups."""
    return algorithm.policy.clone(actor_obs=algorithm.groups["actor"], critic_obs=algorithm.groups["critic"])


def as_read(weights: dict) -> layouts.Model:
    """The weights as the importer reads them from a file."""
    return layouts.read({"model_state_dict": weights})


def model_of(algorithm) -> dict:
    """A state dict of zeros for a feed-forward policy, std 1 first."""
    shapes = parameter_shapes(observing(algorithm))
    found = {"std": np.ones(shapes["log_std",].shape, np.float32)}
    for network in ("actor", "critic"):
        for layer, kind in ((0, "weight"), (0, "bias"), (1, "weight"), (1, "bias")):
            shape = shapes[network, f"layer_{layer}", "kernel" if kind == "weight" else "bias"].shape
            found[f"{network}.{2 * layer}.{kind}"] = np.zeros(shape[::-1], np.float32)
    return found


GROUP = {"betas": [0.9, 0.999], "amsgrad": False, "params": [0]}
ZERO = "moments start at 0"
OTHERS = {
    "none": (None, f"optimizer_state_dict: not in the file: {ZERO}"),
    "empty": ({"state": {}, "param_groups": [GROUP]}, f"optimizer_state_dict: not in the file: {ZERO}"),
    "AdamW": (
        {"state": {0: {}}, "param_groups": [GROUP | {"weight_decay": 0.01}]},
        f"optimizer: AdamW in the file, Adam in the config: {ZERO}",
    ),
    "SGD": (
        {"state": {0: {}}, "param_groups": [{"nesterov": False, "params": [0]}]},
        f"optimizer: SGD in the file, Adam in the config: {ZERO}",
    ),
    "amsgrad": (
        {"state": {0: {}}, "param_groups": [GROUP | {"amsgrad": True}]},
        f"optimizer: Adam with amsgrad in the file, Adam in the config: {ZERO}",
    ),
    "another number of parameters": (
        {"state": {0: {}}, "param_groups": [GROUP]},
        f"optimizer: 1 parameters in 1 groups for the model's 9 in the file: {ZERO}",
    ),
    "another order": (
        {
            "state": {1: {"step": 1, "exp_avg": np.zeros(2, "f4"), "exp_avg_sq": np.zeros(2, "f4")}},
            "param_groups": [GROUP | {"params": list(range(9))}],
        },
        f"optimizer: exp_avg of actor.0.weight is not finite or has another shape than the weight: {ZERO}",
    ),
}


@pytest.mark.parametrize("other", OTHERS)
def test_optimizer_that_is_not_imported(other):
    state, expected = OTHERS[other]
    algorithm = tiny.make_algorithm()
    fresh = object()
    found, lines = import_moments({"optimizer_state_dict": state}, as_read(model_of(algorithm)), algorithm, fresh)
    assert found is fresh
    assert lines == [expected]


def test_parameters_without_moments_and_other_settings():
    algorithm = tiny.make_algorithm()
    model = model_of(algorithm)
    state = adam_state(model)
    del state["state"][0]  # std had no gradient
    state["state"][1]["step"] = 4
    state["param_groups"][0]["betas"] = [0.8, 0.999]
    fresh = optimizers.init(algorithm.optimizers["policy"], {"a": jnp.zeros(sum(x.size for x in model.values()))})
    found, lines = import_moments({"optimizer_state_dict": state}, as_read(model), algorithm, fresh)
    adam = found[1][0]
    assert (adam.count, adam.mu[-1], adam.nu[-1]) == (9, 0, 0)
    assert lines[:3] == [
        "optimizer: betas [0.8, 0.999] in the file; continues with [0.9, 0.999]",
        "optimizer: no moments of std in the file: they start at 0",
        "optimizer: steps from 4 to 9 in the file; continues with 9",
    ]


def test_weights_alone():
    algorithm = tiny.make_algorithm()
    policy, model = observing(algorithm), model_of(algorithm)
    variables = import_weights(as_read(model), policy)
    assert variables["params"]["log_std"].tolist() == [0.0, 0.0]
    assert variables["params"]["actor"]["layer_0"]["kernel"].shape == (3, 8)
    with pytest.raises(ValueError, match="actor_obs and critic_obs are needed"):
        import_weights(as_read(model), Policy(2))
    linear = policy.clone(log_std=False)
    log_std = {("log_std" if name == "std" else name): value for name, value in model.items()}
    # exp(1) = 2.71828...
    np.testing.assert_allclose(
        import_weights(as_read(log_std), linear)["params"]["std"], [2.718282, 2.718282], rtol=1e-6
    )
    lone = {"actor.1.running_mean": np.zeros(3), "actor.9.bias": np.zeros(3), "actor.6.weight": np.zeros(()), "x": 1}
    with pytest.raises(TorchFileError) as caught:
        import_weights(as_read(model | lone), policy)
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == list(lone)
