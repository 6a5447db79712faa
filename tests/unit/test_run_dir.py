"""Run folders: named by experiment and date, whole or not there, never twice the same."""

import json
import os
import time

import pytest
import yaml
from commands import settings

from strl_jax.config import ConfigError, from_dict, to_dict
from strl_jax.runners import run_dir


@pytest.fixture
def config(tmp_path):
    return from_dict(settings(tmp_path / "logs", experiment_name="walk"))[0]


def test_name(config, tmp_path):
    stamp = time.mktime((2026, 3, 1, 14, 5, 9, 0, 0, -1))
    assert run_dir.name(config, stamp) == tmp_path / "logs" / "walk" / "2026-03-01_14-05-09"
    named, _ = from_dict(settings(tmp_path, run_name="wide"))
    assert run_dir.name(named, stamp) == tmp_path / "default" / "2026-03-01_14-05-09_wide"


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
    with pytest.raises(ConfigError, match=r"file/run: cannot be made: .*runner\.log_root or --log-dir"):
        run_dir.create(tmp_path / "file" / "run", config)
    with pytest.raises(ConfigError, match="cannot be made: File name too long"):
        run_dir.create(tmp_path / ("x" * 300), config)
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("missing", ["config.yaml", "config.json"])
def test_what_is_no_run_folder(missing, config, tmp_path):
    path = run_dir.create(tmp_path / "run", config)
    (path / missing).unlink()
    with pytest.raises(ConfigError, match=f"^--resume: {path} is no run folder: it has no {missing}$"):
        run_dir.read_config(path)


def test_damaged_config(config, tmp_path):
    path = run_dir.create(tmp_path / "run", config)
    (path / "config.yaml").write_text("env: [")
    with pytest.raises(ConfigError, match=r"config\.yaml, line 1: not valid YAML"):
        run_dir.read_config(path)
