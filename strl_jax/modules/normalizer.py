"""Running mean and variance of observations and rewards, as pure functions."""

from collections.abc import Iterable, Mapping

import jax
import jax.numpy as jnp

from strl_jax.observations import Segments
from strl_jax.sharding import psum
from strl_jax.types import Array, Obs, RunningStats


def init(shape: tuple[int, ...] = (), count: float = 0.0, dtype=jnp.float32) -> RunningStats:
    """Initial statistics of a quantity ``[*shape]``: mean 0, variance 1 and the given sample count."""
    return RunningStats(jnp.zeros(shape, dtype), jnp.ones(shape, dtype), jnp.asarray(count, dtype))


def update(
    stats: RunningStats,
    x: Array,
    *,
    where: Array | None = None,
    until: float | None = None,
    axis_name: str | None = None,
) -> RunningStats:
    """Adds a batch of samples to running moments.

    The parallel form of Welford's algorithm (Chan, Golub and LeVeque 1979, "Updating
    Formulae and a Pairwise Algorithm for Computing Sample Variances", STAN-CS-79-773).
    For n earlier samples, m new samples of mean u and population variance v, and
    d = u - mean: mean' = mean + d m/(n+m) and
    var' = (n var + m v + d^2 n m/(n+m)) / (n+m).

    Args:
        stats: moments of ``[*shape]``.
        x: samples ``[..., *shape]``.
        where: bool, with the batch axes of ``x`` as its shape; only samples where it is true are counted.
        until: statistics of at least this many samples are not updated; None: they always are.
        axis_name: axis of ``shard_map``; the samples of all shards are counted.

    Returns:
        The new statistics; the old ones if a new moment is not finite.
    """
    batch_axes = tuple(range(x.ndim - stats.mean.ndim))
    if where is None:
        where = jnp.ones(x.shape[: len(batch_axes)], bool)
    mask = where.reshape(where.shape + (1,) * stats.mean.ndim)
    number = psum(jnp.sum(where, dtype=stats.count.dtype), axis_name)
    divisor = jnp.maximum(number, 1)
    mean = psum(jnp.sum(jnp.where(mask, x, 0), axis=batch_axes), axis_name) / divisor
    var = psum(jnp.sum(jnp.where(mask, jnp.square(x - mean), 0), axis=batch_axes), axis_name) / divisor

    count = stats.count + number
    rate = number / jnp.maximum(count, 1e-30)
    delta = mean - stats.mean
    new = RunningStats(
        stats.mean + rate * delta,
        stats.var + rate * (var - stats.var + jnp.square(delta) * (1 - rate)),
        count,
    )
    # The square of a large finite sample can overflow, and moments that are NaN once would stay NaN.
    keep = ~(jnp.isfinite(new.mean).all() & jnp.isfinite(new.var).all())
    if until is not None:
        keep |= stats.count >= until
    return jax.tree.map(lambda a, b: jnp.where(keep, a, b), stats, new)


def normalize(stats: RunningStats, x: Array, eps: float = 1e-2) -> Array:
    """(x - mean) / (std + eps), as in ``EmpiricalNormalization`` of rsl_rl and st_rl."""
    return (x - stats.mean) / (jnp.sqrt(stats.var) + eps)


def denormalize(stats: RunningStats, y: Array, eps: float = 1e-2) -> Array:
    """Inverse of ``normalize``."""
    return y * (jnp.sqrt(stats.var) + eps) + stats.mean


def normalize_clipped(stats: RunningStats, x: Array, eps: float = 1e-4, clip: float = 10.0) -> Array:
    """clip((x - mean) / sqrt(var + eps), -clip, clip), as in st_rl's ``Normalizer``."""
    return jnp.clip((x - stats.mean) / jnp.sqrt(stats.var + eps), -clip, clip)


def l2_normalize(x: Array, eps: float = 1e-12) -> Array:
    """x / max(|x|, eps) along the last axis, as in st_rl's ``Normalize``."""
    return x / jnp.maximum(jnp.linalg.norm(x, axis=-1, keepdims=True), eps)


def init_group(segments: Segments) -> dict[str, RunningStats]:
    """Component -> initial statistics, for every component of a group."""
    return {name: init(shape) for name, shape in zip(segments.names, segments.shapes, strict=True)}


def pack_group(segments: Segments, stats: dict[str, RunningStats], obs: Obs, eps: float) -> Array:
    """The components of a group as one array ``[..., D]``; those that have statistics are normalised."""
    names = [name for name in segments.names if name in stats]
    return segments.flatten(obs | {name: normalize(stats[name], obs[name], eps) for name in names})


def pack_groups(
    groups: Mapping[str, Segments], names: Iterable[str], stats: dict, obs: Obs, eps: float
) -> dict[str, Array]:
    """Group -> ``pack_group``, for the groups ``names``; ``stats`` is group -> component -> statistics."""
    return {name: pack_group(groups[name], stats.get(name, {}), obs, eps) for name in names}


def update_group(
    stats: dict[str, RunningStats], obs: Obs, *, where: Array, until: float | None, axis_name: str | None
) -> dict[str, RunningStats]:
    """``update`` of every component in ``stats``."""
    return {
        name: update(value, obs[name], where=where, until=until, axis_name=axis_name) for name, value in stats.items()
    }
