"""Adapter for Brax environments, with any of Brax's physics backends."""

import itertools
from collections.abc import Mapping

import jax
import jax.numpy as jnp
from brax import envs

from strl_jax.envs.live_leaves import LiveLeaves
from strl_jax.envs.precision import exact
from strl_jax.envs.simulator_env import SimulatorEnv, as_value_error
from strl_jax.types import Array


class BraxEnv(SimulatorEnv):
    """A registered Brax environment; its name in a config is ``brax:NAME:BACKEND``.

    A dict observation keeps its names. An array becomes the component ``state``, or is
    split into ``components``.
    Actions are clipped to [-1, 1], the range that Brax environments expect. Only
    ``info["truncation"]`` is a time-out: some Brax environments mark real
    falls as ``info["time_out"]``. Of Brax's state only the live leaves are kept
    (ant on MJX: 8 of 117).

    Args:
        name: name in Brax's registry, for example ``ant``.
        backend: ``mjx``, ``spring``, ``positional`` or ``generalized``.
        components: names and sizes of the parts of an array observation, in order.
        **kwargs: passed to the environment's constructor.

    Raises:
        ValueError: unknown name or backend (the message lists the known ones); the
            environment does not accept the backend or an argument, or fails with this
            version of JAX; or the sizes of ``components`` do not add up to the observation.
    """

    def __init__(self, name: str, backend: str = "mjx", components: Mapping[str, int] | None = None, **kwargs):
        known = sorted(envs._envs)
        if name not in known:
            raise ValueError(f"unknown Brax environment {name!r}; known: {', '.join(known)}")
        if backend not in BACKENDS:
            raise ValueError(f"unknown Brax backend {backend!r}; known: {', '.join(BACKENDS)}")
        with as_value_error(f"Brax environment {name!r} on {backend!r}"):
            self._env = envs.get_environment(name, backend=backend, **kwargs)
            # jit keeps the traces: several programs use the functions, and tracing MJX takes seconds.
            self._reset, self._step = jax.jit(exact(self._env.reset)), jax.jit(exact(self._env.step))
            shapes = jax.eval_shape(self._reset, jax.random.key(0))
            self.action_size = self._env.action_size
            self.dt = float(self._env.dt)
            action = jax.ShapeDtypeStruct((self.action_size,), jnp.float32)
            self._leaves = LiveLeaves(self._step_with_outputs, shapes, action)
        self.episode_length = 1000
        self._sizes = _check_sizes(components, shapes.obs)
        named = jax.eval_shape(self._components, shapes.obs)  # sorted by name
        self.observation_shapes = {key: named[key].shape for key in self._sizes or named}

    @property
    def mj_model(self):
        """MuJoCo's model; ``positions`` returns its ``qpos``. None if the backend has no MuJoCo model."""
        return getattr(self._env.sys, "mj_model", None)

    def _motion(self, state) -> tuple[Array, Array]:
        return state.pipeline_state.q, state.pipeline_state.qd

    def _components(self, obs) -> dict[str, Array]:
        if isinstance(obs, Mapping) or not self._sizes:
            return super()._components(obs)
        ends = itertools.accumulate(self._sizes.values())
        return {name: obs[..., end - size : end] for (name, size), end in zip(self._sizes.items(), ends, strict=True)}

    def _timeout(self, state) -> Array:
        return state.info["truncation"].astype(bool) if "truncation" in state.info else super()._timeout(state)

    def _step_with_outputs(self, state, action: Array):
        state, outputs = super()._step_with_outputs(state, action)
        return state, (outputs, state.info.get("truncation", ()))


BACKENDS = ("mjx", "spring", "positional", "generalized")


def _check_sizes(sizes: Mapping[str, int] | None, obs) -> dict[str, int]:
    if sizes is None:
        return {}
    if isinstance(obs, Mapping):
        raise ValueError(f"components are {sizes}; the observation has its own, {', '.join(obs)}: leave them out")
    valid = isinstance(sizes, Mapping) and all(type(size) is int and size > 0 for size in sizes.values())
    if not valid or sum(sizes.values()) != obs.shape[-1]:
        raise ValueError(f"components are {sizes}; the sizes must add up to the observation's {obs.shape[-1]}")
    return dict(sizes)
