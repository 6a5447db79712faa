"""Commands that a signal ends at any moment, imports included, and commands whose output is closed."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest
from commands import HERE, finish, settings, start, write

from strl_jax.run_folder.checkpoints import Checkpointer

STOPS = ": stops after this iteration; a second signal exits at once"


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("config")
    return write(folder / "config.yaml", settings(folder / "logs", eval_interval=0, max_iterations=3))


def send(delay: float, number: int, *arguments) -> tuple[int, str, str]:
    process = start(*arguments)
    time.sleep(delay)
    process.send_signal(number)
    return finish(process, 60)


@pytest.mark.parametrize("module", ["train", "play", "bench", "interop.export", "interop.torch_checkpoint"])
def test_a_signal_while_a_command_is_imported(module):
    """The command imports JAX first, which takes seconds; here the import waits for the signal."""
    code = f"""
import runpy, sys, time
class Wait:
    def find_spec(self, name, *rest):
        if name == "jax":
            print("importing", flush=True)
            time.sleep(60)
sys.meta_path.insert(0, Wait())
sys.argv = ["-m"]
sys.orig_argv = [sys.executable, "-m", "strl_jax.{module}"]
runpy.run_module("strl_jax.{module}", run_name="__main__", alter_sys=True)
"""
    for number in (signal.SIGINT, signal.SIGTERM):
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout.readline() == "importing\n", process.stderr.read()
            process.send_signal(number)
            assert process.wait(10) == 128 + number
            assert process.stderr.read() == f"error: interrupted by {signal.Signals(number).name}\n"
        finally:
            process.kill()
            process.communicate()


def test_a_library_import_leaves_signals_alone():
    """Also in a program that starts with ``python -m``."""
    code = """
import signal, sys
before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
sys.argv, sys.orig_argv = ["-m", "strl_jax.train"], [sys.executable, "-m", "mine.main", "strl_jax.train"]
import strl_jax
assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
assert "jax" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_any_moment(number, config, tmp_path):
    """One line and the exit code of the signal before and after the training; in it, the run is saved.

    Before the package is imported, Python itself handles the signals; when the interpreter is ending, the system.
    """
    rng, most, results = random.Random(number), 8.0, []
    for count in range(12):
        path = tmp_path / str(count)
        code, out, err = send(0.5 + most * (count + rng.random()) / 12, number, "--config", config, "--log-dir", path)
        results.append((code, err))
        assert len(err.splitlines()) <= 1, err
        if code == 0 and err:
            assert err == f"{signal.Signals(number).name}{STOPS}\n"
            assert "and saved" in out or "3 iterations" in out
            assert Checkpointer(path).latest("last") is not None
        elif code == -number:  # the interpreter was ending
            assert err == ""
            assert f"results: {path}\n" in out
        elif code:
            assert code == 128 + number
            assert err.startswith("error: interrupted")
            assert not path.exists() or Checkpointer(path).latest("last") == 3
    print(results)
    assert any(code == 128 + number for code, _ in results)


def test_hangup_saves(config, tmp_path):
    process = start("--config", config, "--log-dir", tmp_path / "run", "runner.max_iterations=1000000")
    assert any(line.startswith("it 1/1000000 ") for line in iter(process.stdout.readline, ""))
    process.send_signal(signal.SIGHUP)
    code, out, err = finish(process)
    assert (code, err) == (0, f"SIGHUP{STOPS}\n")
    assert "stopped by SIGHUP and saved" in out
    assert Checkpointer(tmp_path / "run").latest("last") > 0


def shell(text: str, *arguments) -> tuple[int, str, str]:
    """A command of bash; ``train`` in it is the command."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
    train = f"{sys.executable} -m strl_jax.train {' '.join(map(str, arguments))}"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", text.replace("train", train)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("text", "out", "reason"),
    [
        ("train | head -1", "compiling\n", "Broken pipe"),
        ("train >&- 2>&- <&-", "", None),
        pytest.param("train >&-", "", None, marks=SLOW),
        pytest.param("train 2>&1 | head -1", "compiling\n", None, marks=SLOW),
        pytest.param("train >/dev/full", "", "No space left on device", marks=SLOW),
    ],
)
def test_output_that_is_lost_does_not_stop_a_run(text, out, reason, config, tmp_path):
    err = f"note: stdout is lost ({reason}); the command goes on without it\n" if reason else ""
    assert shell(text, "--config", config, "--log-dir", tmp_path / "run") == (0, out, err)
    assert Checkpointer(tmp_path / "run").latest("last") == 3


def test_output_that_is_the_only_result(config):
    code, out, err = shell("train --print-config | head -1", "--config", config)
    assert (out, err) == ("seed: 3\n", "")
    assert code in (0, 141)  # 141 if head ends first
