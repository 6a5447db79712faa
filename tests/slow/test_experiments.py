"""Every config in experiments/ trains, made small."""

from pathlib import Path

import pytest
import yaml
from commands import finish, log, start

OTHER_ROBOTS = ("go2_flat", "g1_flat")  # their files are not part of this library
FILES = sorted((Path(__file__).parents[2] / "experiments").glob("*.yaml"))
EXPERIMENTS = [path for path in FILES if path.stem not in OTHER_ROBOTS]
SMALL = [
    "env.num_envs=8",
    "runner.num_steps_per_env=4",
    "runner.max_iterations=2",
    "runner.eval_interval=2",
    "runner.num_eval_envs=4",
    "runner.time_split=false",
    "env.episode_length=20",
]


def test_there_are_experiments():
    assert "quickstart.yaml" in [path.name for path in EXPERIMENTS]


def teachers(path: Path) -> list[Path]:
    """The config of the teacher that a config names as the run ``logs/NAME``, if it does."""
    section = yaml.safe_load(path.read_text())["algorithm"].get("teacher_policy", {})
    return [path.with_name(f"{Path(value).name}.yaml") for value in section.values()]


def trained(*arguments) -> tuple[int, str, str]:
    """The command's exit code and output; a simulator can take minutes to compile."""
    return finish(start(*arguments), seconds=900.0)


@pytest.mark.slow
@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_experiment_trains(path, tmp_path):
    if yaml.safe_load(path.read_text())["env"]["name"].startswith("playground:"):
        pytest.importorskip("mujoco_playground")
    taught = []
    for teacher in teachers(path):
        code, _, err = trained("--config", teacher, "--log-dir", tmp_path / "teacher", *SMALL)
        assert code == 0, err
        taught = [f"algorithm.teacher_policy.teacher_ac_path={tmp_path / 'teacher'}"]
    code, out, err = trained("--config", path, "--log-dir", tmp_path / "run", *SMALL, *taught)
    assert code == 0, err
    assert f"results: {tmp_path / 'run'}" in out
    lines = log(tmp_path / "run")
    assert [line["iteration"] for line in lines] == [1, 2]
    for line in lines:
        assert line["Train/invalid_steps"] == 0
        assert all(line[name] is not None for name in line if name.startswith("Loss/"))
    assert lines[1]["Eval/mean_length"] > 0
