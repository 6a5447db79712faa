"""Running statistics of observations and rewards, as pure functions."""

from collections.abc import Iterable, Mapping

import jax
import jax.numpy as jnp

from strl_jax.observations import Segments
from strl_jax.sharding import psum
from strl_jax.types import Array, Obs, RunningStats


def init(shape: tuple[int, ...] = (), count: float = 0.0, dtype=jnp.float32) -> RunningStats:
    """Mean 0, variance 1 of quantities ``[*shape]``, as if seen ``count`` times."""
    return RunningStats(jnp.zeros(shape, dtype), jnp.ones(shape, dtype), jnp.asarray(count, dtype))


def update(
    stats: RunningStats,
    x: Array,
    *,
    where: Array | None = None,
    until: float | None = None,
    axis_name: str | None = None,
) -> RunningStats:
    """Adds samples to running moments (parallel variance, Chan et al. 1979).

    With n samples before, m new ones of mean u and population variance v, and
    d = u - mean: mean' = mean + d m/(n+m) and
    var' = (n var + m v + d^2 n m/(n+m)) / (n+m).

    Args:
        stats: moments of ``[*shape]``.
        x: samples ``[..., *shape]``.
        where: bool of the batch axes of ``x``; only true entries count.
        until: statistics that have seen this many samples stay as they are. So do
            all where the new moments would overflow.
        axis_name: the samples are those of all shards together.
    """
    batch_axes = tuple(range(x.ndim - stats.mean.ndim))
    if where is None:
        where = jnp.ones(x.shape[: len(batch_axes)], bool)
    mask = where.reshape(where.shape + (1,) * stats.mean.ndim)
    number = psum(jnp.sum(where, dtype=stats.count.dtype), axis_name)
    safe = jnp.maximum(number, 1)
    mean = psum(jnp.sum(jnp.where(mask, x, 0), axis=batch_axes), axis_name) / safe
    var = psum(jnp.sum(jnp.where(mask, jnp.square(x - mean), 0), axis=batch_axes), axis_name) / safe

    count = stats.count + number
    rate = number / jnp.maximum(count, 1e-30)
    delta = mean - stats.mean
    new = RunningStats(
        stats.mean + rate * delta,
        stats.var + rate * (var - stats.var + jnp.square(delta) * (1 - rate)),
        count,
    )
    # A finite sample may still be too large to be squared; moments once NaN would stay so.
    keep = ~(jnp.isfinite(new.mean).all() & jnp.isfinite(new.var).all())
    if until is not None:
        keep |= stats.count >= until
    return jax.tree.map(lambda a, b: jnp.where(keep, a, b), stats, new)


def normalize(stats: RunningStats, x: Array, eps: float = 1e-2) -> Array:
    """(x - mean) / (std + eps): rsl_rl's and st_rl's ``EmpiricalNormalization``."""
    return (x - stats.mean) / (jnp.sqrt(stats.var) + eps)


def denormalize(stats: RunningStats, y: Array, eps: float = 1e-2) -> Array:
    """Inverse of ``normalize``."""
    return y * (jnp.sqrt(stats.var) + eps) + stats.mean


def normalize_clipped(stats: RunningStats, x: Array, eps: float = 1e-4, clip: float = 10.0) -> Array:
    """clip((x - mean) / sqrt(var + eps), -clip, clip): st_rl's ``Normalizer``."""
    return jnp.clip((x - stats.mean) / jnp.sqrt(stats.var + eps), -clip, clip)


def l2_normalize(x: Array, eps: float = 1e-12) -> Array:
    """x / max(|x|, eps) along the last axis: st_rl's ``Normalize``."""
    return x / jnp.maximum(jnp.linalg.norm(x, axis=-1, keepdims=True), eps)


def init_group(segments: Segments) -> dict[str, RunningStats]:
    """Statistics for every component of a group."""
    return {name: init(shape) for name, shape in zip(segments.names, segments.shapes, strict=True)}


def pack_group(segments: Segments, stats: dict[str, RunningStats], obs: Obs, eps: float) -> Array:
    """A group's components, normalised where ``stats`` has them, as one ``[..., D]`` array."""
    names = [name for name in segments.names if name in stats]
    return segments.flatten(obs | {name: normalize(stats[name], obs[name], eps) for name in names})


def pack_groups(
    groups: Mapping[str, Segments], names: Iterable[str], stats: dict, obs: Obs, eps: float
) -> dict[str, Array]:
    """``pack_group`` of each of the groups ``names``; ``stats`` are by group and component."""
    return {name: pack_group(groups[name], stats.get(name, {}), obs, eps) for name in names}


def update_group(
    stats: dict[str, RunningStats], obs: Obs, *, where: Array, until: float, axis_name: str | None
) -> dict[str, RunningStats]:
    """``update`` of every component that the group keeps statistics of."""
    return {
        name: update(value, obs[name], where=where, until=until, axis_name=axis_name) for name, value in stats.items()
    }
