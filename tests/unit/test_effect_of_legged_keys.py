"""Every key of a legged environment has an effect, on its programs or on the models of robot and ground in them.

The fast test replaces MJX by a few lines, because tracing MJX takes seconds; a slow test traces all of it.
"""

import dataclasses
import hashlib
import re
from functools import cached_property
from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from effects import changed, leaves, lines
from effects_legged import BASES, CASES, NO_EFFECT, REFUSED
from jaxprs import Program, differing

from strl_jax.builders.environment import legged_config
from strl_jax.config import EnvConfig
from strl_jax.envs import legged
from strl_jax.envs.base import carried
from strl_jax.envs.legged.config import LeggedConfig
from strl_jax.envs.legged.env import LeggedEnv
from strl_jax.envs.legged.physics import Motion, Physics, Places

KEYS = set(leaves(LeggedConfig))


def make(name: str, kwargs: dict) -> LeggedEnv:
    return LeggedEnv(legged_config(EnvConfig(name=name, kwargs=kwargs)))


def stand(self, joints, yaw, xy=None):
    qpos = jnp.concatenate([jnp.zeros(2) if xy is None else xy, yaw[None], jnp.zeros(4), joints])
    feet = jnp.zeros((len(self.robot.feet), 3))
    return Motion(qpos, jnp.zeros(len(joints) + 6), jnp.zeros(len(joints) + 6)), feet, feet[:, 0] > 0


def advance(self, motion, variation, action, last_action):
    force = jnp.zeros((len(self.robot.feet), 3))
    return motion, self.torque(motion, variation, action) + last_action, force


def places(self, motion):
    feet = jnp.zeros((len(self.robot.feet), 3)) + motion.qpos[0]
    touching = jnp.zeros(len(self.robot.penalized), bool)
    return Places(feet, feet[:, 0] > 0, touching, motion.qpos[0] > 0)


@pytest.fixture
def no_mjx(monkeypatch):
    """Physics of a few operations."""
    for function in (stand, advance, places):
        monkeypatch.setattr(Physics, function.__name__, function)


def models(env: LeggedEnv) -> str:
    """Digest of everything that is built from the config before the programs: robot, ground, steps."""
    digest = hashlib.sha256(repr((env.dt, env.episode_length, env.observation_shapes, env.physics.level_feet)).encode())
    buffer = np.zeros(mujoco.mj_sizeModel(env.robot.model), np.uint8)
    mujoco.mj_saveModel(env.robot.model, None, buffer)
    digest.update(buffer)
    parts = {name: value for name, value in vars(env.robot).items() if name != "model"}
    parts |= {} if env.terrain is None else vars(env.terrain)
    for name, value in parts.items():
        digest.update(f"{name} {value!r}".encode() if name == "kinds" else _bytes(value))
    return digest.hexdigest()


def _bytes(value) -> bytes:
    if isinstance(value, dict):
        return _bytes((*value, *value.values()))
    if isinstance(value, tuple | list):
        return b"".join(map(_bytes, value))
    if dataclasses.is_dataclass(value):
        return _bytes(vars(value))
    array = np.ascontiguousarray(value)
    assert array.dtype != object, f"give this function the bytes of {type(value)}"  # they would be an address
    return array.tobytes()


class Programs:
    """Traced programs of an environment: a reset, a step, and the start of new episodes after it."""

    def __init__(self, env: LeggedEnv):
        self._env = env

    @cached_property
    def reset(self) -> Program:
        return Program(jax.jit(self._env.reset).trace(jax.random.split(jax.random.key(0), 2)))

    @cached_property
    def step(self) -> Program:
        action = jax.ShapeDtypeStruct((2, self._env.action_size), jnp.float32)
        return Program(jax.jit(self._env.step).trace(self._start, action))

    @cached_property
    def merge(self) -> Program:
        after = jax.eval_shape(carried, self.step.out_info)
        return Program(jax.jit(self._env.merge).trace(jax.ShapeDtypeStruct((2,), bool), self._start, after))

    @cached_property
    def _start(self):
        return jax.eval_shape(carried, self.reset.out_info)


def differ(one: Programs, other: Programs) -> bool:
    """Whether a program differs."""
    return differing((getattr(one, name), getattr(other, name)) for name in ("reset", "step", "merge")) is not None


@pytest.fixture(scope="module")
def cache():
    """Base -> environment and traced programs without MJX."""
    return {}


@pytest.fixture
def base(cache, no_mjx):
    def of(name: str):
        if name not in cache:
            env = make(*BASES[name])
            cache[name] = env, Programs(env)
        return cache[name]

    return of


def test_every_key_has_a_case():
    missing, stale = KEYS - {*CASES}, {*CASES} - KEYS
    assert not missing, f"give tests/effects_legged.py a config in which these keys have an effect: {sorted(missing)}"
    assert not stale, f"tests/effects_legged.py has keys that the environment does not have: {sorted(stale)}"


@pytest.fixture(scope="module")
def other_values(tmp_path_factory):
    """Key -> name of the environment, and its arguments with another value of the key."""
    file = tmp_path_factory.mktemp("robot") / "robot.xml"
    text = (Path(legged.__file__).parent / "quadruped.xml").read_text()
    file.write_text(re.sub(r'mass="([\d.]+)"', r'mass="1\1"', text, count=1))
    values = CASES | {"robot.path": (CASES["robot.path"][0], str(file))}
    return {key: (BASES[name][0], changed(BASES[name][1], key, value)) for key, (name, value) in values.items()}


@pytest.mark.parametrize("key", CASES)
def test_another_value_has_an_effect(key, base, other_values):
    name, value = CASES[key]
    env_name, data = other_values[key]
    env, programs = base(name)
    if key in REFUSED:
        with pytest.raises(ValueError, match=key):
            make(env_name, data)
        return
    other = make(env_name, data)
    assert lines({"env": {"name": env_name, "kwargs": data}}) == []
    assert models(env) != models(other) or differ(programs, Programs(other)), f"{key}: {value} changes nothing"


@pytest.mark.parametrize("name", BASES)
def test_base_configs_have_no_key_without_effect(name, base):
    env_name, kwargs = BASES[name]
    assert lines({"env": {"name": env_name, "kwargs": kwargs}}) == []
    env, _ = base(name)
    assert models(env) == models(make(env_name, kwargs))


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "flat")) for name in BASES])
def test_the_same_config_gives_the_same_programs(name, base):
    _, programs = base(name)
    assert not differ(programs, Programs(make(*BASES[name])))


@pytest.mark.parametrize(("name", "changes", "groups", "keys"), NO_EFFECT.values(), ids=NO_EFFECT)
def test_keys_without_effect(name, changes, groups, keys):
    env_name, kwargs = BASES[name]
    for key, value in changes.items():
        kwargs = changed(kwargs, key, value)
    env = {"name": env_name, "groups": groups}
    assert lines({"env": env | {"kwargs": kwargs}}) == []
    for key in keys:
        data = changed(kwargs, key, CASES[key][1])
        found = lines({"env": env | {"kwargs": data}})
        assert [line.split(": no effect; ")[0] for line in found] == [f"env.kwargs.{key}"]


@pytest.mark.slow  # minutes: every environment is traced with MJX
def test_models_have_an_effect_on_the_programs(other_values):
    """The keys whose effect the fast test sees in the models only."""
    programs, only_models = {name: Programs(make(*BASES[name])) for name in BASES}, []
    envs = {name: make(*BASES[name]) for name in BASES}
    for key, (name, value) in CASES.items():
        if key in REFUSED:
            continue
        other = make(*other_values[key])
        if models(envs[name]) != models(other):
            only_models.append(key)
            assert differ(programs[name], Programs(other)), f"{key}: {value} changes nothing"
    assert len(only_models) > 20


@pytest.mark.parametrize(("section", "value"), [("noise", {"noise_level": 0.5}), ("camera", {"height": 3})])
def test_a_section_that_no_network_observes(section, value):
    env = {"name": "legged:flat", "groups": {"actor": ["contact"], "critic": ["contact"]}}
    (line,) = lines({"env": env | {"kwargs": {section: value}}})
    assert line.startswith(f"env.kwargs.{section}: no effect; ")
