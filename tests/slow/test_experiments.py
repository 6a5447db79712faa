"""Every config in experiments/ trains, made small."""

from pathlib import Path

import pytest
from commands import log, run

EXPERIMENTS = sorted((Path(__file__).parents[2] / "experiments").glob("*.yaml"))
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


@pytest.mark.slow
@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_experiment_trains(path, tmp_path):
    code, out, err = run("--config", path, "--log-dir", tmp_path / "run", *SMALL, cache=tmp_path / "cache")
    assert code == 0, err
    assert f"results: {tmp_path / 'run'}" in out
    lines = log(tmp_path / "run")
    assert [line["iteration"] for line in lines] == [1, 2]
    for line in lines:
        assert line["Train/invalid_steps"] == 0
        assert all(line[name] is not None for name in line if name.startswith("Loss/"))
    assert lines[1]["Eval/mean_length"] > 0
