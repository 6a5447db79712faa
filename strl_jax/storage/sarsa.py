"""What follows each stored observation: st_rl's ``SarsaRolloutStorage``."""

from typing import Any

import jax
import jax.numpy as jnp

from strl_jax.types import Array


def next_observations(obs: Any, last_obs: Any, *, terminal_obs: Any = None, done: Array | None = None) -> Any:
    """Observation after each step: s' of (s, a, r, s').

    Without ``terminal_obs`` and ``done`` it is ``obs[t + 1]`` even where an episode
    ended, which is the first observation of the next one; st_rl does that.

    Args:
        obs: leaves ``[T, B, ...]``.
        last_obs: leaves ``[B, ...]``, after the last step.
        terminal_obs: leaves ``[T, B, ...]``, what the step itself led to; read where ``done``.
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
