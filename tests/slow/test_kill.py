"""``kill -9`` at any moment leaves a run that resumes and ends as if nothing had happened."""

import random
import time

import pytest
from commands import finish, log, run, settings, start, untimed, write

from strl_jax.run_folder.checkpoints import Checkpointer

KILLS = 20


@pytest.mark.slow
def test_run_survives_twenty_kills(tmp_path):
    config = write(
        tmp_path / "config.yaml",
        settings(tmp_path, max_iterations=1_000_000, eval_interval=5, last_interval=1, save_interval=7),
    )
    path, cache = tmp_path / "run", tmp_path / "cache"
    rng, reached = random.Random(0), []
    for kill in range(KILLS):
        process = start(*_arguments(path, config), cache=cache)
        if kill % 2:  # while it trains and saves
            _wait_for_more(process, path, reached[-1])
            time.sleep(rng.uniform(0.0, 3.0))
        else:  # while it starts, reads and compiles
            time.sleep(rng.uniform(0.0, 12.0))
        assert process.poll() is None, finish(process)
        process.kill()
        finish(process)
        reached.append(_saved(path))
    print("saved after each kill:", reached)
    assert reached == sorted(reached)
    assert reached[-1] > 5

    end = f"runner.max_iterations={reached[-1] + 3}"
    code, out, err = run(*_arguments(path, config), end, cache=cache)
    assert code == 0, err
    assert f"\n{reached[-1] + 3} iterations" in out
    code, _, err = run("--config", config, "--log-dir", tmp_path / "straight", end, cache=tmp_path / "other")
    assert code == 0, err
    assert [line["iteration"] for line in log(path)] == list(range(1, reached[-1] + 4))
    assert untimed(log(path)) == untimed(log(tmp_path / "straight"))


def _arguments(path, config) -> list:
    begun = (path / "config.yaml").exists()
    return ["--resume", path] if begun else ["--config", config, "--log-dir", path]


def _saved(path) -> int:
    return Checkpointer(path).latest("last") or 0


def _wait_for_more(process, path, reached: int) -> None:
    """Until a further checkpoint is there."""
    deadline = time.monotonic() + 300
    while _saved(path) <= reached and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
