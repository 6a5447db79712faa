"""A run that is stopped and continued in another process is bit for bit the run that was not."""

import re
import shutil
import signal

import jax
import pytest
from commands import finish, log, run, same, settings, start, untimed, write

from strl_jax import train
from strl_jax.run_folder.checkpoints import Checkpointer
from strl_jax.run_folder.run_dir import read_config
from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.sharding import make_mesh

LONG = "runner.max_iterations=1000000"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("resume")


@pytest.fixture(scope="module")
def config(folder):
    return write(folder / "config.yaml", settings(folder, eval_interval=2, last_interval=2))


@pytest.fixture(scope="module")
def stopped(folder, config):
    """A long run stopped by SIGTERM once it has written some lines."""
    path = folder / "stopped"
    process = start("--config", config, "--log-dir", path, LONG)
    lines = iter(process.stdout.readline, "")
    assert next(lines) == "compiling\n"
    assert next(lines).startswith("it 1/1000000 ")
    process.send_signal(signal.SIGTERM)
    code, out, err = finish(process)
    assert code == 0, err
    iteration = log(path)[-1]["iteration"]
    assert re.search(f"stopped by SIGTERM and saved; .*--resume {path}\\n", out)
    assert f"\n{iteration} iteration{'s' * (iteration > 1)}, {16 * iteration:,} env steps" in out
    assert err.startswith("SIGTERM: stops after this iteration")
    assert Checkpointer(path).latest("last") == iteration
    return path


@pytest.fixture(scope="module")
def end(stopped):
    """The iteration up to which both runs go: some more than the stopped one has."""
    return log(stopped)[-1]["iteration"] + 3


@pytest.fixture(scope="module")
def straight(folder, config, end, stopped):
    path = folder / "straight"
    code, out, err = run("--config", config, "--log-dir", path, f"runner.max_iterations={end}")
    assert (code, err) == (0, ""), err
    assert f"results: {path}" in out
    return path


@pytest.fixture(scope="module")
def resumed(folder, end, stopped):
    path = folder / "resumed"
    shutil.copytree(stopped, path)
    code, out, err = run("--resume", path, f"runner.max_iterations={end}")
    assert (code, err) == (0, ""), err
    assert f"{end} iterations" in out
    return path


def load(path):
    """States and progress of a run, and the lines that ``load`` gives."""
    config, _ = read_config(path)
    runner = OnPolicyRunner(None, config, None, mesh=make_mesh(jax.devices()[:1]))
    lines = runner.load(path)
    runner.close()
    return runner, lines


def test_resumed_run_is_the_straight_run(straight, resumed, end):
    (one, notes), (other, _) = load(straight), load(resumed)
    assert notes == []
    assert one.progress.iteration == other.progress.iteration == end
    assert same(one.train_state, other.train_state)
    assert same(one.rollout_state, other.rollout_state)
    for name in ("env_steps", "best_score", "evaluation"):
        assert getattr(one.progress, name) == getattr(other.progress, name)
    assert one.progress.rewards.state() == other.progress.rewards.state()
    assert one.progress.lengths.state() == other.progress.lengths.state()


def test_resumed_log_is_the_straight_log(straight, resumed, stopped, end):
    lines = untimed(log(straight))
    assert untimed(log(resumed)) == lines
    assert [line["iteration"] for line in lines] == list(range(1, end + 1))
    assert untimed(log(stopped)) == lines[:-3]


def test_wall_clock_goes_on(resumed):
    clock = [line["Train/wall_clock"] for line in log(resumed)]
    assert clock == sorted(clock)
    assert all(clock)


def test_training_was_worth_comparing(straight, end):
    """Statistics, learning rate and episodes all moved."""
    runner, _ = load(straight)
    lines = log(straight)
    assert len({line["Loss/learning_rate"] for line in lines}) > 1
    assert sum(line["Train/finished_episodes"] for line in lines) > end
    counts = [float(stats.count) for stats in runner.train_state.stats["actor"].values()]
    assert counts == [16.0 * end] * 2
    assert float(runner.train_state.stats["reward"].count) > 0


def test_another_number_of_devices_says_so(folder, stopped, end, capsys):
    """Here there are four; see conftest.py."""
    path = folder / "wider"
    shutil.copytree(stopped, path)
    assert train.main(["--resume", str(path), f"runner.max_iterations={end}"]) == 0
    captured = capsys.readouterr()
    assert captured.err == "note: saved on 1 shards, resumed on 4: not reproducible bit for bit\n"
    assert f"\n{end} iterations" in captured.out
    assert [line["iteration"] for line in log(path)] == list(range(1, end + 1))


def test_finished_run_has_nothing_to_do(resumed, end, capsys):
    before = (resumed / "metrics.jsonl").read_text()
    assert train.main(["--resume", str(resumed), f"runner.max_iterations={end}"]) == 0
    captured = capsys.readouterr()
    assert f"{end} iterations" in captured.out
    note = f"note: nothing was trained: {end} iterations are done, runner.max_iterations is {end}"
    assert note in captured.err.splitlines()
    assert (resumed / "metrics.jsonl").read_text() == before


@pytest.fixture(scope="module")
def never(folder, config):
    """The run that two signals ended while it compiled, and its exit code."""
    process = start("--config", config, "--log-dir", folder / "never", cache=folder / "empty")
    try:
        while not (folder / "never" / "metrics.jsonl").exists():  # opened before the compiler is waited for
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline().startswith("SIGINT: stops after this iteration")
        process.send_signal(signal.SIGINT)
        code = process.wait(10)
    finally:
        finish(process)
    return folder / "never", code


@pytest.mark.slow
def test_second_signal_ends_a_compilation(never):
    assert never[1] == 128 + signal.SIGINT


def test_run_stopped_before_its_first_checkpoint_starts_again(never, capsys):
    never, _ = never
    assert train.main(["--resume", str(never), "runner.max_iterations=1", "runner.eval_interval=0"]) == 0
    *warnings, note = capsys.readouterr().err.splitlines()
    assert [line.split(":")[:2] for line in warnings] == [["warning", " runner.num_eval_envs"]]  # eval_interval is 0
    assert re.fullmatch("note: .*no checkpoint.*starts from the beginning", note)
    assert [line["iteration"] for line in log(never)] == [1]
