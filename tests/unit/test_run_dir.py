"""Run folders: named by experiment and date, whole or not there, never twice the same."""

import errno
import json
import os
import re
import subprocess
import sys
import time

import pytest
import yaml
from commands import settings

from strl_jax.config import ConfigError, from_dict, to_dict
from strl_jax.run_folder import atomic, run_dir


@pytest.fixture
def config(tmp_path):
    return from_dict(settings(tmp_path / "logs", experiment_name="walk"))[0]


def test_name(config, tmp_path):
    path = run_dir.name(config)
    assert path.parent == tmp_path / "logs" / "walk"
    assert abs(time.time() - time.mktime(time.strptime(path.name, "%Y-%m-%d_%H-%M-%S"))) < 60
    named, _ = from_dict(settings(tmp_path, run_name="wide"))
    assert re.fullmatch(rf"{tmp_path}/default/[\d-]{{10}}_[\d-]{{8}}_wide", str(run_dir.name(named)))


def test_create_and_read(config, tmp_path):
    path = run_dir.create(tmp_path / "logs" / "run", config)
    assert path == tmp_path / "logs" / "run"
    assert yaml.safe_load((path / "config.yaml").read_text()) == to_dict(config)
    assert json.loads((path / "config.json").read_text()) == to_dict(config)
    assert os.listdir(path.parent) == ["run"]
    assert run_dir.read_config(path) == (config, [])
    changed, _ = run_dir.read_config(path, ["seed=9"])
    assert (changed.seed, changed.env) == (9, config.env)


def test_taken_names_get_a_number(config, tmp_path):
    names = [run_dir.create(tmp_path / "run", config).name for _ in range(3)]
    assert names == ["run", "run_2", "run_3"]
    (tmp_path / "run_4").mkdir()  # empty: a rename would take it over
    assert run_dir.create(tmp_path / "run", config).name == "run_5"


def test_no_place_for_a_folder(config, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file/run: cannot be created: .*runner\.log_root or --log-dir"):
        run_dir.create(tmp_path / "file" / "run", config)
    with pytest.raises(ConfigError, match="cannot be created: File name too long"):
        run_dir.create(tmp_path / ("x" * 300), config)
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("missing", ["config.yaml", "config.json"])
def test_what_is_no_run_folder(missing, config, tmp_path):
    path = run_dir.create(tmp_path / "run", config)
    (path / missing).unlink()
    with pytest.raises(ConfigError, match=f"^{path} is not a run folder: it has no {missing}$"):
        run_dir.read_config(path)


def test_damaged_config(config, tmp_path):
    path = run_dir.create(tmp_path / "run", config)
    (path / "config.yaml").write_text("env: [")
    with pytest.raises(ConfigError, match=r"config\.yaml, line 1: not valid YAML"):
        run_dir.read_config(path)


def test_a_config_cut_short_is_damaged(config, tmp_path):
    """Most of what is left is YAML, and would be filled up with defaults."""
    path = run_dir.create(tmp_path / "run", config)
    lines = (path / "config.yaml").read_text().splitlines(keepends=True)
    told = []
    for count in range(len(lines)):
        (path / "config.yaml").write_text("".join(lines[:count]))
        with pytest.raises(ConfigError, match=rf"^{path}/config\.yaml[:,] ") as caught:
            run_dir.read_config(path, ["runner.time_split=true"])
        told.append(str(caught.value).removeprefix(f"{path}/config.yaml: "))
    assert told[-1] == "incomplete: copy runner.time_split from config.json"
    assert told[lines.index("policy:\n") + 1].startswith("incomplete: copy policy, algorithm, runner from ")
    assert sum(line.startswith("incomplete: ") for line in told) == len(lines) - 1  # the first one is empty
    (path / "config.yaml").write_text("".join(lines))
    assert run_dir.read_config(path) == (config, [])


def test_a_config_changed_by_hand_is_none_cut_short(config, tmp_path):
    path = run_dir.create(tmp_path / "run", config)
    values = to_dict(config)
    values["algorithm"] |= {"learning_rate": 0.5, "schedule": "fixed"}
    values["env"] |= {"kwargs": {}, "groups": {}}
    (path / "config.yaml").write_text(yaml.safe_dump(values))
    assert run_dir.read_config(path)[0].algorithm.learning_rate == 0.5
    del values["runner"]["last_interval"]
    (path / "config.yaml").write_text(yaml.safe_dump(values))
    with pytest.raises(ConfigError, match=r"runner\.last_interval from config\.json"):
        run_dir.read_config(path)
    (path / "config.json").write_text(json.dumps(values))  # of a version that had no such key
    assert run_dir.read_config(path)[0].runner.last_interval == config.runner.last_interval


@pytest.mark.parametrize("text", ["", "[]", "3", '{"env": 7}', '{"runner": {"gone": 1}}'])
def test_a_config_json_of_nothing_or_another_version_tells_nothing(text, config, tmp_path):
    path = run_dir.create(tmp_path / "run", config)
    (path / "config.yaml").write_text("env: {name: 'commands:Walk'}")
    (path / "config.json").write_text(text)
    assert run_dir.read_config(path)[0].env.name == "commands:Walk"


def test_one_process_at_a_time(config, tmp_path):
    path = run_dir.create(tmp_path / "run", config)
    before = sorted(path.iterdir())
    with run_dir.locked(path):
        with pytest.raises(ConfigError, match=f"^run folder {path}: another process is training in it$"):
            run_dir.locked(path).__enter__()
        assert run_dir.read_config(path)[0] == config
    with run_dir.locked(path):
        assert sorted(path.iterdir()) == before


def test_the_lock_holds_without_its_file(config, tmp_path):
    path = run_dir.create(tmp_path / "run", config)
    (tmp_path / "link").symlink_to(path)
    with run_dir.locked(path):
        (path / ".lock").unlink()
        for name in (path, tmp_path / "link"):
            with pytest.raises(ConfigError, match="another process"):
                run_dir.locked(name).__enter__()


def test_a_killed_process_frees_the_folder(tmp_path):
    code = """
import sys, time
from pathlib import Path
from strl_jax.run_folder import run_dir
with run_dir.locked(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(ConfigError, match="another process"):
            run_dir.locked(tmp_path).__enter__()
        process.kill()
    with run_dir.locked(tmp_path):
        pass


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / ".lock").mkdir()  # stands for a disk that only reads
    with pytest.raises(ConfigError, match=f"^run folder {tmp_path}: cannot be written: Is a directory$"):
        run_dir.locked(tmp_path).__enter__()


def test_a_file_system_without_locks(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(run_dir.fcntl, "flock", refuse)
    with run_dir.locked(tmp_path):
        pass


def test_a_config_that_cannot_be_replaced_stays(config, tmp_path, monkeypatch):
    path = run_dir.create(tmp_path / "run", config)
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    changed, _ = run_dir.read_config(path, ["seed=9"])

    def full_disk(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full_disk)
    with pytest.raises(OSError, match=f"No space left on device: '{path}/config.yaml'"):
        run_dir.write_config(path, changed)
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


def test_a_config_json_of_garbage_is_replaced(config, tmp_path):
    path = run_dir.create(tmp_path / "run", config)
    (path / "config.json").write_bytes(b"\xff\xfe\x00")
    run_dir.write_config(path, config)
    assert json.loads((path / "config.json").read_text()) == to_dict(config)


class Robot:
    """An environment's units; actions may have one scale each."""

    def __init__(self, action_scale):
        self.action_scale, self.lin_vel_scale = action_scale, 2.0


@pytest.mark.parametrize(
    ("env", "scale", "lin_vel"),
    [
        (object(), 1.0, 1.0),
        (Robot(0.25), 0.25, 2.0),
        (Robot([0.25, 0.5]), [0.25, 0.5], 2.0),
        (Robot((0.25, 0.5)), [0.25, 0.5], 2.0),
    ],
)
def test_units_stand_in_config_json(env, scale, lin_vel, config, tmp_path):
    path = run_dir.create(tmp_path / "run", config, run_dir.units(env))
    expected = {
        "control": {"action_scale": scale},
        "normalization": {"obs_scales": {"lin_vel": lin_vel}},
    }
    assert json.loads((path / "config.json").read_text()) == to_dict(config) | expected
    assert yaml.safe_load((path / "config.yaml").read_text()) == to_dict(config)  # which a resume reads
