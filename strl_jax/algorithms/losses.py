"""Loss terms, and the formulas of a diagonal Gaussian.

In all functions ``weight`` has the batch shape ``[...]`` and sums to 1 over the batch; None means the plain mean.
"""

import math

import chex
import jax.numpy as jnp

from strl_jax.types import Array


def mean(x: Array, weight: Array | None) -> Array:
    """Weighted mean of ``x`` with ``weight`` of the same shape, or the plain mean."""
    return jnp.mean(x) if weight is None else jnp.sum(x * weight)


def log_prob(action: Array, mean: Array, std: Array) -> Array:
    """Log-density of a diagonal Gaussian, ``[..., A]`` to ``[...]``."""
    z = (action - mean) / std
    return jnp.sum(-0.5 * jnp.square(z) - jnp.log(std) - 0.5 * math.log(2 * math.pi), axis=-1)


def gaussian_entropy(std: Array) -> Array:
    """Entropy of a diagonal Gaussian, ``[..., A]`` to ``[...]``."""
    return jnp.sum(0.5 + 0.5 * math.log(2 * math.pi) + jnp.log(std), axis=-1)


def gaussian_kl(old_mean: Array, old_std: Array, mean: Array, std: Array, *, log_eps: float = 0.0) -> Array:
    """KL(old || new) of diagonal Gaussians, ``[..., A]`` to ``[...]``.

    The sum over a of log(s / s_old + log_eps) + (s_old^2 + (m_old - m)^2) / (2 s^2) - 1/2.
    st_rl adds ``log_eps`` = 1e-5, which leaves a KL of about A * 1e-5 at equality.
    """
    return jnp.sum(
        jnp.log(std / old_std + log_eps)
        + (jnp.square(old_std) + jnp.square(old_mean - mean)) / (2.0 * jnp.square(std))
        - 0.5,
        axis=-1,
    )


def surrogate(log_prob: Array, old_log_prob: Array, advantage: Array, *, clip: float, weight: Array | None = None):
    """Clipped surrogate loss, to be minimised; all ``[...]``.

    With r = exp(log pi(a|s) - log pi_old(a|s)) it is the mean of max(-A r, -A clip(r, 1 - clip, 1 + clip)):
    minus equation 7 of "Proximal Policy Optimization Algorithms" (https://arxiv.org/abs/1707.06347).

    Raises:
        AssertionError: shapes that differ.
    """
    chex.assert_equal_shape([log_prob, old_log_prob, advantage])
    ratio = jnp.exp(log_prob - old_log_prob)
    return mean(jnp.maximum(-advantage * ratio, -advantage * jnp.clip(ratio, 1.0 - clip, 1.0 + clip)), weight)


def value(new: Array, old: Array, return_: Array, *, clip: float | None, weight: Array | None = None) -> Array:
    """Value loss; all ``[...]``.

    Without ``clip`` the mean of (V - R)^2. With it the mean of max((V - R)^2, (V_clip - R)^2), where
    V_clip = V_old + clip(V - V_old, -clip, clip), as in OpenAI's baselines; discussed in "What Matters In
    On-Policy Reinforcement Learning?" (https://arxiv.org/abs/2006.05990).

    Raises:
        AssertionError: shapes that differ.
    """
    chex.assert_equal_shape([new, old, return_])
    error = jnp.square(new - return_)
    if clip is not None:
        clipped = old + jnp.clip(new - old, -clip, clip)
        error = jnp.maximum(error, jnp.square(clipped - return_))
    return mean(error, weight)


def entropy(std: Array, *, weight: Array | None = None) -> Array:
    """Minus the mean entropy: a positive coefficient rewards exploration. ``std`` is ``[..., A]``."""
    return -mean(gaussian_entropy(std), weight)


def least_squares_discriminator(policy: Array, expert: Array, *, weight: Array | None = None) -> tuple[Array, Array]:
    """Half the mean squared distances of the scores from 1 (expert) and from -1 (policy).

    1/2 E_expert[(D - 1)^2] and 1/2 E_policy[(D + 1)^2]: the least-squares objective of "AMP: Adversarial Motion
    Priors for Stylized Physics-Based Character Control" (https://arxiv.org/abs/2104.02180), times 1/2 as in st_rl.

    Args:
        policy, expert: scores of states of the policy and of the reference motion, ``[...]``.

    Returns:
        The loss of the expert's scores and that of the policy's.
    """
    return 0.5 * mean(jnp.square(expert - 1.0), weight), 0.5 * mean(jnp.square(policy + 1.0), weight)


def gradient_penalty(gradient: Array, *, coef: float, weight: Array | None = None) -> Array:
    """coef E_expert[|dD/ds|^2] from the gradients ``[..., D]`` of the scores with respect to the expert's states.

    The gradient penalty of AMP (https://arxiv.org/abs/2104.02180), without its factor 1/2.
    """
    return coef * mean(jnp.sum(jnp.square(gradient), axis=-1), weight)


def distance(actual: Array, wanted: Array, *, weight: Array | None = None) -> Array:
    """Mean Euclidean distance of ``[..., D]``; its gradient is 0 where they are equal, not NaN."""
    square = jnp.sum(jnp.square(actual - wanted), axis=-1)
    apart = square > 0
    return mean(jnp.where(apart, jnp.sqrt(jnp.where(apart, square, 1.0)), 0.0), weight)
