"""Optimisers under their torch names, with gradient clipping, at learning rate 1.

The learning rate is a number in the train state that scales the updates. It can therefore change at
every minibatch, and the optimiser's state does not depend on it.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

OPTIMIZERS: dict[str, Callable[[], optax.GradientTransformation]] = {
    "Adam": lambda: optax.adam(1.0),
    "AdamW": lambda: optax.adamw(1.0, weight_decay=1e-2),
    "Adamax": lambda: optax.adamax(1.0),
    "NAdam": lambda: optax.nadam(1.0),
    "RAdam": lambda: optax.radam(1.0),
    "RMSprop": lambda: optax.rmsprop(1.0, decay=0.99, eps=1e-8, eps_in_sqrt=False),
    "SGD": lambda: optax.sgd(1.0),
}


def make(name: str, max_grad_norm: float, norm_eps: float = 0.0) -> optax.GradientTransformation:
    """Clip by global norm, then the optimiser ``name`` with torch's defaults (but NAdam has no momentum decay).

    Raises:
        ValueError: unknown name; the message lists the known ones.
    """
    if name not in OPTIMIZERS:
        raise ValueError(f"unknown optimizer {name!r}; known: {', '.join(OPTIMIZERS)}")
    clip = optax.clip_by_global_norm(max_grad_norm) if norm_eps == 0 else _clip_like_torch(max_grad_norm, norm_eps)
    return optax.chain(clip, OPTIMIZERS[name]())


def init(optimizer: optax.GradientTransformation, params):
    """State of the optimiser over all parameters as one flat vector, for ``step``."""
    return optimizer.init(ravel_pytree(params)[0])


def step(optimizer: optax.GradientTransformation, params, grads, opt_state, learning_rate):
    """One update; skipped if the gradient or the learning rate is not finite.

    The optimiser gets one flat vector, which takes a few kernels instead of a few for every weight.

    Returns:
        parameters, optimiser state, gradient norm before clipping, and whether
        the update was skipped (bool).
    """
    flat, unravel = ravel_pytree(grads)
    norm = optax.tree.norm(flat)
    ok = jnp.isfinite(norm) & jnp.isfinite(learning_rate)
    updates, new_state = optimizer.update(flat, opt_state, ravel_pytree(params)[0])
    updates = unravel(jnp.where(ok, learning_rate * updates, 0.0))
    new_state = jax.tree.map(lambda new, old: jnp.where(ok, new, old), new_state, opt_state)
    return optax.apply_updates(params, updates), new_state, norm, ~ok


def _clip_like_torch(max_norm: float, eps: float) -> optax.GradientTransformation:
    def update(grads, state, params=None):
        del params
        scale = jnp.minimum(1.0, max_norm / (optax.tree.norm(grads) + eps))
        return jax.tree.map(lambda g: g * scale, grads), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)
