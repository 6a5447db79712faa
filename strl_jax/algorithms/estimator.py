"""The supervised terms of policies that estimate parts of what the critic sees: config fields and ``terms``."""

from typing import Annotated, Literal

import chex
import jax.numpy as jnp
from pydantic import Field, model_validator

from strl_jax.algorithms import losses, schedules
from strl_jax.algorithms.base import Outputs, Term
from strl_jax.algorithms.estimator_losses import LOSSES, elementwise_loss
from strl_jax.algorithms.schedules import Coefficient
from strl_jax.modules.estimators import estimation_targets
from strl_jax.modules.policy import Policy
from strl_jax.section import Section
from strl_jax.types import Batch


class EstimatorFields(Section):
    """The keywords and defaults of st_rl's ``EstimatorAlgoMixin``, then those of this library.

    Attributes:
        estimator_loss_func: torch's name of the elementwise loss. binary_cross_entropy is NaN for estimates that are
            not in [0, 1]; binary_cross_entropy_with_logits takes any.
        estimator_loss_kwargs: its arguments: ``beta`` of ``smooth_l1_loss``, ``delta`` of ``huber_loss``, ``margin``
            of ``hinge_embedding_loss``, ``log_input``, ``full`` and ``eps`` of ``poisson_nll_loss``, ``log_target``
            of ``kl_div``.
        estimator_loss_coef: factor of the estimator's loss, a number, or a schedule
            ``{name: linear, init_value: ..., ...}`` of the iteration. Adam cancels it for a network that has no other
            loss, which is each adaptor, and each estimator without ``use_actor_rnn``.
        adaptor_loss_coef: factor of the adaptor's loss, a number or a schedule.
    """

    estimator_loss_func: Literal[tuple(LOSSES)] = "mse_loss"
    estimator_loss_kwargs: dict[str, bool | Annotated[float, Field(ge=0, le=1e30)]] = Field(default_factory=dict)
    estimator_loss_coef: Coefficient = 1.0

    adaptor_loss_coef: Coefficient = 1.0

    @model_validator(mode="after")
    def _loss_exists(self):
        elementwise_loss(self.estimator_loss_func, self.estimator_loss_kwargs)
        return self


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
