"""The elementwise losses of ``torch.nn.functional``, with ``reduction="none"`` and torch's defaults.

A loss takes estimate x and target t, both ``[...]``, and returns the loss of each entry. Only x gets a gradient.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from functools import partial

import jax
import jax.numpy as jnp
import optax

from strl_jax.types import Array

Loss = Callable[[Array, Array], Array]


def mse_loss(x, t):
    """(x - t)^2."""
    return jnp.square(x - t)


def l1_loss(x, t):
    """|x - t|."""
    return jnp.abs(x - t)


def smooth_l1_loss(x, t, *, beta=1.0):
    """d^2 / (2 beta) where d = |x - t| < beta, else d - beta / 2; |x - t| for beta = 0."""
    return l1_loss(x, t) if beta < 1e-37 else huber_loss(x, t, delta=beta) / beta  # it is 0 in float32


def huber_loss(x, t, *, delta=1.0):
    """d^2 / 2 where d = |x - t| < delta, else delta (d - delta / 2)."""
    size = jnp.abs(x - t)
    return jnp.where(size < delta, 0.5 * jnp.square(x - t), delta * (size - 0.5 * delta))


@jax.custom_jvp
def binary_cross_entropy(x, t):
    """-t log(x) - (1 - t) log(1 - x), each logarithm at least -100. NaN where x is not in [0, 1]."""
    return -t * jnp.maximum(jnp.log(x), -100.0) - (1.0 - t) * jnp.maximum(jnp.log1p(-x), -100.0)


@binary_cross_entropy.defjvp
def _binary_cross_entropy_jvp(primals, tangents):
    x, t = primals  # the target is data: its tangent is 0
    return binary_cross_entropy(x, t), tangents[0] * (x - t) / jnp.maximum((1.0 - x) * x, 1e-12)


def binary_cross_entropy_with_logits(x, t):
    """``binary_cross_entropy`` of the sigmoid of x."""
    return optax.sigmoid_binary_cross_entropy(x, t)


def soft_margin_loss(x, t):
    """log(1 + exp(-t x)), for targets -1 and 1."""
    return jax.nn.softplus(-t * x)


def hinge_embedding_loss(x, t, *, margin=1.0):
    """x where t = 1, max(0, margin - x) where t = -1, and their sum elsewhere."""
    return jnp.where(t != -1, x, 0.0) + jnp.where(t != 1, jnp.maximum(margin - x, 0.0), 0.0)


def poisson_nll_loss(x, t, *, log_input=True, full=False, eps=1e-8):
    """exp(x) - t x, or x - t log(x + eps) without ``log_input``; ``full`` adds Stirling's approximation of log(t!)."""
    loss = jnp.exp(x) - t * x if log_input else x - t * jnp.log(x + eps)
    if full:
        above = jnp.maximum(t, 1.0)
        loss += jnp.where(t > 1, above * jnp.log(above) - above + 0.5 * jnp.log(2 * math.pi * above), 0.0)
    return loss


def kl_div(x, t, *, log_target=False):
    """t (log(t) - x) for a logarithm x, or exp(t) (t - x) with ``log_target``."""
    return jnp.exp(t) * (t - x) if log_target else jax.scipy.special.xlogy(t, t) - t * x


LOSSES: dict[str, Callable[..., Array]] = {
    "mse_loss": mse_loss,
    "l1_loss": l1_loss,
    "smooth_l1_loss": smooth_l1_loss,
    "huber_loss": huber_loss,
    "binary_cross_entropy": binary_cross_entropy,
    "binary_cross_entropy_with_logits": binary_cross_entropy_with_logits,
    "soft_margin_loss": soft_margin_loss,
    "hinge_embedding_loss": hinge_embedding_loss,
    "poisson_nll_loss": poisson_nll_loss,
    "kl_div": kl_div,
}


def arguments(name: str) -> dict[str, float | bool]:
    """The arguments that a loss takes, with their defaults."""
    parameters = inspect.signature(LOSSES[name]).parameters.values()
    return {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}


def elementwise_loss(name: str, kwargs: Mapping[str, float | bool]) -> Loss:
    """The loss ``name`` with the arguments ``kwargs``: (estimate, target) to the loss of each entry.

    Raises:
        ValueError: unknown name, an argument that the loss does not take, true or false for a number or
            vice versa, beta < 0 or delta <= 0.
    """
    if name not in LOSSES:
        raise ValueError(f"unknown loss {name!r}; known: {', '.join(LOSSES)}")
    takes = arguments(name)
    unknown = sorted(set(kwargs) - set(takes))
    if unknown:
        raise ValueError(f"{name} does not take {', '.join(unknown)}; it takes {', '.join(takes) or 'none'}")
    for key, value in kwargs.items():
        if isinstance(value, bool) != isinstance(takes[key], bool):
            kind = "true or false" if isinstance(takes[key], bool) else "a number"
            raise ValueError(f"{name} needs {kind} for {key}, not {value!r}")
    if kwargs.get("beta", 1.0) < 0 or kwargs.get("delta", 1.0) <= 0:
        raise ValueError(f"{name} needs beta >= 0 and delta > 0, not {dict(kwargs)}")
    return partial(LOSSES[name], **kwargs)
