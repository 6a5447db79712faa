"""What the probe environments have in common."""

import jax
import jax.numpy as jnp

from strl_jax.envs.base import Env
from strl_jax.types import Array, EnvState


class Probe(Env):
    """One action, one component ``state[B, 1]``, steps of one second."""

    observation_shapes = {"state": (1,)}  # noqa: RUF012 (read only)
    action_size = 1
    dt = 1.0
    episode_length = 10


def signs(key: Array) -> Array:
    """-1 or 1 for each key, ``[B]``."""
    return jax.vmap(lambda k: jax.random.rademacher(k, (), jnp.float32))(key)


def check_whole(name: str, value: float, least: int) -> None:
    """Raises ValueError unless the option ``name`` is a whole number, ``least`` or above."""
    if value < least or value != int(value):
        raise ValueError(f"{name} is {value}; it must be a whole number of at least {least}")


def env_state(physics, obs: Array, reward, *, terminated, tracking_error=None, **components: Array) -> EnvState:
    """An ``EnvState`` whose ``state`` is ``obs[B]``; ``reward`` and ``terminated`` may be scalars.

    Args:
        tracking_error: ``[B]``, the metric of this name, or None for no metric.
        **components: further components of the observation, ``[B, *shape]``.
    """
    ended = jnp.broadcast_to(jnp.asarray(terminated), obs.shape)
    return EnvState(
        physics=physics,
        obs={"state": obs[:, None], **components},
        reward=jnp.broadcast_to(jnp.asarray(reward, jnp.float32), obs.shape),
        terminated=ended,
        timeout=jnp.zeros_like(ended),
        metrics={} if tracking_error is None else {"tracking_error": tracking_error},
        extras={},
    )
