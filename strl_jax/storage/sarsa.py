"""Next observations of a rollout: st_rl's ``SarsaRolloutStorage``."""

from typing import Any

import jax
import jax.numpy as jnp

from strl_jax.types import Array


def next_observations(obs: Any, last_obs: Any, *, terminal_obs: Any = None, done: Array | None = None) -> Any:
    """Observation after each step: s' of the transition (s, a, r, s').

    Without ``terminal_obs`` and ``done`` it is always ``obs[t + 1]``, as in st_rl; at
    the end of an episode this is the first observation of the next episode.

    Args:
        obs: leaves ``[T, B, ...]``.
        last_obs: after the last step, leaves ``[B, ...]``.
        terminal_obs: observation after each step, before the reset, leaves ``[T, B, ...]``; used where ``done``.
        done: bool ``[T, B]``, the episode ended with step t.

    Returns:
        Leaves ``[T, B, ...]``.

    Raises:
        ValueError: only one of ``terminal_obs`` and ``done`` is given.
    """
    if (terminal_obs is None) != (done is None):
        raise ValueError("terminal_obs and done go together: give both or none")
    following = jax.tree.map(lambda x, last: jnp.concatenate([x[1:], last[None]]), obs, last_obs)
    if done is None:
        return following

    def select(terminal, after_reset):
        where = done.astype(bool).reshape(done.shape + (1,) * (after_reset.ndim - done.ndim))
        return jnp.where(where, terminal, after_reset)

    return jax.tree.map(select, terminal_obs, following)
