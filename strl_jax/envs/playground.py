"""Adapter for the environments of MuJoCo Playground, on MJX in JAX or on MuJoCo Warp.

Playground 0.2.0 requires Python >= 3.11, mujoco and mujoco-mjx >= 3.6, brax >= 0.14.2,
ml-collections and warp-lang; it sets no upper limits. Importing it downloads nothing. It contains
the files of its DeepMind Control Suite. For every other environment it clones MuJoCo Menagerie
with git into the installed package, unless the folder exists.
"""

import difflib
import math
import subprocess
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from mujoco_playground import dm_control_suite, locomotion, manipulation, registry
from mujoco_playground._src import mjx_env

from strl_jax.envs.live_leaves import LiveLeaves
from strl_jax.envs.precision import exact
from strl_jax.envs.simulator_env import SimulatorEnv, as_value_error
from strl_jax.types import Array, EnvState


class PlaygroundEnv(SimulatorEnv):
    """An environment of Playground's registry; its name in a config is ``playground:NAME``.

    A dict observation keeps its names; an array becomes the component ``state``. Actions are
    clipped to [-1, 1], as in Playground's wrapper for torch (Brax's PPO limits them with a tanh).
    ``done`` is a termination: Playground's time limit and resets are not used, so this adapter
    reports no time-out. One step of this adapter is ``action_repeat`` steps of the environment, and
    its reward is the sum of their rewards. ``episode_length`` is the config's length, counted in steps
    of the adapter. Of the state only the live leaves are kept (CartpoleBalance in JAX: 8 of 95).

    With ``warp``, JAX cannot see which leaves the functions of Warp read, so more leaves are kept (117
    of 196). The leaves that all environments share (contacts) are not kept: every step computes them
    again. All environments on a device together can have ``naconmax`` contacts; increase this number
    for many environments. Warp runs on CUDA; on a CPU it is slow.

    Args:
        name: name in Playground's registry, for example ``CheetahRun``.
        impl: ``jax`` or ``warp`` (Playground's default).
        config_overrides: values for keys of the environment's config, as nested mappings or dotted keys.

    Raises:
        SettingError: an argument is not allowed; the message begins with its name.
        ValueError: unknown name (the message lists the known ones), the files of Menagerie
            are missing, or the environment fails.
    """

    def __init__(self, name: str, impl: str = "jax", config_overrides: Mapping[str, Any] | None = None):
        known = sorted(name for suite in SUITES for name in suite.ALL_ENVS)  # at each call: users can register more
        if name not in known:
            raise ValueError(f"unknown MuJoCo Playground environment {name!r}; known: {', '.join(known)}")
        config = _config(name, impl, config_overrides)
        environment = f"MuJoCo Playground environment {name!r} on {impl!r}"
        if name not in dm_control_suite.ALL_ENVS:
            _get_menagerie()
            environment += f" with the robots of {mjx_env.MENAGERIE_PATH}"
        with as_value_error(environment):
            self._env = registry.load(name, config)
            # jit keeps the traces: several programs use the functions, and tracing MJX takes seconds.
            step = _repeated(self._env.step, config.action_repeat)
            self._reset, self._step = jax.jit(exact(self._env.reset)), jax.jit(exact(step))
            self.action_size = self._env.action_size
            self.dt = float(self._env.dt) * config.action_repeat
            self.episode_length = math.ceil(config.episode_length / config.action_repeat)
            shapes = jax.eval_shape(self._reset, jax.random.key(0))
            batch_shapes = jax.eval_shape(jax.vmap(self._reset), jax.random.split(jax.random.key(0), 2))
            self._shared = jax.tree.map(lambda one, batch: batch.shape == one.shape, shapes, batch_shapes)
            action = jax.ShapeDtypeStruct((self.action_size,), jnp.float32)
            self._leaves = LiveLeaves(self._step_with_outputs, shapes, action)
        self.observation_shapes = {key: value.shape for key, value in self._components(shapes.obs).items()}

    def step(self, state: EnvState, action: Array) -> EnvState:
        """One control step; ``action[B, A]`` is clipped to [-1, 1]."""
        full = self._leaves.unpack(state.physics, action.shape[0])
        full = jax.tree.map(lambda leaf, shared: leaf[0] if shared else leaf, full, self._shared)
        return self._to_state(jax.vmap(self._step)(full, jnp.clip(action, -1.0, 1.0)))

    @property
    def mj_model(self):
        """MuJoCo's model; ``positions`` returns its ``qpos``."""
        return self._env.mj_model

    def _motion(self, state) -> tuple[Array, Array]:
        return state.data.qpos, state.data.qvel

    def _step_with_outputs(self, state, action: Array):
        # The step gets zeros for the shared leaves: no value depends on a constant, so they are not live.
        state = jax.tree.map(lambda leaf, shared: jnp.zeros_like(leaf) if shared else leaf, state, self._shared)
        return super()._step_with_outputs(state, action)


SUITES = (dm_control_suite, locomotion, manipulation)
IMPLS = ("jax", "warp")


class SettingError(ValueError):
    """An argument of ``PlaygroundEnv`` is not allowed; the message is one line that begins with its name."""


def _config(name: str, impl: str, overrides: Mapping[str, Any] | None):
    """The environment's config with the overrides applied. Raises ``SettingError``."""
    config = registry.get_default_config(name)
    if impl not in IMPLS:
        raise SettingError(f"impl: {impl!r} is not allowed; it must be one of {', '.join(IMPLS)}")
    if "impl" in config:
        config.impl = impl
    elif impl != "jax":
        raise SettingError(f"impl: {impl!r} is not allowed; {name} runs only on jax")
    if overrides is not None and not isinstance(overrides, Mapping):
        raise SettingError(f"config_overrides: {overrides!r} is not allowed; it must be a mapping")
    for key, value in _flat(overrides or {}).items():
        _override(config, key, value)
    for key in ("action_repeat", "episode_length", "ctrl_dt", "sim_dt"):
        if not config[key] > 0:
            raise SettingError(f"config_overrides.{key}: {config[key]} is not allowed; it must be above 0")
    steps = config.ctrl_dt / config.sim_dt  # Playground rounds this number, also to 0: then nothing moves
    if round(steps) < 1 or abs(steps - round(steps)) > 1e-6 * steps:
        what = f"{config.ctrl_dt} is not allowed; it must be a multiple of sim_dt, {config.sim_dt}"
        raise SettingError(f"config_overrides.ctrl_dt: {what}")
    return config


def _override(config, key: str, value: Any) -> None:
    """Sets one dotted key of a config. The value must have the type of the old one."""
    known = _flat(config.to_dict())
    if key == "impl":
        raise SettingError("config_overrides.impl: this key is not allowed; use the argument impl")
    if key not in known:
        near = difflib.get_close_matches(key, known, n=1) or [name for name in known if name.endswith(f".{key}")]
        text = f"nearest is {near[0]}" if near else f"known are {', '.join(known)}"
        raise SettingError(f"config_overrides.{key}: unknown key; {text}")
    if key == "vision" and value:
        what = f"{value!r} is not allowed; images are not supported: the renderer needs a fixed number of environments"
        raise SettingError(f"config_overrides.vision: {what}")
    try:
        config.update_from_flattened_dict({key: value})
    except (TypeError, ValueError):
        kind = type(known[key]).__name__
        text = f"it must have the type {kind}, for example {known[key]!r}"
        raise SettingError(f"config_overrides.{key}: {value!r} is not allowed; {text}") from None


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one mapping with dotted keys."""
    flat = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _get_menagerie() -> None:
    """Runs Playground's download of the robot files. Raises ``ValueError`` if it fails."""
    try:
        mjx_env.ensure_menagerie_exists()
    except (subprocess.SubprocessError, OSError) as error:
        folder = mjx_env.MENAGERIE_PATH
        raise ValueError(
            f"its robot is in MuJoCo Menagerie, which is not in {folder} and cannot be downloaded ({error}); run: "
            f"git clone https://github.com/deepmind/mujoco_menagerie.git {folder} "
            f"&& git -C {folder} checkout {mjx_env.MENAGERIE_COMMIT_SHA}"
        ) from error


def _repeated(step: Callable, times: int) -> Callable:
    """A step that repeats ``step`` with the same action: the reward is the sum; done if one of the steps is done."""
    if times == 1:
        return step

    def repeated(state, action):
        def once(state, _):
            state = step(state, action)
            return state, (state.reward, state.done)

        state, (reward, done) = jax.lax.scan(once, state, length=times)
        return state.replace(reward=reward.sum(axis=0), done=done.max(axis=0))

    return repeated
