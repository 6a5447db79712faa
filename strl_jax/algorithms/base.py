"""What an algorithm is: a config, a policy, observation groups, loss terms, optimisers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

from strl_jax.algorithms import optimizers, schedules
from strl_jax.algorithms.compat import Compat
from strl_jax.modules import normalizer
from strl_jax.modules.policy import Policy
from strl_jax.observations import Segments
from strl_jax.types import Array, Batch, Obs, PolicyOutput, TrainState


@dataclass(frozen=True)
class Term:
    """One term of the loss.

    Attributes:
        name: its name in the log.
        coef: its factor as a function of the iteration.
        fn: ``(output, minibatch) -> loss``; the network has been applied already.
    """

    name: str
    coef: optax.Schedule
    fn: Callable[[PolicyOutput, Batch], Array]


@dataclass(frozen=True)
class Algorithm:
    """An algorithm as a list of terms over one policy. Static: close over it.

    Attributes:
        config: the algorithm's numbers.
        compat: which of st_rl's habits are on.
        policy: the Flax module.
        groups: observation groups; ``actor`` and ``critic`` at least.
        terms: the loss is the sum of coef * term.
        optimizers: parameter group -> optax chain at learning rate 1.
        variables: the policy's variables if they are given, not drawn.
        act_groups: groups that acting needs.
    """

    config: Any
    compat: Compat
    policy: Policy
    groups: dict[str, Segments]
    terms: tuple[Term, ...]
    optimizers: dict[str, optax.GradientTransformation]
    variables: dict | None = None
    act_groups: tuple[str, ...] = ("actor",)

    def init(self, key: Array) -> TrainState:
        """Fresh parameters, optimiser states and statistics."""
        params = {"policy": self._draw_variables(key) if self.variables is None else self.variables}
        stats: dict[str, Any] = {}
        if self.config.empirical_normalization:
            stats = {name: normalizer.init_group(segments) for name, segments in self.groups.items()}
        if self.config.normalize_rewards:
            stats["reward"] = normalizer.init()
        start = self.learning_rate(jnp.int32(0))
        return TrainState(
            params=params,
            opt_state={name: optimizers.init(optimizer, params[name]) for name, optimizer in self.optimizers.items()},
            learning_rate=dict.fromkeys(self.optimizers, start),
            iteration=jnp.int32(0),
            stats=stats,
        )

    def _draw_variables(self, key: Array) -> dict:
        dummy = {name: jnp.zeros((1, segments.size), jnp.float32) for name, segments in self.groups.items()}
        return self.policy.init(key, dummy, self.policy.initial_carry(1), jnp.zeros(1, bool))

    def learning_rate(self, iteration: Array) -> Array:
        """Learning rate at the start of an iteration, before any adaptation."""
        schedule = self.config.schedule
        spec = self.config.learning_rate if isinstance(schedule, str) else schedule
        return jnp.asarray(schedules.make(spec)(iteration), jnp.float32)

    def pack(self, stats: dict, obs: Obs, groups: tuple[str, ...] | None = None) -> dict[str, Array]:
        """Normalised, flat groups ``[..., D]`` of the components ``[..., *shape]``."""
        names = self.groups if groups is None else groups
        eps = self.config.normalization_eps
        return {name: normalizer.pack_group(self.groups[name], stats.get(name, {}), obs, eps) for name in names}

    def update_obs_stats(self, stats: dict, obs: Obs, where: Array, axis_name: str | None) -> dict:
        """Statistics after the samples ``obs`` where ``where``; those of rewards stay."""
        until = self.config.normalization_until
        return {
            name: normalizer.update_group(value, obs, where=where, until=until, axis_name=axis_name)
            if name in self.groups
            else value
            for name, value in stats.items()
        }

    def draw_masks(self, key: Array, shape: tuple[int, ...]) -> dict[str, Array]:
        """Stage -> bool ``[*shape]``: which steps see its estimate, for the stages that leave it to chance."""
        probs = self.policy.replace_probs
        keys = jax.random.split(key, max(1, len(probs)))
        return {name: jax.random.uniform(keys[i], shape) < prob for i, (name, prob) in enumerate(probs.items())}

    def value(self, params: dict, groups: dict[str, Array], carry: dict, reset: Array) -> tuple[Array, dict]:
        """The critic on packed groups; see ``Policy.value``."""
        return self.policy.apply(params["policy"], groups, carry, reset, method="value")


def apply_policy(algorithm: Algorithm, params: dict, minibatch: Batch) -> PolicyOutput:
    """The policy on a minibatch."""
    return algorithm.policy.apply(params["policy"], minibatch.groups, minibatch.carry, minibatch.reset, minibatch.masks)
