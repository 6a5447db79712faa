"""Environments by the names of a config."""

import math
import re
import subprocess
import sys

import pytest

from strl_jax.builders import environment
from strl_jax.config import Config, ConfigError, EnvConfig, from_dict, to_dict
from strl_jax.envs.brax import BraxEnv
from strl_jax.envs.probe import Action, TwoGroups

MODULE = """
from strl_jax.envs.probe import Action

number = 3

def make_env(target=0.25):
    return Action(target=target)

def make_nothing():
    return object()

def make_any(**kwargs):
    return Action()

def make_failing():
    return 1 + "a"

def make_careful(target):
    raise ValueError("no target\\nof this kind")
"""


@pytest.fixture
def my_module(tmp_path, monkeypatch):
    (tmp_path / "my_envs.py").write_text(MODULE)
    (tmp_path / "needs_more.py").write_text("import not_installed_anywhere")
    (tmp_path / "unfinished.py").write_text("def make_env(:")
    (tmp_path / "misspelt.py").write_text("\nnumber = nubmer")
    monkeypatch.syspath_prepend(tmp_path)
    yield "my_envs"
    sys.modules.pop("my_envs", None)


def make(**sections) -> Config:
    return from_dict({"env": {"name": "probe:two_groups", "num_envs": 8}, **sections})[0]


def test_probe():
    assert environment.make_env(EnvConfig(name="probe:action", kwargs={"target": 0.75})) == Action(target=0.75)


@pytest.mark.parametrize("name", ["brax:inverted_pendulum:spring", "brax:inverted_pendulum"])
def test_brax(name):
    env = environment.make_env(EnvConfig(name=name))
    assert isinstance(env, BraxEnv)
    assert env.action_size == 1


def test_brax_is_imported_without_a_word():
    """mujoco.mjx prints what it lacks when it is first imported."""
    code = (
        "from strl_jax.builders.environment import make_env\n"
        "from strl_jax.config import EnvConfig\n"
        "make_env(EnvConfig(name='brax:fast:none'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == ""
    assert "unknown Brax backend 'none'" in done.stderr


@pytest.mark.parametrize("name", ["legged:flat", "brax:fast", "playground:CheetahRun"])
def test_an_opengl_library_that_is_not_installed_is_one_line(monkeypatch, name):
    """Importing MuJoCo loads the library of MUJOCO_GL."""
    monkeypatch.setitem(sys.modules, "mujoco", None)
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    with pytest.raises(
        ConfigError, match=r"^MUJOCO_GL=osmesa: MuJoCo cannot be imported: .*; unset it, or .*libosmesa6$"
    ):
        environment.make_env(EnvConfig(name=name))
    monkeypatch.delenv("MUJOCO_GL")
    with pytest.raises(ImportError):
        environment.make_env(EnvConfig(name=name))


def test_a_config_is_filled_with_a_robots_defaults():
    config = make(env={"name": "legged:rough", "kwargs": {"sim": {"iterations": 2}, "camera": {}}})
    found = environment.filled(config)
    kwargs = found.env.kwargs
    assert kwargs["sim"] == {"dt": 0.005, "iterations": 2, "ls_iterations": 8}
    assert kwargs["control"]["action_scale"] == 0.25
    assert kwargs["commands"]["ranges"]["lin_vel_x"] == [-1.0, 1.0]
    assert kwargs["terrain"]["mesh_type"] == "heightfield"
    assert kwargs["camera"]["height"] == 24
    assert environment.filled(from_dict(to_dict(found))[0]) == found
    other = make()
    assert environment.filled(other) is other


def test_import_path(my_module):
    env = environment.make_env(EnvConfig(name=f"{my_module}:make_env", kwargs={"target": 2.0}))
    assert env.target == 2.0
    assert environment.make_env(EnvConfig(name=f"{my_module}:make_any", kwargs={"x": 1})) == Action()


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("ant", "must be brax:NAME:BACKEND, legged:NAME, playground:NAME, probe:NAME or package.module:callable"),
        ("brax:", "must be brax:NAME:BACKEND, "),
        ("brax:antt:mjx", "unknown Brax environment 'antt'; known: .*; nearest is ant$"),
        ("brax:ant:mjc", "unknown Brax backend 'mjc'; known: mjx, .*; nearest is mjx$"),
        ("brax:fast:spring", "Brax environment 'fast' on 'spring' d"),
        ("probe:actin", "unknown probe environment 'actin'; known: .*; nearest is action$"),
        ("builtins:dict", "must be brax:NAME:BACKEND, "),  # a class without a signature
        # import paths
        ("my_env:make_env", "cannot be imported: .*No module named 'my_env'; it must be brax:NAME:BACKEND, "),
        (".:f", "cannot be imported: "),
        (":f", "cannot be imported: "),
        ("needs_more:f", r"cannot be imported: .*No module named 'not_installed_anywhere' \(.*needs_more.py:1\)"),
        ("unfinished:f", "cannot be imported: SyntaxError: invalid syntax"),
        ("misspelt:f", "cannot be imported: NameError: name 'nubmer' is not defined"),
        ("my_envs:make_evn", "my_envs has no make_evn; nearest is make_env"),
        ("my_envs:number", "is 3; it must be a function or a class"),
    ],
)
def test_no_such_environment(my_module, name, allowed):
    with pytest.raises(ConfigError, match=f"^env.name: '{re.escape(name)}' .*{allowed}") as caught:
        environment.make_env(EnvConfig(name=name))
    assert len(caught.value.lines) == 1


@pytest.mark.parametrize(
    ("name", "kwargs", "allowed"),
    [
        ("brax:ant:spring", {"colour": 1}, "colour"),
        ("brax:ant:spring", {"backend": "mjx"}, "multiple values"),
        ("brax:ant:spring", {"components": 3}, "components are 3"),
        ("probe:action", {"goal": 1}, "has no option"),
        ("probe:constant", {"name": "x"}, "multiple values"),
        ("probe:nan", {"probability": "a"}, "finite number"),
        ("probe:action", {"target": True}, "finite number"),
        ("probe:action", {"target": math.nan}, "finite number"),
        ("my_envs:make_env", {"x": 1}, "does not fit my_envs:make_env: got an unexpected keyword"),
    ],
)
def test_keywords_of_an_environment(my_module, name, kwargs, allowed):
    with pytest.raises(ConfigError) as caught:
        environment.make_env(EnvConfig(name=name, kwargs=kwargs))
    assert len(caught.value.lines) == 1
    assert str(caught.value).startswith(f"env.kwargs: {kwargs} ")
    assert allowed in str(caught.value)


def test_a_function_that_fails(my_module):
    with pytest.raises(ConfigError, match=r"^env\.name: my_envs:make_failing fails: TypeError: unsupported operand"):
        environment.make_env(EnvConfig(name="my_envs:make_failing"))
    with pytest.raises(ConfigError, match=r"^env\.name: my_envs:make_careful with {'target': 1} fails: ValueError"):
        environment.make_env(EnvConfig(name="my_envs:make_careful", kwargs={"target": 1}))


def test_what_is_no_environment(my_module):
    config = make(env={"name": "my_envs:make_nothing"})
    with pytest.raises(ConfigError) as caught:
        environment.make_episode_env(config, environment.make_env(config.env))
    message = str(caught.value)
    assert message.startswith("env.name: my_envs:make_nothing gives object; it has no reset, step, ")
    for name in ("merge", "finite", "simulator", "evaluated", "scores", "observation_shapes", "action_size", "dt"):
        assert f"{name}, " in message
    assert message.endswith("episode_length; it must be a strl_jax.envs.base.Env")


def test_an_environment_that_fails_in_a_step():
    class Failing(Action):
        def step(self, state, action):
            return state.replace(obs=state.obs["stat"])

    with pytest.raises(ConfigError) as caught:
        environment.make_episode_env(make(), Failing())
    expected = (
        r"env\.name: probe:two_groups gives Failing, whose functions fail: KeyError: 'stat' \(.*environments\.py:\d+\)"
    )
    assert re.fullmatch(expected, str(caught.value))


def test_a_fault_inside_the_environment_says_where(tmp_path, monkeypatch):
    (tmp_path / "broken_envs.py").write_text("def make_env():\n    return 1 + 'a'\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=rf"unsupported operand .* \({tmp_path}/broken_envs\.py:2\)$") as caught:
        environment.make_env(EnvConfig(name="broken_envs:make_env"))
    assert isinstance(caught.value.__cause__, TypeError)  # its traceback is there for who calls this from Python


@pytest.mark.parametrize(("given", "expected"), [(None, 10), (3, 3)])
def test_episode_length(given, expected):
    config = make(env={"name": "probe:two_groups", "episode_length": given, "pool_fraction": 0.5})
    env = environment.make_episode_env(config, TwoGroups())
    assert env.episode_length == expected
    assert env.pool_fraction == 0.5
