"""``python -m strl_jax.bench``: what it writes, and bad input."""

import errno
import json
import os
import re

import jax
import pytest
from commands import fails, settings, write

from strl_jax import bench
from strl_jax.run_folder import atomic


@pytest.fixture
def config(tmp_path):
    return write(tmp_path / "config.yaml", settings(tmp_path / "logs", num_steps_per_env=2))


def test_numbers(config, tmp_path, capsys):
    out = tmp_path / "bench.json"
    assert bench.main(["--config", str(config), "--repeats", "2", "--warmup", "1", "--out", str(out)]) == 0
    result = json.loads(out.read_text())
    devices, seconds = jax.device_count(), result["seconds"]
    assert result["devices"] == devices == 4
    assert result["env_steps_per_iteration"] == 8  # 4 environments x 2 steps
    assert seconds.keys() == {"fused", "collect", "update", "physics_only"}
    assert min(seconds.values()) > 0
    for name in ("fused", "collect", "physics_only"):
        assert result["steps_per_second"][name] == pytest.approx(8 / seconds[name])
        assert result["steps_per_second_per_device"][name] == pytest.approx(8 / seconds[name] / 4)
    assert result["fraction_of_physics_only"] == pytest.approx(seconds["physics_only"] / seconds["fused"])
    assert result["compile_seconds"].keys() == {"init", "step"}
    assert 0 < result["time_to_first_iteration"] < result["time_to_first_steady_iteration"]
    assert result["versions"]["jax"] == jax.__version__
    assert result["versions"]["platform"] == "cpu"
    assert result["config"]["env"]["name"] == "commands:Walk"
    printed = capsys.readouterr().out
    assert f"written: {out}" in printed
    assert "fraction_of_physics_only" in printed
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--out", "{}/none/bench.json"], r"--out: .*/none/bench\.json: there is no folder .*/none"),
        (["--out", "{}"], r"--out: .* cannot be written"),
        (["env.num_env=8"], r"env\.num_env: unknown key; nearest is num_envs"),
        (["env.num_envs=6"], r"env\.num_envs: 6 does not divide over 4 devices"),
        (["--repeats", "0"], r"--repeats must be >= 1"),
        (["--warmup", "many"], r"--warmup: invalid int value: 'many'"),
    ],
)
def test_fault_is_one_line(arguments, expected, config, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(bench, "measure", lambda *_: pytest.fail("it measures"))
    try:
        code = bench.main(["--config", str(config), *(text.format(tmp_path) for text in arguments)])
    except SystemExit as stop:  # argparse
        code = stop.code
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, "")
    assert re.fullmatch(f"error: .*{expected}.*\n", captured.err)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_result_that_cannot_be_written(call, config, tmp_path, capsys, monkeypatch):
    """The error names the file, not the temporary one, and the old result stays."""
    out = tmp_path / "bench.json"
    out.write_text("old")

    def fail(*names):
        raise OSError(errno.ENOSPC, "No space left on device", *(str(name) for name in names if call == "replace"))

    monkeypatch.setattr(bench, "measure", lambda *_: {})
    monkeypatch.setattr(atomic.os, call, fail)
    assert fails(capsys, bench.main, "--config", config, "--out", out) == f"{out}: No space left on device"
    assert out.read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"bench.json", "config.yaml"}


def test_a_result_for_a_link_and_for_a_terminal(config, tmp_path, capsys, monkeypatch):
    """A link stays a link, a device is not replaced by a file."""
    monkeypatch.setattr(bench, "measure", lambda *_: {"devices": 4})
    (tmp_path / "link.json").symlink_to(tmp_path / "target.json")
    assert bench.main(["--config", str(config), "--out", str(tmp_path / "link.json")]) == 0
    assert json.loads((tmp_path / "target.json").read_text()) == {"devices": 4}
    assert (tmp_path / "link.json").is_symlink()
    reader, terminal = os.openpty()
    try:
        assert bench.main(["--config", str(config), "--out", os.ttyname(terminal)]) == 0
        assert b'"devices": 4' in os.read(reader, 1000)
    finally:
        os.close(reader)
        os.close(terminal)


def test_config_is_needed(capsys):
    with pytest.raises(SystemExit) as stop:
        bench.main([])
    assert stop.value.code == 2
    assert capsys.readouterr().err == "error: the following arguments are required: --config\n"


def test_interrupt_is_one_line(config, tmp_path, capsys, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "measure", interrupt)
    assert bench.main(["--config", str(config), "--out", str(tmp_path / "bench.json")]) == 130  # 128 + SIGINT
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.fullmatch("error: interrupted .*\n", captured.err)
    assert not (tmp_path / "bench.json").exists()
