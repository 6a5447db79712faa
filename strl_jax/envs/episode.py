"""Episodes around an environment: time limit, resets from a pool, NaN containment."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from strl_jax.envs.base import LARGEST, Env, carried, finite, where
from strl_jax.types import Array, EnvState, EpisodeState, Obs, TimeStep

SMALLEST_POOL = 16  # few environments must not all start from one state


@dataclass(frozen=True)
class EpisodeEnv:
    """Runs episodes of ``env`` one after the other.

    An environment that ends takes a state from a pool of fresh ones, drawn anew
    in every iteration, so that a step never pays for a reset of all environments.

    Attributes:
        env: the environments.
        episode_length: time limit in steps.
        pool_fraction: size of the pool as a part of the number of environments.

    A step counts as invalid where physics, observation, reward, metrics or extras
    are not finite, or an observation, reward or extra is 1e9 or more in size. An observation
    of a reset that is such a number is shown as 0.

    Raises:
        ValueError: a time limit under 1, or a pool fraction that is not above 0.
    """

    env: Env
    episode_length: int
    pool_fraction: float = 0.25

    def __post_init__(self):
        if self.episode_length < 1:
            raise ValueError(f"episode_length is {self.episode_length}; it must be at least 1 step")
        if not self.pool_fraction > 0:
            raise ValueError(f"pool_fraction is {self.pool_fraction}; it must be above 0")

    def init(self, key: Array, random_lengths: bool) -> tuple[EpisodeState, dict[str, Array]]:
        """Fresh episodes for ``key[B]``; with ``random_lengths`` each at a random age.

        Random ages keep the time-outs of the environments from falling together.

        Returns:
            The episodes, and zeros ``[B]`` for every metric that their steps will report.
        """
        reset_key, age_key = jax.vmap(jax.random.split, out_axes=1)(key)
        env = self.env.reset(reset_key)
        step = jnp.zeros(key.shape, jnp.int32)
        if random_lengths:
            step = jax.vmap(lambda k: jax.random.randint(k, (), 0, self.episode_length))(age_key)
        start = carried(env.replace(obs=_shown(env.obs)))
        action = jnp.zeros((key.shape[0], self.env.action_size))
        metrics = {name: jnp.zeros(key.shape) for name in jax.eval_shape(self.env.step, start, action).metrics}
        return EpisodeState(start, step), metrics

    def evaluated(self) -> "EpisodeEnv":
        """Episodes of the environments of an evaluation."""
        return replace(self, env=self.env.evaluated())

    def pool(self, key: Array, num_envs: int) -> EnvState:
        """Fresh states for the resets of one iteration, ``pool_fraction * num_envs`` but at least 16 of them."""
        fresh = self.env.reset(jax.random.split(key, max(SMALLEST_POOL, int(self.pool_fraction * num_envs))))
        return carried(fresh.replace(obs=_shown(fresh.obs)))

    def step(
        self,
        state: EpisodeState,
        action: Array,
        pool: EnvState,
        draw: Array,
        ends: Callable[[EnvState], Array] | None = None,
    ) -> tuple[EpisodeState, TimeStep]:
        """One step of all environments; those that end start again from ``pool``.

        Args:
            action: ``[B, A]``.
            pool: fresh states, leaves ``[P, ...]``.
            draw: ``[B]``, uniform in [0, 1): which of them an environment takes.
            ends: ``state after the step -> bool[B]``: what else terminates an episode.
        """
        batch = action.shape[0]
        env = self.env.step(state.env, action)
        step = state.step + 1
        valid = self.env.finite(env) & finite(env.metrics, batch)
        valid &= finite((env.obs, env.reward, env.extras), batch, LARGEST)
        terminated = env.terminated.astype(bool) if ends is None else env.terminated.astype(bool) | ends(env)
        terminated &= valid
        timeout = valid & ~terminated & (env.timeout.astype(bool) | (step >= self.episode_length))
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
        )
        return EpisodeState(merged, jnp.where(done, 0, step)), timestep


def _shown(obs: Obs) -> Obs:
    """A reset's observation with zeros for what would make a step invalid: it must not reach a loss.

    If the environment stays broken, its first step is the one that is masked out and counted.
    """

    def shown(x):
        sane = jnp.isfinite(x) & (jnp.abs(x) < LARGEST) if jnp.issubdtype(x.dtype, jnp.floating) else True
        return jnp.where(sane, x, jnp.zeros_like(x))

    return jax.tree.map(shown, obs)
