"""Deployed policy: one pure function of named arrays, for all export formats."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from strl_jax.algorithms.base import Algorithm
from strl_jax.modules.policy import Policy
from strl_jax.modules.stages import EstimatorStage
from strl_jax.runners.inference import named_estimates
from strl_jax.types import Array

Named = dict[str, np.ndarray]
Step = Callable[[Named], Named]

TOLERANCE = 1e-5
BATCHES = (1, 4)
STEPS = 6


class DeployError(ValueError):
    """A policy cannot be exported; the message is one line."""


@dataclass(frozen=True, eq=False)
class Deployable:
    """The mean action and the hidden states after one step; contains normaliser and weights.

    Inputs by name: the components of the group ``actor``, ``[B, *shape]``, not
    normalised, and the hidden states that the action depends on, such as
    ``carry.actor.hidden``, ``[B, layers, H]``. Outputs: ``action``, ``[B, A]``, and the
    hidden states with the same names; with ``estimates`` also the estimated components, such as
    ``estimates.estimator.velocity``, ``[B, *shape]``, in the units of the observation. All are
    float32. An episode starts with hidden states of zero. Estimates always replace the true
    values that they can replace.

    Attributes:
        algorithm: policy, observation groups and their normalisation.
        variables, stats: parameters of the policy, and statistics of the groups.
        estimates: the estimates are outputs too.

    Raises:
        DeployError: the policy consists of other policies, or has no estimator for ``estimates``.
    """

    algorithm: Algorithm
    variables: dict
    stats: dict
    estimates: bool = False

    def __post_init__(self):
        policy = self.algorithm.policy
        if not isinstance(policy, Policy):
            raise DeployError(
                f"a {type(policy).__name__} cannot be exported: export the policies that it selects among"
            )
        if self.estimates and not self._stages:
            raise DeployError("--estimates: the policy has neither an estimator nor an adaptor")

    @property
    def observations(self) -> dict[str, tuple[int, ...]]:
        """Shape of each component without the batch axis, in the order of the group."""
        actor = self.algorithm.groups["actor"]
        return dict(zip(actor.names, actor.shapes, strict=True))

    @cached_property
    def carry(self) -> dict[str, tuple[int, ...]]:
        """Shape of each hidden state without the batch axis; empty for a feed-forward policy."""
        return {name: leaf.shape[1:] for name, leaf in _names(self._needed(1)).items()}

    @property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        """Shape of each input without the batch axis, in the order of the exported function."""
        return self.observations | self.carry

    @property
    def outputs(self) -> dict[str, tuple[int, ...]]:
        """Shape of each output without the batch axis."""
        return {"action": (self.algorithm.policy.action_size,)} | self.estimated | self.carry

    @cached_property
    def estimated(self) -> dict[str, tuple[int, ...]]:
        """Shape of each estimate that is an output, without the batch axis."""
        if not self.estimates:
            return {}
        critic = self.algorithm.policy.critic_obs
        shapes = dict(zip(critic.names, critic.shapes, strict=True))
        return {
            f"estimates.{name}.{target}": shapes[target]
            for name, stage in self._stages.items()
            for target in stage.targets
        }

    @property
    def unread(self) -> tuple[str, ...]:
        """Components that do not influence the outputs: an estimate replaces them before they are read."""
        read, replaced = set(), set()
        for stage in self._computed.values():
            read |= set(stage.inputs) - replaced
            replaced |= set(stage.targets) if stage.replace_prob > 0 else set()
        return tuple(name for name in self.observations if name in replaced - read)

    def __call__(self, values: dict[str, Array]) -> dict[str, Array]:
        """Computes one step, in full float32 also on devices whose default matrix products are less precise."""
        algorithm, policy = self.algorithm, self.algorithm.policy
        batch = values[next(iter(self.observations))].shape[0]
        needed = self._needed(batch)
        given = [values[name] for name in _names(needed)]
        carry = policy.initial_carry(batch) | jax.tree.unflatten(jax.tree.structure(needed), given)
        with jax.default_matmul_precision("float32"):
            groups = algorithm.pack(self.stats, values, ("actor",))
            # One reset flag for all: the caller resets with hidden states of zero.
            output = policy.apply(self.variables, groups, carry, jnp.zeros(1, bool), method="infer")
            estimates = named_estimates(algorithm, self.stats, output.estimates) if self.estimates else {}
        end = {name: output.carry[name] for name in needed}
        return {"action": output.mean} | _names(estimates, "estimates") | _names(end)

    def _needed(self, batch) -> dict:
        """Initial hidden states that the outputs depend on."""
        carry = self.algorithm.policy.initial_carry(batch)
        return {name: carry[name] for name in carry if name in ("actor", *self._computed)}

    @property
    def _stages(self) -> dict[str, EstimatorStage]:
        """The stages that estimate components, in the order of their evaluation."""
        stages = {name: getattr(self.algorithm.policy, name) for name in ("adaptor", "estimator")}
        return {name: stage for name, stage in stages.items() if stage is not None}

    @property
    def _computed(self) -> dict[str, EstimatorStage]:
        """The stages that influence the outputs; without ``estimates`` those that replace components."""
        return {name: stage for name, stage in self._stages.items() if self.estimates or stage.replace_prob > 0}


def largest_difference(deployable: Deployable, exported: Step) -> float:
    """Difference between an exported policy and the policy in this process, on random observations.

    Both compute a few steps, each with its own hidden states, for two batch sizes. The
    observations have the mean and variance of the statistics.

    Returns:
        The largest ``|exported - original| / max(1, |original|)`` of all outputs; NaN if a value is NaN.
    """
    rng, original, worst = np.random.default_rng(0), jax.jit(deployable), 0.0
    for batch in BATCHES:
        zeros = {name: np.zeros((batch, *shape), np.float32) for name, shape in deployable.carry.items()}
        carries = [zeros, zeros]
        for _ in range(STEPS):
            obs = _random(deployable, batch, rng)
            results = [
                {name: np.asarray(x) for name, x in function(obs | carry).items()}
                for function, carry in zip((original, exported), carries, strict=True)
            ]
            for name in deployable.outputs:
                expected, actual = (result[name] for result in results)
                worst = np.maximum(worst, np.max(np.abs(actual - expected) / np.maximum(1.0, np.abs(expected))))
            carries = [{name: result[name] for name in zeros} for result in results]
    return float(worst)


def check(deployable: Deployable, step: Step, name: str) -> float:
    """Returns ``largest_difference``. Raises ``DeployError`` if it is above ``TOLERANCE``."""
    difference = largest_difference(deployable, step)
    if not difference <= TOLERANCE:
        raise DeployError(f"{name}: differs from the policy by {difference:.2g}, more than {TOLERANCE:g}; not written")
    return difference


def _random(deployable: Deployable, batch: int, rng: np.random.Generator) -> Named:
    stats, obs = deployable.stats.get("actor", {}), {}
    for name, shape in deployable.observations.items():
        value = rng.normal(size=(batch, *shape))
        if name in stats:
            value = np.asarray(stats[name].mean) + np.sqrt(np.asarray(stats[name].var)) * value
        obs[name] = value.astype(np.float32)
    return obs


def _names(tree: dict, root: str = "carry") -> dict[str, Array]:
    """Name -> leaf, with names like ``carry.actor.hidden``."""
    keystr = jax.tree_util.keystr
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {f"{root}.{keystr(path, simple=True, separator='.')}": leaf for path, leaf in leaves}
