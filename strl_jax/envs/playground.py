"""MuJoCo Playground's environments, on MJX in JAX or on MuJoCo Warp.

Playground 0.2.0 wants Python 3.11, mujoco and mujoco-mjx from 3.6 on, brax from 0.14.2 on,
ml-collections and warp-lang; it names no limits above. Importing it downloads nothing. Its
DeepMind Control Suite is complete; loading any other environment clones MuJoCo Menagerie with
git into the installed package, unless the folder is there.
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

from strl_jax.envs.base import Env, finite
from strl_jax.envs.live_leaves import LiveLeaves
from strl_jax.envs.precision import exact
from strl_jax.envs.simulator_errors import as_value_error
from strl_jax.types import Array, EnvState


class PlaygroundEnv(Env):
    """An environment of Playground's registry, named ``playground:NAME`` in a config.

    A dict observation keeps its names; an array becomes the component ``state``. Actions are
    clipped to [-1, 1], as Playground's own wrapper for torch does (under Brax's PPO a tanh keeps
    them there). ``done`` is a termination: neither Playground's time limit nor its resets are
    used, so there is no time-out here. A step is ``action_repeat`` of the environment's, with
    their rewards added up, and ``episode_length`` is the config's in such steps. Of the state
    only the leaves are kept that a later step reads (CartpoleBalance in JAX: 8 of 95).

    Warp's functions do not show what they read, so far more leaves are kept (117 of 196), but not
    those that all environments share (contacts), which every step computes anew. They hold
    ``naconmax`` contacts of all environments of a device together: many environments need more.
    Warp runs on CUDA, and slowly on a CPU.

    Args:
        name: name in Playground's registry, for example ``CheetahRun``.
        impl: ``jax`` or ``warp`` (which is Playground's own default).
        config_overrides: values for keys of the environment's config, nested or dotted.

    Raises:
        SettingError: a keyword that cannot be used; the message begins with it.
        ValueError: unknown name (the message lists the known ones), Menagerie's files are
            missing, or the environment fails.
    """

    def __init__(self, name: str, impl: str = "jax", config_overrides: Mapping[str, Any] | None = None):
        known = sorted(name for suite in SUITES for name in suite.ALL_ENVS)  # with those registered meanwhile
        if name not in known:
            raise ValueError(f"unknown MuJoCo Playground environment {name!r}; known: {', '.join(known)}")
        config = _config(name, impl, config_overrides)
        which = f"MuJoCo Playground environment {name!r} on {impl!r}"
        if name not in dm_control_suite.ALL_ENVS:
            _get_menagerie()
            which += f" with the robots of {mjx_env.MENAGERIE_PATH}"
        with as_value_error(which):
            self._env = registry.load(name, config)
            # Under jit their traces are kept: several programs use them, and MJX takes seconds to trace.
            step = _repeated(self._env.step, config.action_repeat)
            self._reset, self._step = jax.jit(exact(self._env.reset)), jax.jit(exact(step))
            self.action_size = self._env.action_size
            self.dt = float(self._env.dt) * config.action_repeat
            self.episode_length = math.ceil(config.episode_length / config.action_repeat)
            self._shapes = jax.eval_shape(self._reset, jax.random.key(0))
            many = jax.eval_shape(jax.vmap(self._reset), jax.random.split(jax.random.key(0), 2))
            self._shared = jax.tree.map(lambda one, batch: batch.shape == one.shape, self._shapes, many)
            action = jax.ShapeDtypeStruct((self.action_size,), jnp.float32)
            self._leaves = LiveLeaves(self._step_with_outputs, self._shapes, action)
        self.observation_shapes = {key: value.shape for key, value in _components(self._shapes.obs).items()}

    def reset(self, key: Array) -> EnvState:
        """Fresh environments for ``key[B]``."""
        return self._to_state(jax.vmap(self._reset)(key))

    def step(self, state: EnvState, action: Array) -> EnvState:
        """One step of the control, ``action[B, A]`` in [-1, 1]."""
        full = self._leaves.unpack(state.physics, action.shape[0])
        full = jax.tree.map(lambda leaf, shared: leaf[0] if shared else leaf, full, self._shared)
        return self._to_state(jax.vmap(self._step)(full, jnp.clip(action, -1.0, 1.0)))

    def simulator(self) -> tuple[Callable, Callable]:
        """Playground's own reset and step, vectorised, over its whole state."""
        return jax.vmap(self._reset), jax.vmap(self._step)

    def finite(self, state: EnvState) -> Array:
        """Positions and velocities are finite: what else the simulator holds follows from them."""
        batch = state.reward.shape[0]
        data = self._leaves.unpack(state.physics, batch).data
        return finite((data.qpos, data.qvel), batch)

    @property
    def mj_model(self):
        """MuJoCo's model, whose ``qpos`` are ``positions``."""
        return self._env.mj_model

    def positions(self, state: EnvState) -> Array:
        """Generalised positions ``[B, nq]`` of a state with its reward."""
        return self._leaves.unpack(state.physics, state.reward.shape[0]).data.qpos

    def _step_with_outputs(self, state, action: Array):
        # What the environments share goes into no step: as a constant it is not live.
        state = jax.tree.map(lambda leaf, shared: jnp.zeros_like(leaf) if shared else leaf, state, self._shared)
        state = self._step(state, action)
        return state, (state.obs, state.reward, state.done, state.metrics, state.data.qpos, state.data.qvel)

    def _to_state(self, state) -> EnvState:
        done = state.done.astype(bool)
        return EnvState(
            physics=self._leaves.pack(state),
            obs=_components(state.obs),
            reward=state.reward.astype(jnp.float32),
            terminated=done,
            timeout=jnp.zeros_like(done),
            metrics=dict(state.metrics),
            extras={},
        )


SUITES = (dm_control_suite, locomotion, manipulation)
IMPLS = ("jax", "warp")


class SettingError(ValueError):
    """A keyword of ``PlaygroundEnv`` that cannot be used, in one line that begins with its name."""


def _config(name: str, impl: str, overrides: Mapping[str, Any] | None):
    """The environment's config with the overrides in it."""
    config = registry.get_default_config(name)
    if impl not in IMPLS:
        raise SettingError(f"impl: {impl!r} is not allowed; it must be one of {', '.join(IMPLS)}")
    if "impl" in config:
        config.impl = impl
    elif impl != "jax":
        raise SettingError(f"impl: {impl!r} is not allowed; {name} runs on jax only")
    if overrides is not None and not isinstance(overrides, Mapping):
        raise SettingError(f"config_overrides: {overrides!r} is not allowed; it must be a mapping")
    for key, value in _flat(overrides or {}).items():
        _override(config, key, value)
    for key in ("action_repeat", "episode_length", "ctrl_dt", "sim_dt"):
        if not config[key] > 0:
            raise SettingError(f"config_overrides.{key}: {config[key]} is not allowed; it must be above 0")
    steps = config.ctrl_dt / config.sim_dt  # Playground rounds them, to 0 too: then nothing moves
    if round(steps) < 1 or abs(steps - round(steps)) > 1e-6 * steps:
        what = f"{config.ctrl_dt} is not allowed; it must be a multiple of sim_dt, {config.sim_dt}"
        raise SettingError(f"config_overrides.ctrl_dt: {what}")
    return config


def _override(config, key: str, value: Any) -> None:
    """Sets one dotted key of a config, which keeps its type."""
    known = _flat(config.to_dict())
    if key == "impl":
        raise SettingError("config_overrides.impl: it is a keyword of its own, impl")
    if key not in known:
        near = difflib.get_close_matches(key, known, n=1) or [name for name in known if name.endswith(f".{key}")]
        text = f"nearest is {near[0]}" if near else f"known are {', '.join(known)}"
        raise SettingError(f"config_overrides.{key}: unknown key; {text}")
    if key == "vision" and value:
        raise SettingError("config_overrides.vision: there are no images here; its renderer has one size of batch only")
    try:
        config.update_from_flattened_dict({key: value})
    except (TypeError, ValueError):
        kind = type(known[key]).__name__
        text = f"it must be of the type {kind}, such as {known[key]!r}"
        raise SettingError(f"config_overrides.{key}: {value!r} is not allowed; {text}") from None


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one with dotted keys."""
    flat = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _get_menagerie() -> None:
    """Playground's own download of the robots, told as ``ValueError`` where it fails."""
    try:
        mjx_env.ensure_menagerie_exists()
    except (subprocess.SubprocessError, OSError) as error:
        folder = mjx_env.MENAGERIE_PATH
        raise ValueError(
            f"its robot is in MuJoCo Menagerie, which is not in {folder} and could not be downloaded ({error}); get it "
            f"with: git clone https://github.com/deepmind/mujoco_menagerie.git {folder} "
            f"&& git -C {folder} checkout {mjx_env.MENAGERIE_COMMIT_SHA}"
        ) from error


def _repeated(step: Callable, times: int) -> Callable:
    """So many steps with the same action: rewards added up, done if one of them was."""
    if times == 1:
        return step

    def repeated(state, action):
        def once(state, _):
            state = step(state, action)
            return state, (state.reward, state.done)

        state, (reward, done) = jax.lax.scan(once, state, length=times)
        return state.replace(reward=reward.sum(axis=0), done=done.max(axis=0))

    return repeated


def _components(obs) -> dict[str, Array]:
    return dict(obs) if isinstance(obs, Mapping) else {"state": obs}
