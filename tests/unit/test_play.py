"""The play command: numbers equal to the runner's, one line per fault, complete files or none."""

import json
import re
import shutil
import sys
from pathlib import Path

import jax
import pytest
import saved_runs
import yaml
from commands import fails, settings
from PIL import Image
from tiny import make_state

from strl_jax import play
from strl_jax.builders import environment
from strl_jax.config import ConfigError, from_dict
from strl_jax.run_folder import run_dir
from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.sharding import make_mesh
from strl_jax.viewer import load, outputs, video

ONE = make_mesh(jax.devices()[:1])
ENVS = 6


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder of a recurrent policy with a ``last`` and a ``numbered`` checkpoint of other weights."""
    return saved_runs.recurrent(tmp_path_factory.mktemp("run"), ("last", "numbered"), num_eval_envs=ENVS)


def test_numbers_are_those_of_the_runner(run, tmp_path, capsys):
    file = tmp_path / "numbers.json"
    assert play.main([str(run), "--num-envs", str(ENVS), "--out", str(file)]) == 0
    found = json.loads(file.read_text())
    evaluation = found.pop("evaluation")
    assert found == {
        "run_dir": str(run),
        "checkpoint": "last",
        "iteration": 10,
        "env": "commands:Walk",
        "seed": 3,
        "num_envs": ENVS,
        "command": None,
    }
    config, _ = run_dir.read_config(run)
    runner = OnPolicyRunner(None, config, mesh=ONE)
    runner.train_state, runner.progress.iteration = make_state(runner.algorithm, 0), 10
    expected = runner.evaluation()
    runner.close()
    assert {f"Eval/{name}" for name in evaluation} == set(expected)
    assert evaluation == pytest.approx({name.removeprefix("Eval/"): x for name, x in expected.items()}, rel=1e-6)
    assert 0 < evaluation["metric/tracking_error"] < 2

    captured = capsys.readouterr()
    assert captured.err == "note: there is no best checkpoint; this is the last one\n"
    lines = captured.out.splitlines()
    assert lines[0] == f"last checkpoint of iteration 10, {ENVS} episodes, seed 3"
    assert any(line.startswith("tracking_error ") for line in lines)  # of a point on a line: no velocity
    assert lines[-1] == str(file)
    (returns,) = [line.split() for line in lines if line.startswith("return")]
    assert float(returns[1]) == pytest.approx(evaluation["mean_return"], rel=1e-3)
    assert any(re.fullmatch(r"survival +100\.0% *", line) for line in lines)
    assert [path.name for path in tmp_path.iterdir()] == ["numbers.json"]


def numbers(run, tmp_path, *arguments) -> dict:
    """Numbers that the command writes with ``--out``."""
    file = tmp_path / "numbers.json"
    assert play.main([*map(str, (run, "--num-envs", ENVS, "--out", file)), *arguments]) == 0
    return json.loads(file.read_text())


def test_seed_checkpoint_and_overrides_count(run, tmp_path):
    first = numbers(run, tmp_path)
    other = numbers(run, tmp_path, "--seed", "4")
    assert (other["seed"], other["iteration"]) == (4, 10)
    assert other["evaluation"]["mean_return"] != first["evaluation"]["mean_return"]
    numbered = numbers(run, tmp_path, "--iteration", "11")
    assert (numbered["checkpoint"], numbered["iteration"]) == ("numbered", 11)
    assert numbers(run, tmp_path, "--checkpoint", "numbered")["evaluation"] == numbered["evaluation"]
    shorter = numbers(run, tmp_path, "env.episode_length=2")
    assert shorter["evaluation"]["mean_length"] == 2.0 < first["evaluation"]["mean_length"]


def test_a_damaged_checkpoint_is_passed_over(run, tmp_path, capsys):
    """With a warning. If it is requested explicitly, it is an error."""
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run/checkpoints/last/10/record/metadata").write_text("{}")
    played = numbers(tmp_path / "run", tmp_path)
    assert (played["checkpoint"], played["iteration"]) == ("numbered", 11)
    warning, note = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"warning: .*last/10: damaged: record/metadata: meta or leaves are missing; skipped", warning)
    assert note == "note: there is no best checkpoint; this is the numbered one"
    expected = r".*last/10: damaged: record/metadata: meta or leaves are missing"
    assert re.fullmatch(expected, fails(capsys, play.main, tmp_path / "run", "--checkpoint", "last"))


def test_a_run_that_is_still_training(run, tmp_path, monkeypatch):
    """While the environment is built it saves a new checkpoint and deletes the old one."""
    shutil.copytree(run, tmp_path / "run")
    make_env = environment.make_env

    def late(config):
        (tmp_path / "run/checkpoints/last/10").rename(tmp_path / "run/checkpoints/last/15")
        return make_env(config)

    monkeypatch.setattr(environment, "make_env", late)
    assert numbers(tmp_path / "run", tmp_path, "--checkpoint", "last")["iteration"] == 15


def test_a_mapping_changes_only_what_it_names(tmp_path):
    data = settings(tmp_path)
    data["env"]["kwargs"] = {"sim": {"iterations": 1, "dt": 0.004}, "noise": {"add_noise": True}}
    run_dir.write_config(tmp_path, from_dict(data)[0])
    override = "env.kwargs={sim: {iterations: 4}, commands: {ranges: {lin_vel_x: [-1.5, 1e-3]}}, camera: {}, x: 'no'}"
    config, lines = load.read_config(tmp_path, [override, "seed=9"])
    assert lines == []
    assert config.seed == 9
    assert config.env.kwargs == {
        "sim": {"iterations": 4, "dt": 0.004},
        "noise": {"add_noise": True},
        "commands": {"ranges": {"lin_vel_x": [-1.5, 1e-3]}},
        "camera": {},
        "x": "no",
    }


FAULTS = {
    "two numbers": (["--command", "1,0"], r"--command: '1,0' is not allowed; it must be three finite numbers"),
    "nan": (["--command", "-1,nan,0"], r"--command: '-1,nan,0' is not allowed; it must be three finite numbers"),
    "words": (["--command", "a,b,c"], r"--command: 'a,b,c' is not allowed"),
    "no robots": (["--num-envs", "0"], r"--num-envs: '0' is not allowed; it must be an integer from 1 to 2147483646"),
    "too many robots": (["--num-envs", "9" * 20], r"--num-envs: '9{20}' is not allowed; it must be an integer from 1 "),
    "seed": (["--seed", "-1"], r"--seed: '-1' is not allowed|expected one argument"),
    "unknown kind": (["--checkpoint", "newest"], r"--checkpoint: invalid choice: 'newest'"),
    "no such checkpoint": (["--checkpoint", "best"], r"no best checkpoint; existing checkpoints: last 10; numbered 11"),
    "no such iteration": (
        ["--iteration", "12"],
        r"no checkpoint of iteration 12; existing checkpoints: last 10; numbered 11",
    ),
    "no command": (["--command", "-1,0,0"], r"--command: commands:Walk has no commands; .*legged"),
    "no table": (["--table"], r"--table: commands:Walk has no commands; .*legged"),
    "nothing to film": (["--video", "{out}/x.mp4"], r"--video: commands:Walk has no robot to show"),
    "nothing to see": (["--html", "{out}/x.html"], r"--html: commands:Walk has no robot to show"),
    "other ending": (["--video", "{out}/x.avi"], r"--video: .*/x\.avi must end in \.mp4"),
    "no folder": (["--plot", "{out}/no/x.png"], r"--plot: .* cannot be written: there is no folder .*/no"),
    "the run's own": (["--out", "{run}/config.json"], r"--out: .* cannot be written: it is a file of the run"),
    "large seed": (["--seed", "4294967296"], r"--seed: .* it must be an integer from 0 to 4294967295"),
    "a folder": (["--out", "{out}/full.json"], r"--out: .* cannot be written: it is a folder"),
    "an override": (["env.num_envs=none"], r"env\.num_envs"),
    "no override": (["env.name"], r"override 'env\.name': it must be section\.key=VALUE"),
}


@pytest.fixture
def out(tmp_path) -> Path:
    (tmp_path / "out" / "full.json").mkdir(parents=True)
    return tmp_path / "out"


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_one_line(fault, run, out, capsys):
    arguments, expected = FAULTS[fault]
    assert re.search(
        expected, fails(capsys, play.main, run, *(argument.format(out=out, run=run) for argument in arguments))
    )
    assert [path.name for path in out.iterdir()] == ["full.json"]


def test_a_run_must_be_named(capsys):
    assert fails(capsys, play.main) == "the following arguments are required: RUN_DIR"


def test_folder_that_is_no_run(out, capsys):
    assert fails(capsys, play.main, out) == f"{out} is not a run folder: it has no config.yaml"
    assert fails(capsys, play.main, out / "no") == f"{out / 'no'} is not a run folder: it has no config.yaml"


def test_run_without_checkpoints(tmp_path, capsys):
    run_dir.write_config(tmp_path, from_dict(settings(tmp_path))[0])
    assert fails(capsys, play.main, tmp_path) == f"{tmp_path}: no checkpoint; existing checkpoints: none"


def test_policy_of_other_observations_is_refused(run, tmp_path, capsys):
    for name in ("config.yaml", "config.json"):
        (tmp_path / name).write_text((run / name).read_text())
    (tmp_path / "checkpoints").symlink_to(run / "checkpoints")
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["env"]["groups"]["actor"] = ["goal"]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    assert re.search("actor", fails(capsys, play.main, tmp_path))


def test_packages_that_are_missing(run, out, capsys, monkeypatch):
    for option, package in {"--plot {}.png": "matplotlib", "--video {}.mp4": "av"}.items():
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)  # what Python does for a package that cannot be imported
            line = fails(capsys, play.main, run, *option.format(out / "x").split())
        assert line == f"{option.split()[0]} needs the package {package}: pip install 'strl_jax[play]'"


def test_missing_opengl_names_what_to_install(monkeypatch):
    class Done:
        returncode, stderr = 1, "Traceback ...\nAttributeError: no GL\n"

    asked = []
    monkeypatch.setattr(video, "_run", lambda name: asked.append(name) or Done)
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    with pytest.raises(
        ConfigError, match=r"\(egl: AttributeError: no GL; osmesa: .*\); it needs libegl1 .* libosmesa6"
    ):
        video.find_gl()
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    with pytest.raises(ConfigError, match=r"here with MUJOCO_GL=osmesa \(osmesa: AttributeError: no GL\)"):
        video.find_gl()
    assert asked == ["egl", "osmesa", "osmesa"]


def test_plot_of_an_environment_without_record(run, out):
    assert play.main([str(run), "--num-envs", "2", "--plot", str(out / "x.png")]) == 0
    assert Image.open(out / "x.png").width == 15 * 120  # inches, dots per inch
    assert sorted(path.name for path in out.iterdir()) == ["full.json", "x.png"]


def test_files_are_complete_or_unchanged(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("as it was")

    def half(temporary):
        temporary.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        outputs.write(path, half)
    assert path.read_text() == "as it was"
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]
    outputs.write(path, lambda temporary: temporary.write_text("new"))
    assert path.read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_interrupted(run, capsys, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(play, "_play", stop)
    assert play.main([str(run)]) == 130
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: interrupted")
