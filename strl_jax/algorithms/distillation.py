"""Distillation losses between student and teacher: st_rl's ``distill_target`` and ``distill_latent_target``."""

from collections.abc import Callable

import chex
import jax.numpy as jnp

from strl_jax.algorithms import losses
from strl_jax.types import Array

LATENT_KINDS = ("real", "mse_sum", "l1", "tanh", "scaled_tanh")
BOUNDED = ("tanh", "scaled_tanh")  # for values in [-1, 1]
KINDS = (*LATENT_KINDS, "max_log_prob", "kl")


def distance(
    kind: str,
    actual: Array,
    wanted: Array,
    *,
    std: Array | None = None,
    wanted_std: Array | None = None,
    weight: Array | None = None,
) -> Array:
    """Mean distance of the student's ``actual`` m from the teacher's ``wanted`` l, both ``[..., A]``; a scalar.

    | kind | of a sample |
    |---|---|
    | ``real`` | Euclidean distance; gradient 0 where they are equal |
    | ``mse_sum`` | sum of squares |
    | ``l1`` | sum of absolute differences; gradient 0 where they are equal |
    | ``tanh`` | 2 mean_a BCE((m + 1) / 2, (l + 1) / 2), logarithms at least -100 as in torch |
    | ``scaled_tanh`` | the same times mean_a of abs(m - l) |
    | ``max_log_prob`` | -log N(l; m, std) |
    | ``kl`` | E_P[log P - log Q], teacher P = N(l, wanted_std), student Q = N(m, std), exact |

    The tanh kinds are for values in [-1, 1]; in their BCE, values outside are clipped and have no gradient.
    The gradient of ``wanted`` is not stopped. The idea of learning from a teacher's outputs is that of
    "Policy Distillation" (https://arxiv.org/abs/1511.06295).

    Args:
        std, wanted_std: standard deviations ``[..., A]`` of student and teacher.
        weight: ``[...]``, sums to 1; None is the plain mean.

    Raises:
        ValueError: unknown kind, or a standard deviation that it needs is missing.
        AssertionError: ``actual`` and ``wanted`` have different shapes.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown distillation target {kind!r}; known: {', '.join(KINDS)}")
    if (kind in ("max_log_prob", "kl") and std is None) or (kind == "kl" and wanted_std is None):
        raise ValueError(f"distillation target {kind!r} needs std{' and wanted_std' if kind == 'kl' else ''}")
    chex.assert_equal_shape([actual, wanted])
    if kind == "real":
        return losses.distance(actual, wanted, weight=weight)
    if kind == "max_log_prob":
        return losses.mean(-losses.log_prob(wanted, actual, std), weight)
    if kind == "kl":
        return losses.mean(losses.gaussian_kl(wanted, wanted_std, actual, std), weight)
    return losses.mean(PER_SAMPLE[kind](actual, wanted), weight)


def statistics(
    kind: str, actual: Array, wanted: Array, *, weight: Array | None = None, literal: bool = False
) -> dict[str, Array]:
    """Log entries of the tanh kinds; ``{}`` for other kinds.

    ``l1distance`` is the mean over samples of the sum over actions of the absolute differences,
    ``l1_before_tanh`` the same for the values before the tanh.

    Args:
        literal: compute ``l1_before_tanh`` from tangents, as st_rl does; else from the inverse tanh of
            values clipped to the open interval (-1, 1), so that it stays finite.
    """
    if kind not in BOUNDED:
        return {}
    before = jnp.tan if literal else _arctanh
    return {
        "l1distance": losses.mean(_l1(actual, wanted), weight),
        "l1_before_tanh": losses.mean(_l1(before(actual), before(wanted)), weight),
    }


def _l1(actual: Array, wanted: Array) -> Array:
    apart = actual - wanted
    return jnp.sum(apart * jnp.sign(apart), axis=-1)  # jnp.abs has gradient 1 at 0, this one 0 as in torch


def _tanh(actual: Array, wanted: Array) -> Array:
    return 2.0 * jnp.mean(_cross_entropy(_probability(actual), _probability(wanted)), axis=-1)


PER_SAMPLE: dict[str, Callable[[Array, Array], Array]] = {
    "mse_sum": lambda actual, wanted: jnp.sum(jnp.square(actual - wanted), axis=-1),
    "l1": _l1,
    "tanh": _tanh,
    "scaled_tanh": lambda actual, wanted: _tanh(actual, wanted) * _l1(actual, wanted) / actual.shape[-1],
}


def _probability(value: Array) -> Array:
    """[-1, 1] to [0, 1]."""
    return jnp.clip((value + 1.0) / 2.0, 0.0, 1.0)


def _cross_entropy(actual: Array, wanted: Array) -> Array:
    return -wanted * _log(actual) - (1.0 - wanted) * _log(1.0 - actual)


def _log(probability: Array) -> Array:
    """The logarithm, at least -100; its gradient is finite at 0."""
    some = probability > 0
    return jnp.where(some, jnp.maximum(jnp.log(jnp.where(some, probability, 1.0)), -100.0), -100.0)


def _arctanh(value: Array) -> Array:
    most = 1.0 - jnp.finfo(value.dtype).eps
    return jnp.arctanh(jnp.clip(value, -most, most))
