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


def env_state(physics, obs: Array, reward, *, terminated, tracking_error=None, **components: Array) -> EnvState:
    """An ``EnvState`` of a probe environment.

    Args:
        physics: any tree, leaves ``[B, ...]``.
        obs: ``[B]``, the component ``state``.
        reward, terminated: ``[B]`` or scalars.
        tracking_error: ``[B]``, the metric of this name; None: no metric.
        **components: other components of the observation, ``[B, *shape]``.
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
