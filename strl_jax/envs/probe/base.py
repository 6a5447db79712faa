"""The base class and helpers of the probe environments."""

import jax
import jax.numpy as jnp

from strl_jax.envs.base import Env
from strl_jax.types import Array, EnvState


class Probe(Env):
    """An environment with one action and one component ``state[B, 1]``; a step is one second."""

    observation_shapes = {"state": (1,)}  # noqa: RUF012 (read only)
    action_size = 1
    dt = 1.0
    episode_length = 10


def signs(key: Array) -> Array:
    """-1 or 1 at random for each PRNG key of ``key[B]``; float32 ``[B]``."""
    return jax.vmap(lambda k: jax.random.rademacher(k, (), jnp.float32))(key)


def check_whole(name: str, value: float, minimum: int) -> None:
    """Raises ``ValueError`` unless the option ``name`` is a whole number >= ``minimum``."""
    if value < minimum or value != int(value):
        raise ValueError(f"{name} is {value}; it must be a whole number of at least {minimum}")


def env_state(
    physics, obs: Array, reward, *, terminated, metrics: dict | None = None, extras: dict | None = None, **components
) -> EnvState:
    """An ``EnvState`` of a probe environment.

    Args:
        physics: any tree, leaves ``[B, ...]``.
        obs: ``[B]``, the component ``state``.
        reward, terminated: ``[B]`` or scalars.
        metrics, extras: name -> ``[B, ...]``; None: empty.
        **components: the other components of the observation, name -> ``[B, *shape]``.
    """
    ended = jnp.broadcast_to(jnp.asarray(terminated), obs.shape)
    return EnvState(
        physics=physics,
        obs={"state": obs[:, None], **components},
        reward=jnp.broadcast_to(jnp.asarray(reward, jnp.float32), obs.shape),
        terminated=ended,
        timeout=jnp.zeros_like(ended),
        metrics=metrics or {},
        extras=extras or {},
    )


def tracking_state(physics, obs: Array, error: Array, *, terminated, **components: Array) -> EnvState:
    """``env_state`` with reward -error^2 and the metric ``tracking_error`` = |error|, for an ``error[B]``."""
    metrics = {"tracking_error": jnp.abs(error)}
    return env_state(physics, obs, -jnp.square(error), terminated=terminated, metrics=metrics, **components)
