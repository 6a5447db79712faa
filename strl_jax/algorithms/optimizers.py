"""Optimisers under their torch names, with gradient clipping, at learning rate 1.

The learning rate is a number in the train state that scales the updates: it may
change at every minibatch without touching the optimiser's state.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

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
    """Clip by global norm, then the optimiser ``name`` with torch's defaults.

    Raises:
        ValueError: unknown name; the message lists the known ones.
    """
    if name not in OPTIMIZERS:
        raise ValueError(f"unknown optimizer {name!r}; known: {', '.join(OPTIMIZERS)}")
    clip = optax.clip_by_global_norm(max_grad_norm) if norm_eps == 0 else _clip_like_torch(max_grad_norm, norm_eps)
    return optax.chain(clip, OPTIMIZERS[name]())


def step(optimizer: optax.GradientTransformation, params, grads, opt_state, learning_rate):
    """One update; parameters and state stay as they are where the gradient is not finite.

    Returns:
        parameters, optimiser state, gradient norm before clipping, and whether
        the update was skipped (bool).
    """
    norm = optax.global_norm(grads)
    ok = jnp.isfinite(norm)
    updates, new_state = optimizer.update(grads, opt_state, params)
    new_params = optax.apply_updates(params, jax.tree.map(lambda u: learning_rate * u, updates))

    def keep(new, old):
        return jax.tree.map(lambda a, b: jnp.where(ok, a, b), new, old)

    return keep(new_params, params), keep(new_state, opt_state), norm, ~ok


def _clip_like_torch(max_norm: float, eps: float) -> optax.GradientTransformation:
    def update(grads, state, params=None):
        del params
        scale = jnp.minimum(1.0, max_norm / (optax.global_norm(grads) + eps))
        return jax.tree.map(lambda g: g * scale, grads), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)
