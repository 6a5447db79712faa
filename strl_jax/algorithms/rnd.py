"""Random network distillation (Burda et al. 2018): a bonus for what a predictor has not seen often enough to know."""

import dataclasses
from typing import Annotated

import jax
import jax.numpy as jnp
import optax
from pydantic import BaseModel, ConfigDict, Field, field_validator

from strl_jax.algorithms import losses, optimizers, returns, schedules
from strl_jax.algorithms.base import Algorithm, Outputs, Term
from strl_jax.algorithms.hooks import Collected, RewardHook
from strl_jax.algorithms.schedules import Coefficient
from strl_jax.modules import normalizer
from strl_jax.modules.mlp import MLP, get_activation
from strl_jax.observations import Segments
from strl_jax.sharding import pmean
from strl_jax.types import Array, Batch, Transition

NAME, TARGET = "rnd", "rnd_target"  # parameter groups
STATE, REWARD = "rnd_state", "rnd_reward"  # statistics; the first is also what is stored with the steps

Width = Annotated[int, Field(ge=-1, le=2**31 - 2)]


class RNDConfig(BaseModel):
    """rsl_rl's keywords of ``rnd_cfg``; then ours. The sizes are ours too: one output, as elsewhere, is soon learned.

    Attributes:
        weight: factor of the intrinsic reward, a number, or a schedule ``{name: linear,
            init_value: ..., ...}`` of the iteration. It is taken as it is: rsl_rl multiplies it by
            the time step, starts at 0 and has ``weight_schedule`` beside it.
        num_outputs: entries of the embedding.
        predictor_hidden_dims, target_hidden_dims: sizes of the hidden layers; -1 means the input's.
        activation: name of the activation.
        learning_rate: of the predictor.
        state_normalization: normalise what the two networks see, each entry on its own.
        reward_normalization: divide the intrinsic reward by its standard deviation plus the
            algorithm's ``normalization_eps`` (rsl_rl: by that of its discounted sum).
        max_grad_norm: the predictor's gradient is clipped to this norm.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    weight: Coefficient = 1.0
    num_outputs: int = Field(16, ge=1, le=2**31 - 2)
    predictor_hidden_dims: tuple[Width, ...] = (256, 256)
    target_hidden_dims: tuple[Width, ...] = (256, 256)
    activation: str = "elu"
    learning_rate: float = Field(1e-3, ge=1e-30, le=1e3)
    state_normalization: bool = False
    reward_normalization: bool = False

    max_grad_norm: float = Field(1.0, ge=1e-30, le=1e30)

    @field_validator("predictor_hidden_dims", "target_hidden_dims")
    @classmethod
    def _no_empty_layer(cls, value):
        if 0 in value:
            raise ValueError("a hidden layer of size 0; give sizes from 1, or -1 for the size of the input")
        return value

    @field_validator("activation")
    @classmethod
    def _activation_exists(cls, value):
        get_activation(value)
        return value


def add(algorithm: Algorithm, config: RNDConfig, group: Segments) -> Algorithm:
    """``algorithm`` with an intrinsic reward and the loss that makes it fade.

    The reward of a step gains weight(iteration) * |target(x) - predictor(x)|, where x is the
    observation that the step led to, at an episode's end the terminal one. The target keeps its
    random weights; ``rnd_loss``, the mean squared error, moves the predictor towards it.

    Args:
        algorithm: any; it keeps its own hooks, terms and optimisers.
        config: numbers.
        group: what the two networks see.

    Raises:
        ValueError: ``algorithm`` has random network distillation already.
    """
    if NAME in algorithm.optimizers:
        raise ValueError("random network distillation stands twice")
    target, predictor = networks(config, group.size)
    optimizer = optimizers.make("Adam", config.max_grad_norm, algorithm.compat.grad_norm_eps)

    def error(params: dict, mb: Batch) -> Array:
        return embedding_error(target, predictor, params, mb.extras[STATE])

    return dataclasses.replace(
        algorithm,
        terms=(*algorithm.terms, Term("rnd_loss", optax.constant_schedule(1.0), _loss)),
        optimizers=algorithm.optimizers | {NAME: optimizer},
        rates=algorithm.rates | {NAME: optax.constant_schedule(config.learning_rate)},
        networks=algorithm.networks | {NAME: error},
        reward_hooks=(*algorithm.reward_hooks, _hook(algorithm, config, group, target, predictor)),
    )


def networks(config: RNDConfig, size: int) -> tuple[MLP, MLP]:
    """Target and predictor, each from ``[..., size]`` to ``[..., num_outputs]``."""

    def build(hidden: tuple[int, ...]) -> MLP:
        return MLP(tuple(size if width == -1 else width for width in hidden), config.num_outputs, config.activation)

    return build(config.target_hidden_dims), build(config.predictor_hidden_dims)


def embedding_error(target: MLP, predictor: MLP, params: dict, state: Array) -> Array:
    """target(x) - predictor(x) of states ``[..., D]``, ``[..., num_outputs]``; the target is a constant."""
    return jax.lax.stop_gradient(target.apply(params[TARGET], state)) - predictor.apply(params[NAME], state)


def _loss(outputs: Outputs, mb: Batch) -> Array:
    return losses.mean(jnp.mean(jnp.square(outputs[NAME]), axis=-1), mb.weight)


def _hook(algorithm: Algorithm, config: RNDConfig, group: Segments, target: MLP, predictor: MLP) -> RewardHook:
    eps, until = algorithm.config.normalization_eps, algorithm.config.normalization_until
    weight = schedules.make(config.weight)

    def init(key: Array) -> tuple[dict, dict]:
        target_key, predictor_key = jax.random.split(key)
        zeros, stats = jnp.zeros((1, group.size)), {}
        if config.state_normalization:
            stats[STATE] = normalizer.init((group.size,))
        if config.reward_normalization:
            stats[REWARD] = normalizer.init()
        return {TARGET: target.init(target_key, zeros), NAME: predictor.init(predictor_key, zeros)}, stats

    def normalized(stats: dict, state: Array) -> Array:
        return normalizer.normalize(stats[STATE], state, eps) if STATE in stats else state

    def reward(params, stats, data, key, collected: Collected, total: Array, axis_name: str | None):
        del data, key
        state, valid = group.flatten(collected.terminal_obs), collected.valid
        error = embedding_error(target, predictor, params, normalized(stats, state))
        bonus = jnp.where(valid, jnp.linalg.norm(error, axis=-1), 0.0)
        if REWARD in stats:
            moments = normalizer.update(stats[REWARD], bonus, where=valid, until=until, axis_name=axis_name)
            stats, bonus = stats | {REWARD: moments}, bonus / (jnp.sqrt(moments.var) + eps)
        bonus = weight(collected.iteration) * bonus
        mean = pmean(jnp.sum(returns.weights(valid, axis_name=axis_name) * bonus), axis_name)
        return total + bonus, {STATE: state}, stats, {"Episode_Reward/rnd_reward": mean}

    def prepare(stats: dict, steps: Transition) -> dict[str, Array]:
        return {STATE: normalized(stats, steps.extras[STATE])}

    def observe(stats: dict, steps: Transition, axis_name: str | None) -> dict:
        if STATE not in stats:
            return stats
        moments = normalizer.update(
            stats[STATE], steps.extras[STATE], where=steps.valid, until=until, axis_name=axis_name
        )
        return stats | {STATE: moments}

    return RewardHook(NAME, group.names, init, reward, prepare, observe)
