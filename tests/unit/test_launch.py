"""Common parts of the commands: arguments, several hosts, compilation cache."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import jax
import pytest

from strl_jax.config import ConfigError
from strl_jax.run_folder.errors import CheckpointError
from strl_jax.runners import launch, stop
from strl_jax.sharding import make_mesh


@pytest.fixture
def parser():
    parser = launch.Parser(prog="x")
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--config")
    launch.add_arguments(parser)
    return parser


@pytest.fixture
def joined(monkeypatch):
    """Calls of ``jax.distributed.initialize``."""
    calls = []
    monkeypatch.setattr(jax.distributed, "initialize", lambda *arguments: calls.append(arguments))
    return calls


def test_overrides_between_options(parser):
    found = parser.parse(["a=1", "--config", "f", "b=2", "--process-id", "3", "c=4"])
    assert (found.overrides, found.config, found.process_id) == (["a=1", "b=2", "c=4"], "f", 3)


def test_fault_is_one_line_without_usage(parser, capsys):
    with pytest.raises(SystemExit) as stop:
        parser.parse(["--conf=f"])
    assert stop.value.code == 2
    assert capsys.readouterr().err == "error: unrecognized arguments: --conf=f\n"


def test_every_line_is_marked(capsys):
    launch.print_lines("warning", ValueError("one\ntwo"))
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "warning: one\nwarning: two\n")


def raises(error: BaseException):
    raise error


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ConfigError("a", "b"), 2, "error: a\nerror: b\n"),
        (CheckpointError("no space"), 2, "error: no space\n"),
        (OSError(28, "No space left on device", "run/file"), 2, "error: run/file: No space left on device\n"),
        (
            jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 7 bytes\nmore"),
            2,
            "error: out of memory: RESOURCE_EXHAUSTED: Out of memory allocating 7 bytes; "
            "fewer env.num_envs or smaller buffers need less memory\n",
        ),
        (OSError("it is gone"), 2, "error: it is gone\n"),
        (KeyboardInterrupt(), 130, "error: interrupted early\n"),
    ],
)
def test_an_expected_error_is_one_line(error, code, line, capsys):
    assert launch.guarded(lambda: raises(error), "interrupted early") == code
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", line)


def test_a_working_directory_that_was_deleted(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    assert launch.guarded(lambda: 0, "") == 2
    assert "working directory" in capsys.readouterr().err
    tmp_path.mkdir()


def test_a_fault_of_the_code_keeps_its_traceback():
    for error in (ZeroDivisionError(), jax.errors.JaxRuntimeError("INTERNAL: wrong memory_kind")):
        with pytest.raises(type(error)):
            launch.guarded(lambda error=error: raises(error), "")


def test_python_warnings_are_printed_without_their_source(capsys):
    shown = warnings.showwarning
    assert launch.guarded(lambda: warnings.warn("last/4: damaged; skipped", stacklevel=1) or 3, "") == 3
    assert capsys.readouterr().err == "warning: last/4: damaged; skipped\n"
    assert warnings.showwarning is shown


@pytest.mark.slow
def test_output_whose_reader_has_left():
    """As in ``| head -1``."""
    code = "import sys; from strl_jax.runners import launch; sys.exit(launch.guarded(lambda: print('a') or 0, ''))"
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")  # 128 + SIGPIPE


def test_one_process_joins_no_other(parser, joined):
    launch.initialize(parser.parse([]))
    assert joined == []


def test_processes_join(parser, joined):
    launch.initialize(parser.parse(["--coordinator", "a:1", "--num-processes", "2", "--process-id", "1"]))
    launch.initialize(parser.parse(["--distributed"]))
    assert joined == [("a:1", 2, 1), ()]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--coordinator", "a:1"], "--num-processes, --process-id: missing; "),
        (["--distributed", "--process-id", "0"], "--coordinator, --num-processes: missing; "),
        (["--coordinator", "a:1", "--num-processes", "0", "--process-id", "0"], "--num-processes: 0 .*>= 1"),
        (
            ["--coordinator", "nohost", "--num-processes", "2", "--process-id", "1"],
            "--coordinator: 'nohost' .*HOST:PORT",
        ),
        (["--coordinator", ":12", "--num-processes", "2", "--process-id", "1"], "--coordinator: ':12' .*HOST:PORT"),
        (["--coordinator", "a:x1", "--num-processes", "2", "--process-id", "1"], "--coordinator: 'a:x1' .*HOST:PORT"),
        (["--coordinator", "a:1", "--num-processes", "2", "--process-id", "-1"], r"--process-id: -1 .*in 0\.\.1"),
    ],
)
def test_flags_that_do_not_fit(given, message, parser, joined):
    with pytest.raises(ConfigError, match=message):
        launch.initialize(parser.parse(given))
    assert joined == []


def test_processes_that_cannot_be_joined(parser, monkeypatch):
    monkeypatch.setattr(jax.distributed, "initialize", lambda *_: raises(ValueError("coordinator_address?\nmore")))
    with pytest.raises(ConfigError, match=r"^--distributed: the other processes .* joined: coordinator_address\?$"):
        launch.initialize(parser.parse(["--distributed"]))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (AssertionError(), r"^JAX_PLATFORMS=([a-z,]+): JAX finds no device; is the jaxlib for \1 installed\?$"),
        (RuntimeError("Unknown backend\nmore"), "^JAX_PLATFORMS=[a-z,]+: JAX finds no device: Unknown backend$"),
    ],
)
def test_no_device(error, expected, parser, monkeypatch):
    monkeypatch.setattr(jax, "devices", lambda: raises(error))
    with pytest.raises(ConfigError, match=expected):
        launch.initialize(parser.parse([]))


def test_compilation_cache(monkeypatch, tmp_path):
    before = jax.config.jax_compilation_cache_dir
    try:
        for given, expected in (("mine", str(Path.cwd() / "mine")), ("gs://bucket/x", "gs://bucket/x")):
            jax.config.update("jax_compilation_cache_dir", given)
            launch.use_compilation_cache()
            assert jax.config.jax_compilation_cache_dir == expected
        jax.config.update("jax_compilation_cache_dir", None)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        launch.use_compilation_cache()
        assert jax.config.jax_compilation_cache_dir == str(tmp_path / "strl_jax" / "xla")
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


def test_one_process_has_its_own_path_and_vote():
    assert launch.path_of_process_0(Path("here")) == Path("here")
    vote = stop.StopVote(make_mesh(jax.devices()[:2]))
    assert vote.cast("SIGTERM") is None
    vote.read(None)
    assert vote.result(None) is None
    assert vote.result("SIGTERM") == "SIGTERM"


def test_vote_of_several_processes(monkeypatch):
    """As process 0 of two sees it; the votes of both are in one array."""
    vote = stop.StopVote(make_mesh(jax.devices()[:2]))
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    vote.read(vote.cast(None))
    assert vote.result("SIGINT") is None  # not yet: the other process must receive it
    vote.read(vote.cast("SIGINT"))
    vote.read(vote.cast(None))
    assert vote.result("SIGINT") == "SIGINT"
    assert vote.result(None) == "a signal to another process"


def test_a_pipe_that_is_closed_under_rich():
    """rich turns a broken pipe into an exit with code 1."""
    code = (
        "import sys; from rich.console import Console; from strl_jax.runners import launch\n"
        "sys.exit(launch.guarded(lambda: [Console().print('x' * 80) for _ in range(9999)] or 0, ''))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141
