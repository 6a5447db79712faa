"""The base class of the adapters for Brax and MuJoCo Playground, and the conversion of the errors of simulators."""

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping

import jax
import jax.numpy as jnp

from strl_jax.envs.base import Env, finite
from strl_jax.envs.live_leaves import LiveLeaves
from strl_jax.types import Array, EnvState


class SimulatorEnv(Env):
    """A batch of a simulator's environments; ``EnvState.physics`` has the live leaves of the simulator's state.

    The constructor of a subclass sets ``_reset(key)`` and ``_step(state, action)``, the simulator's functions
    for ONE environment, and ``_leaves``.
    """

    _reset: Callable
    _step: Callable
    _leaves: LiveLeaves

    def reset(self, key: Array) -> EnvState:
        """Initial states of B environments, one for each PRNG key of ``key[B]``."""
        return self._to_state(jax.vmap(self._reset)(key))

    def step(self, state: EnvState, action: Array) -> EnvState:
        """One step of the simulator's environments; ``action[B, A]`` is clipped to [-1, 1]."""
        full = self._leaves.unpack(state.physics, action.shape[0])
        return self._to_state(jax.vmap(self._step)(full, jnp.clip(action, -1.0, 1.0)))

    def simulator(self) -> tuple[Callable, Callable]:
        """The simulator's reset and step for a batch of its complete states."""
        return jax.vmap(self._reset), jax.vmap(self._step)

    def finite(self, state: EnvState) -> Array:
        """bool[B]: positions and velocities are finite. The rest of the simulator's state follows from them."""
        batch = state.reward.shape[0]
        return finite(self._motion(self._leaves.unpack(state.physics, batch)), batch)

    def positions(self, state: EnvState) -> Array:
        """Generalised positions ``[B, nq]`` of a state that ``reset`` or ``step`` returned."""
        return self._motion(self._leaves.unpack(state.physics, state.reward.shape[0]))[0]

    @abstractmethod
    def _motion(self, state) -> tuple[Array, Array]:
        """Generalised positions and velocities of a simulator's state."""

    def _components(self, obs) -> dict[str, Array]:
        """Components of the simulator's observation: those of a mapping, or ``state`` for an array."""
        return dict(obs) if isinstance(obs, Mapping) else {"state": obs}

    def _timeout(self, state) -> Array:
        """bool[B]: the simulator ended the episode, but the task did not terminate."""
        return jnp.zeros_like(state.done.astype(bool))

    def _step_with_outputs(self, state, action: Array):
        """A step of ONE environment, and all values of it that this adapter reads."""
        state = self._step(state, action)
        return state, (state.obs, state.reward, state.done, state.metrics, self._motion(state))

    def _to_state(self, state) -> EnvState:
        done, timeout = state.done.astype(bool), self._timeout(state)
        return EnvState(
            physics=self._leaves.pack(state),
            obs=self._components(state.obs),
            reward=state.reward.astype(jnp.float32),
            terminated=done & ~timeout,
            timeout=timeout,
            metrics=dict(state.metrics),
            extras={},
        )


@contextlib.contextmanager
def as_value_error(environment: str) -> Iterator[None]:
    """Converts every exception of the block to a ``ValueError`` of one line that names the environment.

    It accepts every type of exception, because a simulator may not work with the installed version
    of JAX, and it may not check its arguments.
    """
    try:
        yield
    except Exception as error:
        message = next(iter(str(error).splitlines()), "")
        raise ValueError(f"{environment} does not work: {type(error).__name__}: {message}") from error
