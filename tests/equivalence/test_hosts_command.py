"""The command on two hosts, played by two processes: bit for bit the run of one process with two devices."""

import os
import re
import signal
import socket

import pytest
from commands import finish, log, run, settings, start, untimed, write

from strl_jax.run_folder.checkpoints import Checkpointer

pytestmark = pytest.mark.slow  # four processes that compile


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("hosts")


@pytest.fixture(scope="module")
def config(folder):
    return write(folder / "config.yaml", settings(folder / "logs", num_steps_per_env=2, eval_interval=2))


def on_two(folder, *arguments) -> list:
    """The command in two processes with a device each."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    flags = ["--coordinator", f"localhost:{port}", "--num-processes", 2, "--process-id"]
    return [start(*arguments, *flags, process) for process in range(2)]


def finish_both(processes) -> list[tuple[int, str, str]]:
    try:
        return [finish(process) for process in processes]
    finally:
        for process in processes:
            process.kill()


@pytest.fixture(scope="module")
def two(folder, config):
    """Stopped by a signal to the second process."""
    processes = on_two(folder, "--config", config, "runner.max_iterations=1000000")
    try:
        assert any(line.startswith("it 1/1000000 ") for line in iter(processes[0].stdout.readline, ""))
        processes[1].send_signal(signal.SIGTERM)
    finally:
        results = finish_both(processes)
    assert [code for code, _, _ in results] == [0, 0], results
    (run_dir,) = (folder / "logs" / "default").iterdir()
    assert re.search(f"stopped by a signal to another process and saved; .*--resume {run_dir}\\n", results[0][1])
    assert "iterations" not in results[1][1]
    return run_dir


def test_stop_of_one_is_a_stop_of_both(two):
    lines = log(two)
    assert [line["iteration"] for line in lines] == list(range(1, len(lines) + 1))
    assert Checkpointer(two).latest("last") == len(lines)


def test_resumed_by_two_it_is_the_run_of_one(two, folder, config):
    end = f"runner.max_iterations={len(log(two)) + 3}"
    results = finish_both(on_two(folder, "--resume", two, end))
    assert [code for code, _, _ in results] == [0, 0], results
    path = folder / "one"
    code, _, err = run("--config", config, "--log-dir", path, end, devices=2)
    assert code == 0, err
    assert untimed(log(two)) == untimed(log(path))
    assert len({line["Loss/value_loss"] for line in log(path)}) == len(log(path))
    assert os.listdir(folder / "logs" / "default") == [two.name]
