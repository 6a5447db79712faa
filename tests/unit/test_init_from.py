"""``runner.init_from``: a new run starts from the policy of another, once."""

import json
import shutil

import jax
import numpy as np
import pytest
from commands import log, settings, write
from tiny import make_state

from strl_jax import train
from strl_jax.builders.stored import read_policy
from strl_jax.config import load
from strl_jax.run_folder import run_dir
from strl_jax.run_folder.reader import KINDS
from strl_jax.runners import launch, loading
from strl_jax.runners.on_policy import OnPolicyRunner

SMALL = {"actor": ["position"], "critic": ["position", "goal"]}
LARGE = {"actor": ["goal", "position"], "critic": ["position", "goal"]}


def config(folder, groups: dict, **runner):
    """A config file; learning is slow enough for the weights to stay where they came from."""
    values = settings(folder / "logs", **runner)
    values["env"]["groups"] = groups
    values["algorithm"] |= {"schedule": "fixed", "learning_rate": 1e-6}
    return write(folder / "config.yaml", values)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A run whose actor sees the position alone; its best weights are not its last, and none are those of a start."""
    folder = tmp_path_factory.mktemp("source")
    values, _ = load(config(folder, SMALL))
    runner = OnPolicyRunner(None, values)
    runner.open(run_dir.create(folder / "run", values))
    runner.train_state, runner.rollout_state = runner.fresh_states(False)
    sharding = runner.train_state.iteration.sharding
    for kind, seed in {"last": 5, "best": 6}.items():
        runner.train_state = jax.device_put(make_state(runner.algorithm, seed), sharding)
        runner.save(kind)
    runner.close()
    return runner.log_dir


def call(capsys, *arguments) -> tuple[int, list[str], list[str]]:
    """Exit code of the command, the lines on stderr, and those on stdout."""
    code = train.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.err.splitlines(), captured.out.splitlines()


def kernel(run, kinds=KINDS) -> np.ndarray:
    """The actor's first kernel in a checkpoint."""
    return read_policy(run, kinds)[1]["params"]["actor"]["layer_0"]["kernel"]


NEW = "warning: actor: component goal (2) is new, its weights are 0"


@pytest.mark.slow
def test_a_run_starts_from_another_and_goes_on_alone(source, tmp_path, capsys):
    origin = tmp_path / "origin"
    shutil.copytree(source, origin)
    before, run = kernel(origin), tmp_path / "run"
    file = config(tmp_path, LARGE, init_from=str(origin), max_iterations=1)
    code, err, out = call(capsys, "--config", file, "--log-dir", run)
    assert (code, err) == (0, [])
    assert out.count(NEW) == 1
    assert [line["iteration"] for line in log(run)] == [1]
    assert json.loads((run / "config.json").read_text())["runner"]["init_from"] == str(origin)
    # goal has the rows 0 and 1, position the row 2; two minibatches are two steps of Adam, each of at most 1e-6
    first = kernel(run)
    assert 0.0 < np.abs(first[:2]).max() < 2.1e-6
    assert 0.0 < np.abs(first[2] - before[0]).max() < 2.1e-6
    assert np.abs(before).min() > 1e-3

    shutil.rmtree(origin)  # a resumed run does not read it again
    code, err, out = call(capsys, "--resume", run, "runner.max_iterations=2")
    assert (code, err) == (0, [])
    assert NEW not in out
    assert [line["iteration"] for line in log(run)] == [1, 2]
    assert 0.0 < np.abs(kernel(run) - first).max() < 2.1e-6


def test_the_best_policy_is_taken_and_a_damaged_one_passed_over(source, tmp_path, capsys):
    origin = tmp_path / "origin"
    shutil.copytree(source, origin)
    kernels = {kind: kernel(origin, (kind,)) for kind in ("best", "last")}
    assert (kernels["best"] != kernels["last"]).all()
    runner = OnPolicyRunner(None, load(config(tmp_path, SMALL, init_from=str(origin)))[0])

    def start() -> int:
        loading.check_start(runner.config)
        assert loading.start(runner, runner.config.runner.init_from, False) == []
        return 0

    def started() -> np.ndarray:
        return np.asarray(runner.train_state.params["policy"]["params"]["actor"]["layer_0"]["kernel"])

    assert (launch.guarded(start, ""), capsys.readouterr().err) == (0, "")
    np.testing.assert_array_equal(started(), kernels["best"])
    (origin / "checkpoints/best/0/record/metadata").unlink()
    warning = f"warning: {origin}/checkpoints/best/0: damaged: record/metadata is missing; skipped\n"
    assert (launch.guarded(start, ""), capsys.readouterr().err) == (0, warning)  # once, though it is read twice
    np.testing.assert_array_equal(started(), kernels["last"])
    runner.close()


@pytest.mark.parametrize(
    ("runner", "expected"),
    [
        ({"ckpt_manipulator": "grow"}, "runner.ckpt_manipulator: 'grow' is not allowed; it must be by_component or an"),
        (
            {"ckpt_manipulator": "nowhere:grow"},
            "runner.ckpt_manipulator: 'nowhere:grow' cannot be imported: ",
        ),
        ({"ckpt_manipulator": "commands:HERE"}, "runner.ckpt_manipulator: 'commands:HERE' is "),
        ({"ckpt_manipulator": "json:loads"}, "runner.ckpt_manipulator: loads "),  # fails after the folder is made
        ({"init_from": "{folder}/absent"}, "{folder}/absent: there is no such folder"),
        (
            {"init_from": "{folder}/damaged"},
            "{folder}/damaged/checkpoints/last/0: damaged: train/manifest",
        ),
    ],
)
def test_what_no_run_starts_from(runner, expected, source, tmp_path, capsys):
    shutil.copytree(source, tmp_path / "damaged")
    shutil.rmtree(tmp_path / "damaged" / "checkpoints" / "best")
    shutil.rmtree(tmp_path / "damaged" / "checkpoints" / "last" / "0" / "train")
    runner = {key: value.format(folder=tmp_path) for key, value in runner.items()}
    file = config(tmp_path, LARGE, **{"init_from": str(source), "max_iterations": 1, **runner})
    code, err, out = call(capsys, "--config", file, "--log-dir", tmp_path / "run")
    assert (code, len(err)) == (2, 1), err
    assert err[0].startswith("error: ")
    assert expected.format(folder=tmp_path) in err[0]
    assert [line for line in out if line.startswith("it ")] == []
    assert not (tmp_path / "run").exists()
