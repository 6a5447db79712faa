"""Random network distillation: a reward for observations that a predictor network has seldom seen.

"Exploration by Random Network Distillation" (https://arxiv.org/abs/1810.12894).
"""

import dataclasses
from dataclasses import dataclass
from typing import Annotated

import jax
import jax.numpy as jnp
import optax
from pydantic import Field, field_validator

from strl_jax.algorithms import losses, optimizers, returns, schedules
from strl_jax.algorithms.base import Algorithm, Outputs, Term
from strl_jax.algorithms.hooks import Collected, Rewarded, RewardHook
from strl_jax.algorithms.schedules import Coefficient
from strl_jax.modules import normalizer
from strl_jax.modules.mlp import MLP, get_activation
from strl_jax.observations import Segments
from strl_jax.section import MOST, Count, LearningRate, Positive, Section
from strl_jax.sharding import pmean
from strl_jax.types import Array, Batch, Transition

NAME, TARGET = "rnd", "rnd_target"  # parameter groups
STATE, REWARD = "rnd_state", "rnd_reward"  # statistics; the first is also the extra that holds the observations

Width = Annotated[int, Field(ge=-1, le=MOST)]


class RNDConfig(Section):
    """The keywords of rsl_rl's ``rnd_cfg``, then those of this library.

    The default sizes differ from rsl_rl's, whose embedding has one output: a predictor soon learns it everywhere.

    Attributes:
        weight: factor of the intrinsic reward, a number, or a schedule ``{name: linear,
            init_value: ..., ...}`` of the iteration. rsl_rl multiplies it by the time step,
            has the default 0, and has a separate key ``weight_schedule``.
        num_outputs: length of the embedding.
        predictor_hidden_dims, target_hidden_dims: sizes of the hidden layers; -1: the size of the input.
        activation: name of the activation.
        learning_rate: learning rate of the predictor.
        state_normalization: normalise each entry of the networks' input.
        reward_normalization: divide the intrinsic reward by its standard deviation plus the
            algorithm's ``normalization_eps`` (rsl_rl divides by that of its discounted sum).
        max_grad_norm: norm to which the predictor's gradient is clipped.
    """

    weight: Coefficient = 1.0
    num_outputs: Count = 16
    predictor_hidden_dims: tuple[Width, ...] = (256, 256)
    target_hidden_dims: tuple[Width, ...] = (256, 256)
    activation: str = "elu"
    learning_rate: LearningRate = 1e-3
    state_normalization: bool = False
    reward_normalization: bool = False

    max_grad_norm: Positive = 1.0

    @field_validator("predictor_hidden_dims", "target_hidden_dims")
    @classmethod
    def _no_empty_layer(cls, value):
        if 0 in value:
            raise ValueError("a hidden layer must have a size >= 1, or -1 for the size of the input")
        return value

    @field_validator("activation")
    @classmethod
    def _activation_exists(cls, value):
        get_activation(value)
        return value


def add(algorithm: Algorithm, config: RNDConfig, group: Segments) -> Algorithm:
    """``algorithm`` with an intrinsic reward, and a loss that makes it smaller for known observations.

    The reward of a step grows by weight(iteration) * |target(x) - predictor(x)|, where x is the
    observation after the step, at an episode's end the terminal one. The target keeps its random
    weights; ``rnd_loss``, the mean squared error, trains the predictor to match it.

    Args:
        algorithm: any; its hooks, terms and optimisers are kept.
        config: settings.
        group: observation group of the two networks.

    Raises:
        ValueError: ``algorithm`` has random network distillation already.
    """
    if NAME in algorithm.optimizers:
        raise ValueError("the algorithm has random network distillation already")
    optimizer = optimizers.make("Adam", config.max_grad_norm, algorithm.compat.grad_norm_eps)

    def error(params: dict, mb: Batch) -> Array:
        return embedding_error(config, params, mb.extras[STATE])

    numbers = algorithm.config
    hook = RNDHook(config, group, numbers.normalization_eps, numbers.normalization_until)
    return dataclasses.replace(
        algorithm,
        terms=(*algorithm.terms, Term("rnd_loss", optax.constant_schedule(1.0), _loss)),
        optimizers=algorithm.optimizers | {NAME: optimizer},
        rates=algorithm.rates | {NAME: optax.constant_schedule(config.learning_rate)},
        networks=algorithm.networks | {NAME: error},
        reward_hooks=(*algorithm.reward_hooks, hook),
    )


def networks(config: RNDConfig, size: int) -> tuple[MLP, MLP]:
    """Target and predictor, each from ``[..., size]`` to ``[..., num_outputs]``."""

    def build(hidden: tuple[int, ...]) -> MLP:
        return MLP(tuple(size if width == -1 else width for width in hidden), config.num_outputs, config.activation)

    return build(config.target_hidden_dims), build(config.predictor_hidden_dims)


def embedding_error(config: RNDConfig, params: dict, state: Array) -> Array:
    """target(x) - predictor(x) of states ``[..., D]``, ``[..., num_outputs]``; the target is a constant."""
    target, predictor = networks(config, state.shape[-1])
    return jax.lax.stop_gradient(target.apply(params[TARGET], state)) - predictor.apply(params[NAME], state)


def _loss(outputs: Outputs, mb: Batch) -> Array:
    return losses.mean(jnp.mean(jnp.square(outputs.networks[NAME]), axis=-1), mb.weight)


@dataclass(frozen=True)
class RNDHook(RewardHook):
    """Adds the intrinsic reward and keeps the statistics; see ``RewardHook`` for arguments and results.

    Attributes:
        config: settings.
        group: observation group of the two networks.
        eps: added to standard deviations.
        until: number of samples after which statistics are frozen.
    """

    name = NAME

    config: RNDConfig
    group: Segments
    eps: float
    until: float

    @property
    def components(self) -> tuple[str, ...]:
        """Components of the group."""
        return self.group.names

    def init(self, key: Array) -> tuple[dict, dict]:
        """Parameters of target and predictor, and the statistics that the config needs."""
        target, predictor = networks(self.config, self.group.size)
        target_key, predictor_key = jax.random.split(key)
        zeros, stats = jnp.zeros((1, self.group.size)), {}
        if self.config.state_normalization:
            stats[STATE] = normalizer.init((self.group.size,))
        if self.config.reward_normalization:
            stats[REWARD] = normalizer.init()
        return {TARGET: target.init(target_key, zeros), NAME: predictor.init(predictor_key, zeros)}, stats

    def reward(self, collected: Collected, stats: dict, reward: Array) -> Rewarded:
        """The reward plus weight(iteration) * |target(x) - predictor(x)|; the extras are x, ``[T, B, D]``."""
        state, valid, axis_name = self.group.flatten(collected.terminal_obs), collected.valid, collected.axis_name
        error = embedding_error(self.config, collected.params, self._normalized(stats, state))
        bonus = jnp.where(valid, jnp.linalg.norm(error, axis=-1), 0.0)
        if REWARD in stats:
            moments = normalizer.update(stats[REWARD], bonus, where=valid, until=self.until, axis_name=axis_name)
            stats, bonus = stats | {REWARD: moments}, bonus / (jnp.sqrt(moments.var) + self.eps)
        bonus = schedules.make(self.config.weight)(collected.iteration) * bonus
        mean = pmean(jnp.sum(returns.weights(valid, axis_name=axis_name) * bonus), axis_name)
        return Rewarded(reward + bonus, stats, {STATE: state}, {"Episode_Reward/rnd_reward": mean})

    def prepare(self, stats: dict, steps: Transition) -> dict[str, Array]:
        """Normalised states."""
        return {STATE: self._normalized(stats, steps.extras[STATE])}

    def observe(self, stats: dict, steps: Transition, axis_name: str | None) -> dict:
        """The state's statistics with this rollout's states."""
        if STATE not in stats:
            return stats
        moments = normalizer.update(
            stats[STATE], steps.extras[STATE], where=steps.valid, until=self.until, axis_name=axis_name
        )
        return stats | {STATE: moments}

    def _normalized(self, stats: dict, state: Array) -> Array:
        return normalizer.normalize(stats[STATE], state, self.eps) if STATE in stats else state
