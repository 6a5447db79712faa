"""Random network distillation: a reward for observations that a predictor network has seldom seen.

"Exploration by Random Network Distillation" (https://arxiv.org/abs/1810.12894).
"""

import dataclasses
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax

from strl_jax.algorithms import losses, optimizers, returns
from strl_jax.algorithms.base import Algorithm, Outputs, Term
from strl_jax.algorithms.hooks import Collected, Rewarded, RewardHook
from strl_jax.algorithms.rnd_config import RNDConfig
from strl_jax.modules import normalizer
from strl_jax.modules.mlp import MLP
from strl_jax.observations import Segments
from strl_jax.sharding import pmean
from strl_jax.types import Array, Batch, RunningStats, Transition

NAME, TARGET = "rnd", "rnd_target"  # parameter groups
STATE, REWARD = "rnd_state", "rnd_reward"  # statistics; the first is also the extra that holds the observations
GAMMA = 0.99  # discount of rsl_rl's sum of rewards


def add(algorithm: Algorithm, config: RNDConfig, group: Segments, dt: float = 1.0) -> Algorithm:
    """``algorithm`` with an intrinsic reward, and a loss that makes it smaller for known observations.

    The reward of a step grows by weight(iteration) * |target(x) - predictor(x)|, where x is the
    observation after the step, at an episode's end the terminal one. The target keeps its random
    weights; ``rnd_loss``, the mean squared error, trains the predictor to match it.

    Args:
        algorithm: any; its hooks, terms and optimisers are kept.
        config: settings.
        group: observation group of the two networks.
        dt: time step of the environment in seconds, by which ``config.rsl_rl`` multiplies the weight.

    Raises:
        ValueError: ``algorithm`` has random network distillation already.
    """
    if NAME in algorithm.optimizers:
        raise ValueError("the algorithm has random network distillation already")
    optimizer = optimizers.make("Adam", config.max_grad_norm, algorithm.compat.grad_norm_eps)

    def error(params: dict, mb: Batch) -> Array:
        return embedding_error(config, params, mb.extras[STATE])

    numbers = algorithm.config
    hook = RNDHook(config, group, dt, numbers.normalization_eps, numbers.normalization_until)
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
        dt: time step in seconds.
        eps: added to standard deviations.
        until: number of samples after which statistics are frozen; None: never.
    """

    name = NAME

    config: RNDConfig
    group: Segments
    dt: float
    eps: float
    until: float | None

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

    def init_envs(self, num_envs: int) -> dict[str, Array]:
        """The discounted sums of rsl_rl's normalisation."""
        sums = self.config.rsl_rl and self.config.reward_normalization
        return {"discounted": jnp.zeros(num_envs)} if sums else {}

    def reward(self, collected: Collected, stats: dict, reward: Array) -> Rewarded:
        """The reward plus weight(iteration) * |target(x) - predictor(x)|; the extras are x, ``[T, B, D]``."""
        state, valid, axis_name = self.group.flatten(collected.terminal_obs), collected.valid, collected.axis_name
        error = embedding_error(self.config, collected.params, self._normalized(stats, state))
        bonus = jnp.where(valid, jnp.linalg.norm(error, axis=-1), 0.0)
        running = {}
        if REWARD in stats and self.config.rsl_rl:
            moments, running, bonus = self._divided_by_step(stats[REWARD], collected, bonus)
            stats = stats | {REWARD: moments}
        elif REWARD in stats:
            moments = normalizer.update(stats[REWARD], bonus, where=valid, until=self.until, axis_name=axis_name)
            stats, bonus = stats | {REWARD: moments}, bonus / (jnp.sqrt(moments.var) + self.eps)
        weight = self.config.weights(self.dt, collected.iteration, len(bonus))
        bonus = (weight[:, None] if jnp.ndim(weight) else weight) * bonus
        mean = pmean(jnp.sum(returns.weights(valid, axis_name=axis_name) * bonus), axis_name)
        return Rewarded(reward + bonus, stats, {STATE: state}, {"Episode_Reward/rnd_reward": mean}, running)

    def _divided_by_step(self, moments: RunningStats, collected: Collected, bonus: Array):
        """Statistics, running sums and normalised rewards as in rsl_rl: by the deviation of the discounted sum so far.

        The sum of an environment goes on when its episode ends. "Large-Scale Study of Curiosity-Driven Learning"
        (https://arxiv.org/abs/1808.04355).
        """

        def step(loop, now):
            (moments, running), (bonus, valid) = loop, now
            running = GAMMA * running + bonus
            moments = normalizer.update(moments, running, where=valid, until=self.until, axis_name=collected.axis_name)
            deviation = jnp.sqrt(moments.var)
            return (moments, running), bonus / jnp.where(deviation > 0, deviation, 1.0)

        loop = moments, collected.state["discounted"]
        (moments, running), bonus = jax.lax.scan(step, loop, (bonus, collected.valid))
        return moments, {"discounted": running}, bonus

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
