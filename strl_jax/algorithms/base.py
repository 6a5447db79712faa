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
from strl_jax.algorithms.hooks import ActHook, ObsHook, RewardHook
from strl_jax.algorithms.plateau import ReduceLROnPlateau
from strl_jax.modules import normalizer
from strl_jax.modules.policy import Policy
from strl_jax.observations import Segments
from strl_jax.types import Array, Batch, Obs, PolicyOutput, TimeStep, TrainState


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
        fn: ``(outputs, minibatch) -> scalar``, the loss without ``coef``.
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
        config: settings of the algorithm.
        compat: which behaviours of st_rl are switched on.
        policy: the Flax module.
        groups: observation groups of the policy; ``actor`` and ``critic`` at least.
        terms: the loss is the sum of coef * term.
        optimizers: name -> optax chain at learning rate 1.
        variables: initial variables of the policy; None: ``init`` draws them.
        act_groups: groups that the actor needs.
        metrics: logged in addition to the terms.
        networks: name -> ``(params, minibatch) -> output`` of all networks except the policy.
        shares: network -> fraction of a minibatch's samples that the network learns from; their weights are in
            ``Batch.shares``.
        obs_hook: adds components to the observation; None: the observation is the environment's.
        act_hook: may replace the policy's action; None: the policy acts.
        reward_hooks: change the rewards, in this order.
        members: optimiser -> the parameter groups that it trains; default: the group of the same name.
        rates: optimiser -> its learning rate as a function of the iteration; default: the policy's.
        momenta: optimiser -> its momentum as a function of the iteration; default: that of its settings.
        plateau: lowers the policy's learning rate where a number of the update no longer improves; None: it does not.
        queue: the update learns from the last ``int(queue * T)`` steps.
        resample_prob: probability with which a sequence of the update starts from a random recurrent state.
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
    obs_hook: ObsHook | None = None
    act_hook: ActHook | None = None
    reward_hooks: tuple[RewardHook, ...] = ()
    members: dict[str, tuple[str, ...]] = field(default_factory=dict)
    rates: dict[str, optax.Schedule] = field(default_factory=dict)
    momenta: dict[str, optax.Schedule] = field(default_factory=dict)
    plateau: ReduceLROnPlateau | None = None
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
            lr_scheduler={} if self.plateau is None else self.plateau.init(),
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
        """Learning rate ``[]`` of the config at an iteration: a constant, or the value of its schedule."""
        schedule = self.config.schedule
        spec = self.config.learning_rate if isinstance(schedule, str) else schedule
        return jnp.asarray(schedules.make(spec)(iteration), jnp.float32)

    def init_hooks(self, key: Array, num_envs: int) -> dict[str, Any]:
        """Hook -> its state for ``num_envs`` new environments, leaves ``[B, ...]``."""
        return {} if self.obs_hook is None else {self.obs_hook.name: self.obs_hook.init(key, num_envs)}

    def observe(self, hooks: dict[str, Any], obs: Obs) -> Obs:
        """The environment's observation ``[B, ...]`` with the components of the observation hook.

        Args:
            hooks: hook -> its state, see ``RolloutState``.
        """
        hook = self.obs_hook
        return obs if hook is None else obs | hook.components(hooks[hook.name], obs)

    def observed(self, hooks: dict[str, Any], timestep: TimeStep) -> dict[str, Any]:
        """The states of the hooks, with that of the observation hook after the environment's step."""
        hook = self.obs_hook
        return hooks if hook is None else hooks | {hook.name: hook.observe(hooks[hook.name], timestep)}

    def pack(self, stats: dict, obs: Obs, groups: tuple[str, ...] | None = None) -> dict[str, Array]:
        """Group -> flat array ``[..., D]``, normalised where there are statistics; ``groups=None``: all groups."""
        names = self.groups if groups is None else groups
        return normalizer.pack_groups(self.groups, names, stats, obs, self.config.normalization_eps)

    def update_obs_stats(self, stats: dict, obs: Obs, where: Array, axis_name: str | None) -> dict:
        """The statistics with the samples ``obs`` added; those of rewards and hooks do not change.

        Args:
            obs: component -> ``[..., *shape]``.
            where: bool ``[...]``, the valid samples.
        """
        until = self.config.normalization_until
        return {
            name: normalizer.update_group(value, obs, where=where, until=until, axis_name=axis_name)
            if name in self.groups
            else value
            for name, value in stats.items()
        }

    def draw_masks(self, key: Array, shape: tuple[int, ...]) -> dict[str, Array]:
        """Stage -> bool ``[*shape]``: where the actor reads the estimate; only stages with a probability in (0, 1)."""
        probs = self.policy.replace_probs
        keys = jax.random.split(key, max(1, len(probs)))
        return {name: jax.random.uniform(keys[i], shape) < prob for i, (name, prob) in enumerate(probs.items())}

    def value(self, params: dict, groups: dict[str, Array], carry: dict, reset: Array) -> tuple[Array, dict]:
        """The critic on packed groups; see ``Policy.value``."""
        return self.policy.apply(params["policy"], groups, carry, reset, method="value")

    @property
    def keeps_learning_rate(self) -> bool:
        """Whether the policy's learning rate follows the training, and not only the iteration."""
        return self.config.schedule == "adaptive" or self.plateau is not None

    @property
    def keeps_carries(self) -> bool:
        """Whether a rollout stores the recurrent states before every step: the queue begins within a rollout."""
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
