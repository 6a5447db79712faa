"""Commands whose surroundings are unusual: settings of JAX, a working directory that changes, a damaged cache."""

import os
import subprocess
from pathlib import Path

import jax
import pytest
from commands import Walk, fails, run, settings, write

from strl_jax import bench, play, train
from strl_jax.config import ConfigError, from_dict
from strl_jax.interop import export
from strl_jax.run_folder import run_dir
from strl_jax.run_folder.checkpoints import Checkpointer
from strl_jax.runners import compilation_cache
from strl_jax.runners.on_policy import OnPolicyRunner


class Mover(Walk):
    """Changes the working directory when it is made, and when its reset is traced."""

    def __init__(self):
        os.chdir("/")

    def reset(self, key):
        os.chdir("/usr")
        return super().reset(key)


@pytest.fixture(params=["jax_debug_nans", "jax_enable_x64", "jax_disable_jit"])
def setting(request):
    """The name of a setting of JAX, which is on."""
    jax.config.update(request.param, True)
    yield request.param.upper()
    jax.config.update(request.param, False)


def test_settings_of_jax_that_cannot_work(setting, tmp_path, capsys):
    config = from_dict(settings(tmp_path / "logs"))[0]
    file, folder = (
        write(tmp_path / "config.yaml", settings(tmp_path / "logs")),
        run_dir.create(tmp_path / "run", config),
    )
    for command, *arguments in (
        (train.main, "--config", file),
        (train.main, "--resume", folder),
        (play.main, folder),
        (export.main, folder, "--onnx", tmp_path / "policy.onnx"),
        (bench.main, "--config", file, "--out", tmp_path / "bench.json"),
    ):
        assert fails(capsys, command, *arguments).startswith(f"{setting}: True is not allowed: ")
    with pytest.raises(ConfigError, match=f"^{setting}: True is not allowed: "):
        OnPolicyRunner(None, config)
    assert {path.name for path in tmp_path.iterdir()} == {"config.yaml", "run"}


def test_an_environment_that_changes_the_working_directory(tmp_path, monkeypatch, capsys):
    """All paths are relative; the second run starts from the first."""
    config = settings(Path("logs"), eval_interval=0, max_iterations=1, git_repos=["robot"])
    config["env"]["name"] = f"{__name__}:Mover"
    write(tmp_path / "config.yaml", config)
    subprocess.run(["git", "init", "-q", tmp_path / "robot"], check=True)
    for command, arguments in (
        (train.main, "--config config.yaml --log-dir first"),
        (train.main, "--config config.yaml --log-dir second runner.init_from=first"),
        (train.main, "--resume second runner.max_iterations=2"),
        (train.main, "--config config.yaml"),
        (play.main, "second --num-envs 4 --out play.json"),
        (export.main, "second --stablehlo policy.bin"),
        (bench.main, "--config config.yaml --repeats 1 --warmup 0"),
    ):
        monkeypatch.chdir(tmp_path)
        assert command(arguments.split()) == 0, capsys.readouterr().err
        assert os.getcwd() in ("/", "/usr")
    for name, last in (("first", 1), ("second", 2)):
        assert Checkpointer(tmp_path / name).latest("last") == last
        assert (tmp_path / name / "git" / "robot.diff").is_file()
    assert len(list(tmp_path.glob("logs/default/*/checkpoints/last/1"))) == 1
    files = {
        "bench.json",
        "config.yaml",
        "first",
        "logs",
        "play.json",
        "policy.bin",
        "policy.bin.json",
        "robot",
        "second",
    }
    assert {path.name for path in tmp_path.iterdir()} == files


def test_a_runner_makes_the_path_of_its_folder_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = OnPolicyRunner(Mover(), from_dict(settings(Path("logs")))[0], "run")  # the environment moves at once
    assert made.log_dir == Path("/run")
    made.close()
    monkeypatch.chdir(tmp_path)
    config = settings(Path("logs"))
    config["env"]["name"] = f"{__name__}:Mover"
    made = OnPolicyRunner(None, from_dict(config)[0], "run")
    assert made.log_dir == tmp_path / "run"
    made.close()


def test_a_damaged_entry_of_the_compilation_cache_is_deleted(tmp_path, monkeypatch):
    before = jax.config.jax_compilation_cache_dir
    for name in ("jit_step-ab-cache", "jit_steps-ab-cache", "jit_init-ab-cache"):
        (tmp_path / name).touch()
    text = "Error reading persistent compilation cache entry for 'jit_step': ZstdError: cut short"
    try:
        jax.config.update("jax_compilation_cache_dir", str(tmp_path))
        assert compilation_cache.repaired("another warning") == "another warning"
        assert "jit_step is damaged" in compilation_cache.repaired(text)
        assert compilation_cache.repaired(text) == text  # nothing is left to repair
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
    assert {path.name for path in tmp_path.iterdir()} == {"jit_steps-ab-cache", "jit_init-ab-cache"}


@pytest.mark.slow
def test_a_cache_with_damaged_entries_warns_once(tmp_path):
    config, cache = write(tmp_path / "config.yaml", settings(tmp_path / "logs", eval_interval=0)), tmp_path / "cache"
    errors = []
    for count in range(3):
        code, _, err = run("--config", config, "--log-dir", tmp_path / str(count), cache=cache)
        assert code == 0, err
        errors.append(err)
        if count == 0:
            for path in cache.glob("jit_step-*-cache"):
                path.write_bytes(path.read_bytes()[:1000])
    assert errors[0] == errors[2] == ""
    assert errors[1].startswith(f"warning: {cache}: the cached program jit_step is damaged")
    assert len(errors[1].splitlines()) == 1
