"""Episodes of an environment: time limit, resets from a pool, handling of NaN."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from strl_jax.envs.base import LARGEST, Env, carried, where
from strl_jax.envs.broken import any_of, broken_obs, broken_parts, pack
from strl_jax.envs.fused import Fused
from strl_jax.types import Array, EnvState, EpisodeState, Obs, TimeStep

SMALLEST_POOL = 16  # states; with fewer, a small number of environments could all start from the same state


@dataclass(frozen=True)
class EpisodeEnv:
    """Runs the episodes of ``env``, one after another.

    When an episode ends, its environment takes the next state from a pool of initial states. The pool
    is computed once per iteration, so no step has to reset all environments.

    A step is invalid where physics, observation, reward, metrics or extras are not finite, or
    where an observation, reward or extra has a magnitude of 1e9 or more. Such numbers in the
    observation of a reset are replaced by 0.

    Attributes:
        env: the environments.
        episode_length: time limit in steps; that of evaluations, if there is a ``length_schedule``.
        pool_fraction: size of the pool divided by the number of environments.
        length_schedule: time limit in steps as a function of the iteration; None: always ``episode_length``.
        limit: time limit of the current iteration, int32[]; ``at_iteration`` sets it.
        kernels: compiles step and reset of ``env`` to one kernel each; None: XLA compiles them.

    Raises:
        ValueError: the time limit is below 1, or the pool fraction is not above 0.
    """

    env: Env
    episode_length: int
    pool_fraction: float = 0.25
    length_schedule: Callable[[Array], Array] | None = None
    limit: Array | None = None
    kernels: Fused | None = None

    def __post_init__(self):
        if self.episode_length < 1:
            raise ValueError(f"episode_length is {self.episode_length}; it must be at least 1 step")
        if not self.pool_fraction > 0:
            raise ValueError(f"pool_fraction is {self.pool_fraction}; it must be above 0")

    def _reset(self, key: Array) -> EnvState:
        return carried(self.env.reset(key)) if self.kernels is None else self.kernels.reset(self.env)(key)

    def _step(self, state: EnvState, action: Array) -> EnvState:
        return self.env.step(state, action) if self.kernels is None else self.kernels.step(self.env)(state, action)

    def simulator(self) -> tuple[Callable, Callable]:
        """``Env.simulator``, with kernels if there are any."""
        return self.env.simulator() if self.kernels is None else self.kernels.simulator(self.env)

    def init(self, key: Array, random_lengths: bool) -> tuple[EpisodeState, dict[str, Array]]:
        """New episodes, one for each PRNG key of ``key[B]``.

        Args:
            key: ``[B]``.
            random_lengths: each episode starts at a random step count, so that the
                environments do not all reach the time limit in the same step.

        Returns:
            The episodes, and zeros ``[B]`` for every metric that their steps report.
        """
        reset_key, age_key = jax.vmap(jax.random.split, out_axes=1)(key)
        env = self._reset(reset_key)
        step = jnp.zeros(key.shape, jnp.int32)
        if random_lengths:
            step = jax.vmap(lambda k: jax.random.randint(k, (), 0, self._time_limit))(age_key)
        initial = env.replace(obs=_zero_invalid(env.obs))
        action = jnp.zeros((key.shape[0], self.env.action_size))
        metrics = {name: jnp.zeros(key.shape) for name in jax.eval_shape(self._step, initial, action).metrics}
        return EpisodeState(initial, step), metrics

    def evaluated(self) -> "EpisodeEnv":
        """Episodes of the environments for an evaluation, of ``episode_length`` steps; see ``Env.evaluated``."""
        return replace(self, env=self.env.evaluated(), length_schedule=None, limit=None)

    def at_iteration(self, iteration: Array) -> "EpisodeEnv":
        """Episodes of one iteration: with its time limit, and with the environments of ``Env.at_iteration``.

        Args:
            iteration: int32[], number of finished iterations.
        """
        of_env, limit = getattr(self.env, "at_iteration", None), None
        if self.length_schedule is not None:
            limit = jnp.maximum(jnp.round(self.length_schedule(iteration)), 1).astype(jnp.int32)
        return replace(self, env=self.env if of_env is None else of_env(iteration), limit=limit)

    @property
    def _time_limit(self) -> int | Array:
        return self.episode_length if self.limit is None else self.limit

    def pool(self, key: Array, num_envs: int) -> EnvState:
        """Initial states for the resets of one iteration: ``pool_fraction * num_envs``, but at least 16."""
        return self.checked_pool(key, num_envs)[0]

    def checked_pool(self, key: Array, num_envs: int) -> tuple[EnvState, dict[str, Array]]:
        """``pool``, and for each component bool[P]: numbers that were replaced by 0; see ``broken.broken_obs``."""
        size = max(SMALLEST_POOL, int(self.pool_fraction * num_envs))
        fresh = self._reset(jax.random.split(key, size))
        return fresh.replace(obs=_zero_invalid(fresh.obs)), broken_obs(fresh.obs, size)

    def step(
        self,
        state: EpisodeState,
        action: Array,
        pool: EnvState,
        draw: Array,
        ends: Callable[[EnvState], Array] | None = None,
    ) -> tuple[EpisodeState, TimeStep]:
        """One step of all environments. Those whose episode ends continue with a state of ``pool``.

        Args:
            action: ``[B, A]``.
            pool: initial states, leaves ``[P, ...]``.
            draw: ``[B]``, uniform in [0, 1): selects the state of the pool for each environment.
            ends: additional terminations: ``state after the step -> bool[B]``.
        """
        env = self._step(state.env, action)
        step = state.step + 1
        broken = broken_parts(self.env, env, action.shape[0])
        valid = ~any_of(broken)
        terminated = env.terminated.astype(bool) if ends is None else env.terminated.astype(bool) | ends(env)
        terminated &= valid
        timeout = valid & ~terminated & (env.timeout.astype(bool) | (step >= self._time_limit))
        done = terminated | timeout | ~valid

        size = jax.tree.leaves(pool)[0].shape[0]
        index = jnp.minimum((draw * size).astype(jnp.int32), size - 1)
        fresh = jax.tree.map(lambda leaf: leaf[index], pool)
        merged = self.env.merge(done, fresh, carried(env))
        timestep = TimeStep(
            obs=merged.obs,
            reward=jnp.where(valid, env.reward, 0.0),
            done=done,
            timeout=timeout,
            terminal_obs=where(valid, env.obs, fresh.obs),
            valid=valid,
            extras=where(valid, env.extras, jax.tree.map(jnp.zeros_like, env.extras)),
            metrics={name: jnp.where(valid, value, 0.0) for name, value in env.metrics.items()},
            broken=pack(broken),
        )
        return EpisodeState(merged, jnp.where(done, 0, step)), timestep


def _zero_invalid(obs: Obs) -> Obs:
    """The observation of a reset, with 0 for numbers that would make a step invalid: they must not reach a loss.

    If the environment does not recover, its first step is invalid: it is masked out and counted.
    """

    def zero_invalid(x):
        valid = jnp.isfinite(x) & (jnp.abs(x) < LARGEST) if jnp.issubdtype(x.dtype, jnp.floating) else True
        return jnp.where(valid, x, jnp.zeros_like(x))

    return jax.tree.map(zero_invalid, obs)
