"""Proximal policy optimisation (Schulman et al. 2017): config, loss terms, ``make``."""

from collections.abc import Sequence
from typing import Any, Literal

import optax
from pydantic import Field, field_validator

from strl_jax.algorithms import estimator, losses, optimizers, schedules
from strl_jax.algorithms.base import Algorithm, Outputs, Term
from strl_jax.algorithms.compat import Compat
from strl_jax.algorithms.rnd import RNDConfig
from strl_jax.algorithms.schedules import Coefficient, RateSchedule
from strl_jax.algorithms.update import update
from strl_jax.modules.policy import Policy
from strl_jax.observations import Segments
from strl_jax.section import Count, Fraction, LearningRate, Positive, Section
from strl_jax.types import Batch

__all__ = ["EstimatorPPOConfig", "PPOConfig", "make", "terms", "update"]


class PPOConfig(Section):
    """The keywords and defaults of st_rl, then those of this library.

    Attributes:
        num_learning_epochs: passes over a rollout in an update.
        num_mini_batches: gradient steps in each pass.
        clip_param: clip range of the probability ratio and of the value.
        gamma, lam: discount factor, and lambda of GAE.
        value_loss_coef, entropy_coef, surrogate_loss_coef: factors of the loss terms,
            numbers or schedules ``{name: linear, init_value: ..., ...}`` of the iteration.
        learning_rate: the learning rate, or the initial value of an adaptive one.
        max_grad_norm: global norm to which gradients are clipped.
        use_clipped_value_loss: clip the value too.
        clip_min_std: minimum standard deviation of the actions, a number or one for each action.
        optimizer_class_name: torch's name of the optimiser.
        optimizer_kwargs: torch's arguments of this optimiser, such as ``{betas: [0.9, 0.99], weight_decay: 1e-4}``.
        schedule: ``fixed``, ``adaptive`` (follows the KL), or an optax schedule of
            the iteration ``{name: cosine_decay, init_value: 1e-3, decay_steps: 500}``.
        desired_kl: target KL of the ``adaptive`` schedule.
        empirical_normalization: normalise observations, each component with its own statistics.
        normalization_eps: added to the standard deviation by which values are divided.
        normalization_until: number of samples after which the statistics are constant; null: never.
        normalize_rewards: divide rewards by the standard deviation of their
            discounted sum.
        normalized_reward_clamp_value: normalised rewards are clipped to +- this value.
        rnd_cfg: random network distillation, an exploration bonus for rare observations; null: no bonus.
    """

    num_learning_epochs: Count = 1
    num_mini_batches: Count = 1
    clip_param: Positive = 0.2
    gamma: Fraction = 0.998
    lam: Fraction = 0.95
    value_loss_coef: Coefficient = 1.0
    entropy_coef: Coefficient = 0.0
    learning_rate: LearningRate = 1e-3
    max_grad_norm: Positive = 1.0
    use_clipped_value_loss: bool = True
    clip_min_std: Positive | tuple[Positive, ...] = 1e-15
    optimizer_class_name: Literal[tuple(optimizers.OPTIMIZERS)] = "Adam"
    optimizer_kwargs: dict[str, Any] = Field(default_factory=dict)
    schedule: Literal["fixed", "adaptive"] | RateSchedule = "fixed"
    desired_kl: Positive = 0.01
    empirical_normalization: bool = False

    surrogate_loss_coef: Coefficient = 1.0
    normalization_eps: Positive = 1e-2
    normalization_until: Positive | None = 1e8
    normalize_rewards: bool = False
    normalized_reward_clamp_value: Positive = 5.0
    rnd_cfg: RNDConfig | None = None

    @field_validator("optimizer_kwargs")
    @classmethod
    def _optimizer_takes(cls, arguments: dict[str, Any], info: Any) -> dict[str, Any]:
        if "optimizer_class_name" in info.data:
            optimizers.OPTIMIZERS[info.data["optimizer_class_name"]].model_validate(arguments)
        return arguments


class EstimatorPPOConfig(estimator.EstimatorFields, PPOConfig):
    """PPO that also trains the policy's estimator and adaptor."""


def terms(config: PPOConfig) -> tuple[Term, ...]:
    """Surrogate, value and entropy."""
    clip = config.clip_param
    value_clip = clip if config.use_clipped_value_loss else None

    def surrogate(outputs: Outputs, mb: Batch):
        output = outputs.policy
        log_prob = losses.log_prob(mb.action, output.mean, output.std)
        return losses.surrogate(log_prob, mb.log_prob, mb.advantage, clip=clip, weight=mb.weight)

    def value(outputs: Outputs, mb: Batch):
        return losses.value(outputs.policy.value, mb.value, mb.return_, clip=value_clip, weight=mb.weight)

    def entropy(outputs: Outputs, mb: Batch):
        return losses.entropy(outputs.policy.std, weight=mb.weight)

    return (
        Term("surrogate_loss", schedules.make(config.surrogate_loss_coef), surrogate),
        Term("value_loss", schedules.make(config.value_loss_coef), value),
        Term("entropy", schedules.make(config.entropy_coef), entropy),
    )


def make(
    config: PPOConfig,
    policy: Policy,
    actor: Segments,
    critic: Segments,
    compat: Compat = Compat(),  # noqa: B008 (frozen)
) -> Algorithm:
    """PPO over ``policy``.

    Args:
        config: settings; an ``EstimatorPPOConfig`` adds the supervised terms.
        policy: actor-critic; its ``log_std`` must be the opposite of ``compat.linear_std``.
        actor, critic: observation groups of the two networks.
        compat: which behaviours of st_rl are switched on.

    Raises:
        ValueError: ``clip_min_std`` has another length than the actions, or
            ``policy.log_std`` equals ``compat.linear_std``.
    """
    if isinstance(config.clip_min_std, Sequence) and len(config.clip_min_std) != policy.action_size:
        raise ValueError(
            f"clip_min_std: {list(config.clip_min_std)} is not allowed; it must be one number, "
            f"or one for each of the {policy.action_size} actions"
        )
    if policy.log_std == compat.linear_std:
        raise ValueError("policy.log_std and compat.linear_std must be opposites")
    estimates = isinstance(config, estimator.EstimatorFields)
    return Algorithm(
        config=config,
        compat=compat,
        policy=policy,
        groups={"actor": actor, "critic": critic},
        terms=terms(config) + (estimator.terms(config, policy) if estimates else ()),
        optimizers={"policy": make_optimizer(config, compat)},
    )


def make_optimizer(
    config: PPOConfig, compat: Compat, *, scheduled_momentum: bool = False
) -> optax.GradientTransformation:
    """The optimiser of the policy; ``scheduled_momentum`` as in ``optimizers.make``."""
    return optimizers.make(
        config.optimizer_class_name,
        config.max_grad_norm,
        compat.grad_norm_eps,
        config.optimizer_kwargs,
        scheduled_momentum=scheduled_momentum,
    )
