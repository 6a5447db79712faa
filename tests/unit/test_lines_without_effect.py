"""Lines of keys without effect in commands and experiments: each once, none for a default."""

import contextlib
import io
from pathlib import Path

import effects_bases
import pytest
import yaml
from commands import call, settings, write
from effects import ONE, lines

from strl_jax import train
from strl_jax.builders.effects.loading import without_effect_in_load
from strl_jax.builders.effects.rules import without_effect
from strl_jax.config import ConfigError, from_dict, load, to_dict
from strl_jax.envs import probe
from strl_jax.runners.on_policy import OnPolicyRunner

EXPERIMENTS = sorted((Path(__file__).parents[2] / "experiments").glob("*.yaml"))


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_experiments_have_no_key_without_effect(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs" / "teacher").mkdir(parents=True)  # a run folder of a teacher
    config, found = load(path)
    assert found + without_effect(config) == []


def test_a_stored_config_lists_all_defaults_without_a_line():
    config, _ = from_dict(effects_bases.BASES["plain"])
    again, found = from_dict(to_dict(config))
    assert found + without_effect(again) == []


def test_the_name_of_all_compat_keys_gives_no_line():
    assert lines(effects_bases.BASES["plain"] | {"compat": "st_rl"}) == []


def test_the_command_prints_each_line_once(tmp_path, capsys):
    data = settings(tmp_path / "logs", ckpt_manipulator="effects:lines") | {"device": "cpu"}
    path = write(tmp_path / "config.yaml", data)
    overrides = ["runner.max_iterations=1", "policy.amp_discriminator={input_dim: 3}", "device=gpu"]
    with pytest.raises(ConfigError):
        load(path, overrides)  # the policy has no discriminator
    code, found = call(capsys, lambda argv: _quiet(train.main, argv), "--config", path, overrides[0], "device=gpu")
    assert code == 0
    keys = [line.removeprefix("warning: ").split(":")[0] for line in found if line.startswith("warning: ")]
    assert keys == ["device", "runner.ckpt_manipulator"]
    (run,) = (tmp_path / "logs" / "default").iterdir()
    code, found = call(capsys, lambda argv: _quiet(train.main, argv), "--resume", run, "runner.max_iterations=2")
    assert code == 0
    assert [line for line in found if "ckpt_manipulator" in line] == [line for line in found if "warning" in line]
    assert len([line for line in found if "warning" in line]) == 1


def test_keys_of_the_start_have_no_effect_in_a_resume(tmp_path, capsys):
    path = write(tmp_path / "config.yaml", settings(tmp_path / "logs", max_iterations=1))
    assert call(capsys, lambda argv: _quiet(train.main, argv), "--config", path) == (0, [])
    (run,) = (tmp_path / "logs" / "default").iterdir()
    overrides = ["runner.max_iterations=2", "policy.init_noise_std=0.5", "runner.run_name=x", "seed=4"]
    for expected in (["runner.run_name", "policy.init_noise_std"], []):
        code, found = call(capsys, lambda argv: _quiet(train.main, argv), "--resume", run, *overrides)
        assert code == 0
        notes = [line.removeprefix("note: ") for line in found if "no effect" in line]
        assert [line.split(":")[0] for line in notes] == expected
        overrides = ["runner.max_iterations=3"]  # the overrides are in the config of the run now


def test_load_does_not_use_the_keys_of_a_start(tmp_path):
    given = settings(tmp_path, init_from=str(tmp_path / "run"), ckpt_manipulator="effects:lines")
    config, _ = from_dict(given)
    found = without_effect_in_load(config)
    assert [line.split(":")[0] for line in found] == ["runner.init_from", "runner.ckpt_manipulator"]
    assert without_effect_in_load(from_dict(settings(tmp_path))[0]) == []


def _quiet(main, argv) -> int:
    """``main`` without its stdout."""
    with contextlib.redirect_stdout(io.StringIO()):
        return main(argv)


def test_print_config_prints_the_lines(tmp_path, capsys):
    path = write(tmp_path / "config.yaml", settings(tmp_path, ckpt_manipulator="a.b:c"))
    assert train.main(["--config", str(path), "--print-config"]) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith("warning: runner.ckpt_manipulator: no effect; ")
    assert yaml.safe_load(captured.out)["runner"]["ckpt_manipulator"] == "a.b:c"


def test_a_runner_with_an_environment_does_not_use_its_arguments(tmp_path):
    config, _ = from_dict({"env": {"name": "probe:action", "num_envs": 4, "kwargs": {"target": 0.1}}})
    with pytest.warns(UserWarning, match=r"^env\.kwargs: no effect; "):
        OnPolicyRunner(probe.make("action"), config, mesh=ONE).close()
