"""The parts of a step that are not finite, as one bit for each part and environment."""

import functools

import jax
import jax.numpy as jnp

from strl_jax.envs.base import LARGEST, Env, finite
from strl_jax.types import Array, EnvState, Flags, Obs

WORD = 32  # bits of an integer


def broken_parts(env: Env, state: EnvState, batch: int) -> dict[str, Array]:
    """Part of the environment -> bool[B]: it has a number that makes the step invalid.

    Numbers must be finite. In observations, reward and extras their magnitude must also be below ``LARGEST``.

    Args:
        state: the result of ``env.step``.
    """
    flags = {"physics": ~env.finite(state)} | broken_obs(state.obs, batch)
    flags |= _broken("", {"reward": state.reward}, batch, LARGEST)
    terms = {name: value for name, value in state.metrics.items() if name.startswith("reward")}
    others = {name: value for name, value in state.metrics.items() if name not in terms}
    flags |= _broken("reward term ", terms, batch) | _broken("metric ", others, batch)
    return flags | _broken("extra ", state.extras, batch, LARGEST)


def broken_obs(obs: Obs, batch: int) -> dict[str, Array]:
    """``broken_parts`` of an observation."""
    return _broken("observation ", obs, batch, LARGEST)


def _broken(kind: str, values: dict, batch: int, limit: float = jnp.inf) -> dict[str, Array]:
    def has_floats(tree) -> bool:
        return any(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in jax.tree.leaves(tree))

    return {f"{kind}{name}": ~finite(value, batch, limit) for name, value in values.items() if has_floats(value)}


def pack(flags: dict[str, Array]) -> Flags:
    """``name -> bool[...]`` as bits; at least one name."""
    values = [flag.astype(jnp.uint32) for flag in flags.values()]
    words = [
        functools.reduce(jnp.bitwise_or, [flag << bit for bit, flag in enumerate(values[start : start + WORD])])
        for start in range(0, len(values), WORD)
    ]
    return Flags(jnp.stack(words, axis=-1), tuple(flags))


def unpack(flags: Flags) -> dict[str, Array]:
    """Inverse of ``pack``."""
    return {name: (flags.bits[..., index // WORD] >> (index % WORD)) & 1 == 1 for index, name in enumerate(flags.names)}


def any_of(flags: dict[str, Array]) -> Array:
    """bool[...]: at least one of the flags is set."""
    return functools.reduce(jnp.logical_or, flags.values())
