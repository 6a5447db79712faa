"""Brax environments on any of Brax's physics backends."""

import itertools
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
from brax import envs

from strl_jax.envs.base import Env, finite
from strl_jax.envs.live_leaves import LiveLeaves
from strl_jax.envs.precision import exact
from strl_jax.envs.simulator_errors import as_value_error
from strl_jax.types import Array, EnvState


class BraxEnv(Env):
    """A registered Brax environment, named ``brax:NAME:BACKEND`` in a config.

    A dict observation keeps its names; an array becomes the component ``state``, or is
    cut into ``components``.
    Actions are clipped to [-1, 1], the range that Brax environments expect. Only
    ``info["truncation"]`` counts as a time-out: some Brax environments mark real
    falls as ``info["time_out"]``. Of Brax's state only the leaves are kept that a
    later step reads (ant on MJX: 8 of 117).

    Args:
        name: name in Brax's registry, for example ``ant``.
        backend: ``mjx``, ``spring``, ``positional`` or ``generalized``.
        components: names and sizes into which an array observation is cut, in order.
        **kwargs: passed to the environment's constructor.

    Raises:
        ValueError: unknown name or backend (the message lists the known ones), the
            environment refuses the backend or an argument or fails with this jax, or
            ``components`` do not add up to the observation.
    """

    def __init__(self, name: str, backend: str = "mjx", components: Mapping[str, int] | None = None, **kwargs):
        known = sorted(envs._envs)
        if name not in known:
            raise ValueError(f"unknown Brax environment {name!r}; known: {', '.join(known)}")
        if backend not in BACKENDS:
            raise ValueError(f"unknown Brax backend {backend!r}; known: {', '.join(BACKENDS)}")
        with as_value_error(f"Brax environment {name!r} on {backend!r}"):
            self._env = envs.get_environment(name, backend=backend, **kwargs)
            # Under jit their traces are kept: several programs use them, and MJX takes seconds to trace.
            self._reset, self._step = jax.jit(exact(self._env.reset)), jax.jit(exact(self._env.step))
            shapes = jax.eval_shape(self._reset, jax.random.key(0))
            self.action_size = self._env.action_size
            self.dt = float(self._env.dt)
        self.episode_length = 1000
        self._sizes = _check_sizes(components, shapes.obs)
        named = jax.eval_shape(lambda obs: _components(obs, self._sizes), shapes.obs)  # in the order of the letters
        self.observation_shapes = {key: named[key].shape for key in self._sizes or named}
        action = jax.ShapeDtypeStruct((self.action_size,), jnp.float32)
        with as_value_error(f"Brax environment {name!r} on {backend!r}"):
            self._leaves = LiveLeaves(self._step_with_outputs, shapes, action)

    def reset(self, key: Array) -> EnvState:
        """Fresh environments for ``key[B]``."""
        return self._to_state(jax.vmap(self._reset)(key))

    def step(self, state: EnvState, action: Array) -> EnvState:
        """One Brax step, ``action[B, A]`` in [-1, 1]."""
        full = self._leaves.unpack(state.physics, action.shape[0])
        return self._to_state(jax.vmap(self._step)(full, jnp.clip(action, -1.0, 1.0)))

    def simulator(self) -> tuple[Callable, Callable]:
        """Brax's own reset and step, vectorised, over Brax's whole state."""
        return jax.vmap(self._reset), jax.vmap(self._step)

    def finite(self, state: EnvState) -> Array:
        """Positions and velocities are finite: what else the simulator holds follows from them."""
        batch = state.reward.shape[0]
        pipeline = self._leaves.unpack(state.physics, batch).pipeline_state
        return finite((pipeline.q, pipeline.qd), batch)

    @property
    def mj_model(self):
        """MuJoCo's model, whose ``qpos`` are ``positions``; None where Brax kept none."""
        return getattr(self._env.sys, "mj_model", None)

    def positions(self, state: EnvState) -> Array:
        """Generalised positions ``[B, nq]`` of a state with its reward."""
        return self._leaves.unpack(state.physics, state.reward.shape[0]).pipeline_state.q

    def _step_with_outputs(self, state, action: Array):
        state = self._step(state, action)
        pipeline = state.pipeline_state
        info = state.info.get("truncation", ())
        return state, (state.obs, state.reward, state.done, state.metrics, info, pipeline.q, pipeline.qd)

    def _to_state(self, state) -> EnvState:
        done = state.done.astype(bool)
        timeout = state.info["truncation"].astype(bool) if "truncation" in state.info else jnp.zeros_like(done)
        return EnvState(
            physics=self._leaves.pack(state),
            obs=_components(state.obs, self._sizes),
            reward=state.reward.astype(jnp.float32),
            terminated=done & ~timeout,
            timeout=timeout,
            metrics=dict(state.metrics),
            extras={},
        )


BACKENDS = ("mjx", "spring", "positional", "generalized")


def _components(obs, sizes: Mapping[str, int]) -> dict[str, Array]:
    """Named components ``[..., size]`` of an observation."""
    if isinstance(obs, Mapping):
        return dict(obs)
    if not sizes:
        return {"state": obs}
    ends = itertools.accumulate(sizes.values())
    return {name: obs[..., end - size : end] for (name, size), end in zip(sizes.items(), ends, strict=True)}


def _check_sizes(sizes: Mapping[str, int] | None, obs) -> dict[str, int]:
    if sizes is None:
        return {}
    if isinstance(obs, Mapping):
        raise ValueError(f"the observation has components of its own: {', '.join(obs)}; it takes no components")
    whole = isinstance(sizes, Mapping) and all(type(size) is int and size > 0 for size in sizes.values())
    if not whole or sum(sizes.values()) != obs.shape[-1]:
        raise ValueError(f"components are {sizes}; the sizes must add up to the observation's {obs.shape[-1]}")
    return dict(sizes)
