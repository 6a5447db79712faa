"""Optimisers under their torch names, with torch's arguments and gradient clipping, at learning rate 1.

The learning rate is a number in the train state that scales the updates. It can therefore change at
every minibatch, and the optimiser's state does not depend on it. One model for each optimiser: its fields are
torch's arguments with torch's defaults.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from pydantic import ConfigDict, Field

from strl_jax.section import Arguments
from strl_jax.types import Array

Decay = Annotated[float, Field(ge=0, lt=1)]  # of an exponentially weighted average
Size = Annotated[float, Field(ge=0, le=1e30)]
Momentum = float | Array


class Optimizer(Arguments):
    """An optimiser of torch.

    Attributes:
        has_momentum: torch's schedulers can change its momentum, or the first of its betas.
        weight_decay: this times the weights is added to the gradient.
    """

    model_config = ConfigDict(strict=True)
    has_momentum: ClassVar[bool] = True

    weight_decay: Size = 0.0

    def transformation(self, momentum: Momentum | None = None) -> optax.GradientTransformation:
        """The optimiser at learning rate 1; ``momentum`` replaces the configured one."""
        rule = self.rule(momentum)
        return optax.chain(optax.add_decayed_weights(self.weight_decay), rule) if self.weight_decay else rule

    def rule(self, momentum: Momentum | None) -> optax.GradientTransformation:
        """The optimiser without the decay of the weights."""
        raise NotImplementedError


class _Betas(Optimizer):
    betas: Annotated[tuple[Decay, Decay], Field(strict=False)] = (0.9, 0.999)

    def averages(self, momentum: Momentum | None) -> dict[str, Momentum]:
        """optax's names of the betas, with ``momentum`` in place of the first."""
        return {"b1": self.betas[0] if momentum is None else momentum, "b2": self.betas[1]}


class Adam(_Betas):
    eps: Size = 1e-8

    def rule(self, momentum):
        return optax.adam(1.0, eps=self.eps, **self.averages(momentum))


class AdamW(_Betas):
    eps: Size = 1e-8
    weight_decay: Size = 1e-2  # of the weights themselves, not added to the gradient

    def transformation(self, momentum=None):
        return optax.adamw(1.0, eps=self.eps, weight_decay=self.weight_decay, **self.averages(momentum))


class Adamax(_Betas):
    eps: Size = 1e-8

    def rule(self, momentum):
        return optax.adamax(1.0, eps=self.eps, **self.averages(momentum))


class NAdam(_Betas):
    """Without torch's ``momentum_decay``."""

    eps: Size = 1e-8

    def rule(self, momentum):
        return optax.nadam(1.0, eps=self.eps, **self.averages(momentum))


class RAdam(_Betas):
    """Without ``eps``, which optax and torch use differently."""

    def rule(self, momentum):
        return optax.radam(1.0, **self.averages(momentum))


class RMSprop(Optimizer):
    alpha: Decay = 0.99
    eps: Size = 1e-8
    momentum: Decay = 0.0
    centered: bool = False

    def rule(self, momentum):
        momentum = (self.momentum or None) if momentum is None else momentum
        options = {"decay": self.alpha, "eps": self.eps, "eps_in_sqrt": False, "centered": self.centered}
        return optax.rmsprop(1.0, momentum=momentum, **options)


class SGD(Optimizer):
    """Without ``dampening``."""

    momentum: Decay = 0.0
    nesterov: bool = False

    def rule(self, momentum):
        return optax.sgd(1.0, (self.momentum or None) if momentum is None else momentum, self.nesterov)


class Adagrad(Optimizer):
    has_momentum = False

    lr_decay: Size = 0.0
    initial_accumulator_value: Size = 0.0
    eps: Size = 1e-10

    def rule(self, momentum):
        return _adagrad(self.lr_decay, self.initial_accumulator_value, self.eps)


class Adadelta(Optimizer):
    has_momentum = False

    rho: Decay = 0.9
    eps: Size = 1e-6

    def rule(self, momentum):
        return optax.adadelta(1.0, rho=self.rho, eps=self.eps)


OPTIMIZERS: dict[str, type[Optimizer]] = {
    kind.__name__: kind for kind in (Adam, AdamW, Adamax, NAdam, RAdam, RMSprop, SGD, Adagrad, Adadelta)
}


def make(
    name: str,
    max_grad_norm: float | None,
    norm_eps: float = 0.0,
    arguments: Mapping[str, Any] | None = None,
    *,
    scheduled_momentum: bool = False,
) -> optax.GradientTransformation:
    """Clip by global norm, then the optimiser ``name``.

    Args:
        name: one of ``OPTIMIZERS``.
        max_grad_norm: norm to which gradients are clipped; None: no clipping.
        norm_eps: as torch, gradients are scaled by min(1, max_grad_norm / (norm + this)).
        arguments: torch's arguments; those that are missing have torch's defaults.
        scheduled_momentum: ``update`` gets the momentum as a keyword argument ``momentum``.

    Raises:
        ValueError: unknown name, the message lists the known ones; an argument that is not allowed; or a
            scheduled momentum for an optimiser that has none.
    """
    if name not in OPTIMIZERS:
        raise ValueError(f"unknown optimizer {name!r}; known: {', '.join(OPTIMIZERS)}")
    settings = OPTIMIZERS[name].model_validate(dict(arguments or {}))
    if scheduled_momentum and not settings.has_momentum:
        raise ValueError(f"{name} has no momentum that a scheduler could change")
    return optax.chain(
        _clip(max_grad_norm, norm_eps),
        _with_scheduled_momentum(settings) if scheduled_momentum else settings.transformation(),
    )


def init(optimizer: optax.GradientTransformation, params):
    """State of the optimiser over all parameters as one flat vector, for ``step``."""
    return optimizer.init(ravel_pytree(params)[0])


def step(optimizer: optax.GradientTransformation, params, grads, opt_state, learning_rate, **extra: Array):
    """One update; skipped if the gradient or the learning rate is not finite.

    The optimiser gets one flat vector, which takes a few kernels instead of a few for every weight.

    Args:
        extra: keyword arguments of the optimiser's ``update``: a scheduled ``momentum``.

    Returns:
        parameters, optimiser state, gradient norm before clipping, and whether
        the update was skipped (bool).
    """
    flat, unravel = ravel_pytree(grads)
    norm = optax.tree.norm(flat)
    ok = jnp.isfinite(norm) & jnp.isfinite(learning_rate)
    updates, new_state = optimizer.update(flat, opt_state, ravel_pytree(params)[0], **extra)
    updates = unravel(jnp.where(ok, learning_rate * updates, 0.0))
    new_state = jax.tree.map(lambda new, old: jnp.where(ok, new, old), new_state, opt_state)
    return optax.apply_updates(params, updates), new_state, norm, ~ok


def _clip(max_norm: float | None, eps: float) -> optax.GradientTransformation:
    if max_norm is None:
        return optax.identity()
    return optax.clip_by_global_norm(max_norm) if eps == 0 else _clip_like_torch(max_norm, eps)


def _clip_like_torch(max_norm: float, eps: float) -> optax.GradientTransformation:
    def update(grads, state, params=None):
        del params
        scale = jnp.minimum(1.0, max_norm / (optax.tree.norm(grads) + eps))
        return jax.tree.map(lambda g: g * scale, grads), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def _with_scheduled_momentum(settings: Optimizer) -> optax.GradientTransformationExtraArgs:
    """The optimiser with the momentum of each update as an argument; its state is the same for every momentum."""

    def update(grads, state, params=None, *, momentum, **extra):
        del extra
        return settings.transformation(momentum).update(grads, state, params)

    return optax.GradientTransformationExtraArgs(settings.transformation(0.0).init, update)


class AdagradState(NamedTuple):
    """State of ``_adagrad``."""

    count: Array  # int32[], number of updates
    sum: Array  # sum of the squared gradients


def _adagrad(lr_decay: float, initial: float, eps: float) -> optax.GradientTransformation:
    """torch's Adagrad: -g / (sqrt(sum of g^2) + eps) / (1 + count * lr_decay); optax has eps inside of the root.

    "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization" (Duchi, Hazan and Singer 2011).
    """

    def init(params):
        return AdagradState(jnp.int32(0), jnp.full_like(params, initial))

    def update(grads, state, params=None):
        del params
        total = state.sum + jnp.square(grads)
        rate = 1.0 / (1.0 + state.count.astype(jnp.float32) * lr_decay)
        return -rate * grads / (jnp.sqrt(total) + eps), AdagradState(optax.safe_increment(state.count), total)

    return optax.GradientTransformation(init, update)
