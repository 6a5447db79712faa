"""Adversarial motion priors on top of PPO, or of any algorithm: config, terms, ``add``, ``make``.

"AMP: Adversarial Motion Priors for Stylized Physics-Based Character Control" (https://arxiv.org/abs/2104.02180).
"""

import dataclasses
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import optax
from flax import struct
from pydantic import Field

from strl_jax.algorithms import losses, minibatch, optimizers, ppo, schedules
from strl_jax.algorithms.amp_input import EXPERT, POLICY, AmpInput, make_input
from strl_jax.algorithms.base import Algorithm, Metric, Outputs, Term
from strl_jax.algorithms.compat import Compat
from strl_jax.algorithms.hooks import LABELS
from strl_jax.algorithms.ppo import PPOConfig
from strl_jax.algorithms.schedules import Coefficient
from strl_jax.algorithms.style import DISCRIMINATOR, REPLAYED, Style, StyleHook
from strl_jax.algorithms.update import update
from strl_jax.modules.policy import Policy
from strl_jax.observations import Segments
from strl_jax.section import MOST, Count, Fraction, LearningRate, Positive, Section, Text
from strl_jax.types import Array, Batch

__all__ = ["APPOConfig", "AmpFields", "AmpInput", "Style", "add", "make", "make_input", "update"]

Optimizer = Literal[tuple(optimizers.OPTIMIZERS)]


class AmpFields(Section):
    """The keywords and defaults of st_rl's ``APPOAlgoMixin``, then those of this library.

    Attributes:
        discriminator_loss_coef: factor of the discriminator's losses, a number, or a
            schedule ``{name: linear, init_value: ..., ...}`` of the iteration. Adam divides gradients by their size
            and cancels it; ``discriminator_learning_rate`` sets the size of the steps.
        mimic_loss_coef: factor of the mimic loss, a number or a schedule. It is used only with
            ``compat.mimic_in_loss``, because the loss has no gradient.
        dagger_loss_coef: factor of the distance between the mean action and the action
            labels, a number or a schedule.
        amp_obs_dim: length of the states that the discriminator sees; null: the length in the
            environment and the expert's file.
        discriminator_learning_rate: learning rate of the discriminator; null: the value of ``learning_rate``.
        discriminator_max_grad_norm: global norm to which the discriminator's gradients are clipped.
        discriminator_optimizer_class_name: torch's name of the discriminator's optimiser.
        discriminator_batch_fraction: fraction of each minibatch from which the discriminator learns. As in
            other implementations of AMP, a part is enough; the whole minibatch costs more time than the policy.
        amp_replay_size: number of last steps of each environment from which the policy's states for the
            discriminator are drawn at random; 0: they are the states of the minibatch.
        task_reward_w: reward = style + task_reward_w * task; null: the two are mixed by ``task_reward_lerp``.
        discriminator_termination_threshold: an episode ends where the style reward without
            ``style_reward_coef`` is below this value; null: never.
        expert_file: .npy file with the expert's states [N, amp_obs_dim]; null: the environment's ref_motion.
    """

    discriminator_loss_coef: Coefficient = 1.0
    mimic_loss_coef: Coefficient = 0.0
    dagger_loss_coef: Coefficient = 0.0
    amp_obs_dim: Count | None = None

    discriminator_learning_rate: LearningRate | None = None
    discriminator_max_grad_norm: Positive = 1.0
    discriminator_optimizer_class_name: Optimizer = "Adam"
    discriminator_batch_fraction: float = Field(0.25, gt=0, le=1)
    amp_replay_size: int = Field(0, ge=0, le=MOST)
    task_reward_w: Annotated[float, Field(ge=0, le=1e30)] | None = None
    discriminator_termination_threshold: Fraction | None = None
    expert_file: Text | None = None


class APPOConfig(AmpFields, PPOConfig):
    """PPO with a discriminator."""


@struct.dataclass
class Scores:
    """The discriminator on N of a minibatch's samples."""

    policy: Array  # [N]
    expert: Array  # [N]
    gradient: Array  # [N, D], gradient of the expert's scores with respect to the expert's states
    weight: Array  # [N], weights of the samples; their sum, averaged over shards, is 1


def discriminate(style: Style, params: dict, mb: Batch, fraction: float = 1.0) -> Scores:
    """Scores of the policy's and the expert's states, and the gradient with respect to the expert's states.

    Args:
        fraction: share of the samples, evenly spread over the shuffled minibatch.
    """
    rows = minibatch.spread(mb.weight.size, fraction)

    def pick(x: Array) -> Array:
        flat = x.reshape(mb.weight.size, *x.shape[mb.weight.ndim :])
        return flat if fraction == 1 else flat[rows]

    expert, pullback = jax.vjp(lambda states: style.score(params, states), pick(mb.extras[EXPERT]))
    (gradient,) = pullback(jnp.ones_like(expert))
    policy = style.score(params, pick(mb.extras[REPLAYED if REPLAYED in mb.extras else POLICY]))
    weight = pick(mb.weight) * (mb.weight.size / len(rows)) if mb.shares is None else mb.shares[DISCRIMINATOR]
    return Scores(policy, expert, gradient, weight)


def terms(config: AmpFields, style: Style, compat: Compat) -> tuple[Term, ...]:
    """The discriminator's three losses; ``dagger_loss`` and ``mimic_loss`` if their factors are not 0.

    ``mimic_loss`` also needs ``compat.mimic_in_loss``.
    """
    coef = schedules.make(config.discriminator_loss_coef)
    if compat.discriminator_with_policy:
        coef = _gate(coef)

    def expert(outputs: Outputs, mb: Batch):
        del mb
        return _least_squares(outputs)[0]

    def policy(outputs: Outputs, mb: Batch):
        del mb
        return _least_squares(outputs)[1]

    def penalty(outputs: Outputs, mb: Batch):
        del mb
        scores = outputs.networks[DISCRIMINATOR]
        return losses.gradient_penalty(scores.gradient, coef=style.discriminator_grad_pen, weight=scores.weight)

    found = [
        Term("discriminator_expert_loss", coef, expert),
        Term("discriminator_policy_loss", coef, policy),
        Term("discriminator_grad_len_loss", coef, penalty),
    ]
    if config.dagger_loss_coef != 0:
        found.append(Term("dagger_loss", schedules.make(config.dagger_loss_coef), _dagger))
    if _mimics(config, compat):
        found.append(Term("mimic_loss", schedules.make(config.mimic_loss_coef), _mimic))
    return tuple(found)


def metrics(config: AmpFields, compat: Compat) -> tuple[Metric, ...]:
    """Accuracy and scores of the discriminator, and ``mimic_loss`` unless it is a term."""

    def mean(name: str, fn) -> Metric:
        def average(outputs: Outputs, mb: Batch) -> Array:
            del mb
            scores = outputs.networks[DISCRIMINATOR]
            return losses.mean(fn(scores), scores.weight)

        return Metric(name, average)

    found = (
        mean("expert_accuracy", lambda scores: scores.expert > 0),
        mean("policy_accuracy", lambda scores: scores.policy < 0),
        mean("expert_logit", lambda scores: scores.expert),
        mean("policy_logit", lambda scores: scores.policy),
        mean("grad_penalty_norm", lambda scores: jnp.linalg.norm(scores.gradient, axis=-1)),
    )
    return found if _mimics(config, compat) else (*found, Metric("mimic_loss", _mimic))


def add(algorithm: Algorithm, config: AmpFields, style: Style, amp: AmpInput) -> Algorithm:
    """An algorithm with a discriminator and its style reward.

    Args:
        algorithm: any; its act hook, if it has one, gives ``action_labels``.
        config: settings; it must also have the field ``learning_rate``.
        style: the discriminator and the weights of its rewards.
        amp: the input of the discriminator.
    """
    compat = algorithm.compat
    fraction = 1.0 if compat.whole_discriminator_batch else config.discriminator_batch_fraction
    hook = StyleHook(
        style=style,
        amp=amp,
        compat=compat,
        task_reward_w=config.task_reward_w,
        termination_threshold=config.discriminator_termination_threshold,
        executed_labels=compat.executed_labels or algorithm.act_hook is None,
        memory_size=config.amp_replay_size,
    )
    return dataclasses.replace(
        algorithm,
        terms=algorithm.terms + terms(config, style, compat),
        metrics=algorithm.metrics + metrics(config, compat),
        networks=algorithm.networks | {DISCRIMINATOR: lambda params, mb: discriminate(style, params, mb, fraction)},
        shares=algorithm.shares | {DISCRIMINATOR: fraction},
        reward_hooks=(*algorithm.reward_hooks, hook),
        **_optimization(algorithm, config),
    )


def make(
    config: APPOConfig,
    policy: Policy,
    actor: Segments,
    critic: Segments,
    style: Style,
    amp: AmpInput,
    compat: Compat = Compat(),  # noqa: B008 (frozen)
) -> Algorithm:
    """PPO over ``policy`` with a discriminator; arguments and errors as in ``ppo.make`` and ``add``."""
    return add(ppo.make(config, policy, actor, critic, compat), config, style, amp)


def _optimization(algorithm: Algorithm, config: AmpFields) -> dict:
    """The optimiser of the discriminator: a separate one, or the policy's with ``compat.discriminator_with_policy``."""
    compat = algorithm.compat
    if compat.discriminator_with_policy:
        together = (*algorithm.members.get("policy", ("policy",)), DISCRIMINATOR)
        return {"members": algorithm.members | {"policy": together}}
    name, clip = config.discriminator_optimizer_class_name, config.discriminator_max_grad_norm
    rate = config.discriminator_learning_rate
    rate = config.learning_rate if rate is None else rate
    return {
        "optimizers": algorithm.optimizers | {DISCRIMINATOR: optimizers.make(name, clip, compat.grad_norm_eps)},
        "rates": algorithm.rates | {DISCRIMINATOR: optax.constant_schedule(rate)},
    }


def _gate(coef: optax.Schedule) -> optax.Schedule:
    """A schedule that is 1 where ``coef`` is not 0, otherwise 0."""
    return lambda iteration: jnp.where(jnp.asarray(coef(iteration)) != 0, 1.0, 0.0)


def _least_squares(outputs: Outputs) -> tuple[Array, Array]:
    scores = outputs.networks[DISCRIMINATOR]
    return losses.least_squares_discriminator(scores.policy, scores.expert, weight=scores.weight)


def _dagger(outputs: Outputs, mb: Batch) -> Array:
    return losses.distance(outputs.policy.mean, mb.extras[LABELS], weight=mb.weight)


def _mimic(outputs: Outputs, mb: Batch) -> Array:
    del outputs
    return losses.distance(mb.extras[POLICY], mb.extras[EXPERT], weight=mb.weight)


def _mimics(config: AmpFields, compat: Compat) -> bool:
    return compat.mimic_in_loss and config.mimic_loss_coef != 0
