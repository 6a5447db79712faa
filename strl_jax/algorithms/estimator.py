"""The supervised terms of policies that estimate parts of what the critic sees: config fields and ``terms``."""

from collections.abc import Callable, Mapping
from typing import Annotated, Literal

import chex
import jax.numpy as jnp
from pydantic import Field, model_validator

from strl_jax.algorithms import losses, schedules
from strl_jax.algorithms.base import Outputs, Term
from strl_jax.algorithms.schedules import Coefficient
from strl_jax.modules.estimators import estimation_targets
from strl_jax.modules.policy import Policy
from strl_jax.section import Section
from strl_jax.types import Array, Batch

# The arguments that each loss takes.
ARGUMENTS = {"mse_loss": (), "l1_loss": (), "smooth_l1_loss": ("beta",), "huber_loss": ("delta",)}


class EstimatorFields(Section):
    """The keywords and defaults of st_rl's ``EstimatorAlgoMixin``, then those of this library.

    Attributes:
        estimator_loss_func: torch's name of the elementwise loss.
        estimator_loss_kwargs: its arguments: ``beta`` of ``smooth_l1_loss``, ``delta`` of ``huber_loss``.
        estimator_loss_coef: factor of the estimator's loss, a number, or a schedule
            ``{name: linear, init_value: ..., ...}`` of the iteration. Adam cancels it for a network that has no other
            loss, which is each adaptor, and each estimator without ``use_actor_rnn``.
        adaptor_loss_coef: factor of the adaptor's loss, a number or a schedule.
    """

    estimator_loss_func: Literal["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"] = "mse_loss"
    estimator_loss_kwargs: dict[str, Annotated[float, Field(ge=0, le=1e30)]] = Field(default_factory=dict)
    estimator_loss_coef: Coefficient = 1.0

    adaptor_loss_coef: Coefficient = 1.0

    @model_validator(mode="after")
    def _loss_exists(self):
        elementwise_loss(self.estimator_loss_func, self.estimator_loss_kwargs)
        return self


def elementwise_loss(name: str, kwargs: Mapping[str, float]) -> Callable[[Array, Array], Array]:
    """One of torch.nn.functional's losses with ``reduction="none"``: (estimate, target) to the loss of each entry.

    With d = estimate - target:

    - ``mse_loss``: d^2.
    - ``l1_loss``: |d|.
    - ``smooth_l1_loss``: d^2 / (2 beta) where |d| < beta, else |d| - beta / 2; beta is 1 unless given, 0 means |d|.
    - ``huber_loss``: d^2 / 2 where |d| < delta, else delta (|d| - delta / 2); delta is 1 unless given.

    Raises:
        ValueError: unknown name, an argument that the loss does not take, beta < 0 or delta <= 0.
    """
    if name not in ARGUMENTS:
        raise ValueError(f"unknown loss {name!r}; known: {', '.join(ARGUMENTS)}")
    unknown = sorted(set(kwargs) - set(ARGUMENTS[name]))
    if unknown:
        raise ValueError(f"{name} does not take {', '.join(unknown)}; it takes {', '.join(ARGUMENTS[name]) or 'none'}")
    beta, delta = kwargs.get("beta", 1.0), kwargs.get("delta", 1.0)
    if beta < 0 or delta <= 0:
        raise ValueError(f"{name} needs beta >= 0 and delta > 0, not {dict(kwargs)}")
    if name == "mse_loss":
        return lambda estimate, target: jnp.square(estimate - target)
    if name == "l1_loss" or beta < 1e-37:  # it is 0 in float32
        return lambda estimate, target: jnp.abs(estimate - target)
    if name == "smooth_l1_loss":
        return lambda estimate, target: _huber(estimate - target, beta) / beta
    return lambda estimate, target: _huber(estimate - target, delta)


def _huber(error: Array, delta: float) -> Array:
    size = jnp.abs(error)
    return jnp.where(size < delta, 0.5 * jnp.square(error), delta * (size - 0.5 * delta))


def terms(config: EstimatorFields, policy: Policy) -> tuple[Term, ...]:
    """``estimator_loss`` and ``adaptor_loss``, each if the policy has the stage.

    A term is the mean over samples of the SUM over entries of the elementwise loss
    between the estimate and the critic's normalised observation.
    """
    coefs = {"estimator": config.estimator_loss_coef, "adaptor": config.adaptor_loss_coef}
    return tuple(_term(config, policy, name, coef) for name, coef in coefs.items() if getattr(policy, name) is not None)


def _term(config: EstimatorFields, policy: Policy, name: str, coef: Coefficient) -> Term:
    loss = elementwise_loss(config.estimator_loss_func, config.estimator_loss_kwargs)
    stage = getattr(policy, name)

    def fn(outputs: Outputs, mb: Batch):
        estimate = outputs.policy.estimates[name]
        target = estimation_targets(stage, policy.actor_obs, policy.critic_obs, mb.groups["critic"])
        chex.assert_equal_shape([estimate, target])
        return losses.mean(jnp.sum(loss(estimate, target), axis=-1), mb.weight)

    return Term(f"{name}_loss", schedules.make(coef), fn)
