"""The algorithm: a config, a policy, observation groups, loss terms, hooks and optimisers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct

from strl_jax.algorithms import optimizers, schedules
from strl_jax.algorithms.compat import Compat
from strl_jax.algorithms.hooks import ActHook, RewardHook
from strl_jax.modules import normalizer
from strl_jax.modules.policy import Policy
from strl_jax.observations import Segments
from strl_jax.types import Array, Batch, Obs, PolicyOutput, TrainState


@struct.dataclass
class Outputs:
    """The outputs of all networks on a minibatch."""

    policy: PolicyOutput
    networks: dict[str, Any]  # network of ``Algorithm.networks`` -> its output


@dataclass(frozen=True)
class Term:
    """One term of the loss.

    Attributes:
        name: its name in the log.
        coef: its factor as a function of the iteration.
        fn: ``(outputs, minibatch) -> loss``, from the outputs of the networks.
    """

    name: str
    coef: optax.Schedule
    fn: Callable[[Outputs, Batch], Array]


@dataclass(frozen=True)
class Metric:
    """A number for the log that is not part of the loss.

    Attributes:
        name: its name in the log.
        fn: ``(outputs, minibatch) -> scalar``.
    """

    name: str
    fn: Callable[[Outputs, Batch], Array]


@dataclass(frozen=True)
class Algorithm:
    """An algorithm as a list of loss terms over networks, and of hooks into the rollout.

    It is static: compiled functions close over it.

    Attributes:
        config: the algorithm's numbers.
        compat: which of st_rl's ways are on.
        policy: the Flax module.
        groups: observation groups of the policy; ``actor`` and ``critic`` at least.
        terms: the loss is the sum of coef * term.
        optimizers: name -> optax chain at learning rate 1.
        variables: the policy's variables; None: they are drawn.
        act_groups: groups that the actor needs.
        metrics: logged in addition to the terms.
        networks: name -> ``(params, minibatch) -> output`` of all networks except the policy.
        shares: network -> the share of a minibatch's samples that it learns from, with separate sample weights.
        act_hook: may replace the policy's action; None: the policy acts.
        reward_hooks: change the rewards, in this order.
        members: optimiser -> the parameter groups that it trains; default: the group of the same name.
        rates: optimiser -> its learning rate as a function of the iteration; default: the policy's.
        queue: the update learns from the last ``int(queue * T)`` steps.
        resample_prob: probability with which a sequence of the update starts from a random memory.
    """

    config: Any
    compat: Compat
    policy: Policy
    groups: dict[str, Segments]
    terms: tuple[Term, ...]
    optimizers: dict[str, optax.GradientTransformation]
    variables: dict | None = None
    act_groups: tuple[str, ...] = ("actor",)
    metrics: tuple[Metric, ...] = ()
    networks: dict[str, Callable[[dict, Batch], Any]] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    act_hook: ActHook | None = None
    reward_hooks: tuple[RewardHook, ...] = ()
    members: dict[str, tuple[str, ...]] = field(default_factory=dict)
    rates: dict[str, optax.Schedule] = field(default_factory=dict)
    queue: float = 1.0
    resample_prob: float = 0.0

    def init(self, key: Array) -> TrainState:
        """Fresh parameters, optimiser states and statistics."""
        params = {"policy": self._draw_variables(key) if self.variables is None else self.variables}
        stats: dict[str, Any] = {}
        if self.config.empirical_normalization:
            stats = {name: normalizer.init_group(segments) for name, segments in self.groups.items()}
        if self.config.normalize_rewards:
            stats["reward"] = normalizer.init()
        for index, hook in enumerate(self.reward_hooks):
            more_params, more_stats = hook.init(jax.random.fold_in(key, index + 1))
            params |= more_params
            stats |= more_stats
        return TrainState(
            params=params,
            opt_state={
                name: optimizers.init(optimizer, self.trained(params, name))
                for name, optimizer in self.optimizers.items()
            },
            learning_rate=self.learning_rates(jnp.int32(0)),
            iteration=jnp.int32(0),
            stats=stats,
        )

    def _draw_variables(self, key: Array) -> dict:
        dummy = {name: jnp.zeros((1, segments.size), jnp.float32) for name, segments in self.groups.items()}
        return self.policy.init(key, dummy, self.policy.initial_carry(1), jnp.zeros(1, bool))

    def trained(self, params: dict, optimizer: str) -> dict:
        """The parameter groups that an optimiser trains."""
        return {group: params[group] for group in self.members.get(optimizer, (optimizer,))}

    def learning_rates(self, iteration: Array) -> dict[str, Array]:
        """Learning rate of every optimiser at the start of an iteration, before any adaptation."""
        return {
            name: jnp.asarray(self.rates.get(name, self.learning_rate)(iteration), jnp.float32)
            for name in self.optimizers
        }

    def learning_rate(self, iteration: Array) -> Array:
        """Learning rate of the config, a number or a schedule."""
        schedule = self.config.schedule
        spec = self.config.learning_rate if isinstance(schedule, str) else schedule
        return jnp.asarray(schedules.make(spec)(iteration), jnp.float32)

    def pack(self, stats: dict, obs: Obs, groups: tuple[str, ...] | None = None) -> dict[str, Array]:
        """Normalised, flat groups ``[..., D]`` of the components ``[..., *shape]``."""
        names = self.groups if groups is None else groups
        return normalizer.pack_groups(self.groups, names, stats, obs, self.config.normalization_eps)

    def update_obs_stats(self, stats: dict, obs: Obs, where: Array, axis_name: str | None) -> dict:
        """Statistics with the samples ``obs`` where ``where``; those of rewards and hooks do not change."""
        until = self.config.normalization_until
        return {
            name: normalizer.update_group(value, obs, where=where, until=until, axis_name=axis_name)
            if name in self.groups
            else value
            for name, value in stats.items()
        }

    def draw_masks(self, key: Array, shape: tuple[int, ...]) -> dict[str, Array]:
        """Stage -> bool ``[*shape]``: which steps see its estimate, for the stages that draw this at random."""
        probs = self.policy.replace_probs
        keys = jax.random.split(key, max(1, len(probs)))
        return {name: jax.random.uniform(keys[i], shape) < prob for i, (name, prob) in enumerate(probs.items())}

    def value(self, params: dict, groups: dict[str, Array], carry: dict, reset: Array) -> tuple[Array, dict]:
        """The critic on packed groups; see ``Policy.value``."""
        return self.policy.apply(params["policy"], groups, carry, reset, method="value")

    @property
    def keeps_carries(self) -> bool:
        """Whether a rollout keeps the memories before every step: a queue may begin within a rollout."""
        return self.policy.is_recurrent and not float(self.queue).is_integer()

    @property
    def terminal_components(self) -> tuple[str, ...]:
        """Components whose terminal observations the critic or a hook needs."""
        hooks = [name for hook in self.reward_hooks for name in hook.components]
        return tuple(dict.fromkeys([*self.groups["critic"].names, *hooks]))


def apply_policy(algorithm: Algorithm, params: dict, minibatch: Batch) -> PolicyOutput:
    """The policy on a minibatch."""
    variables, mb = params["policy"], minibatch
    random_carry = () if mb.random_carry is None else (mb.random_carry,)
    return algorithm.policy.apply(variables, mb.groups, mb.carry, mb.reset, mb.masks, *random_carry)


def apply_networks(algorithm: Algorithm, params: dict, minibatch: Batch) -> Outputs:
    """The policy and all other networks on a minibatch."""
    others = {name: network(params, minibatch) for name, network in algorithm.networks.items()}
    return Outputs(apply_policy(algorithm, params, minibatch), others)
