"""The policy as it runs on a robot: one pure function of named arrays, for every form of export."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from strl_jax.algorithms.base import Algorithm
from strl_jax.modules.policy import Policy
from strl_jax.types import Array

Named = dict[str, np.ndarray]
Step = Callable[[Named], Named]

TOLERANCE = 1e-5
BATCHES = (1, 4)
STEPS = 6


class DeployError(ValueError):
    """A policy that cannot be exported, in one clear line."""


@dataclass(frozen=True, eq=False)
class Deployable:
    """The mean action and the memories after one step, with normaliser and weights inside.

    Inputs by name: the components of the group ``actor``, ``[B, *shape]``, not
    normalised, and the memories that the action depends on, such as
    ``carry.actor.hidden``, ``[B, layers, H]``. Outputs: ``action``, ``[B, A]``, and the
    memories under the same names. All are float32. An episode starts with memories of
    zeros; estimates take the place of all truths that they may replace.

    Attributes:
        algorithm: policy, groups and how they are normalised.
        variables, stats: parameters of the policy, and statistics of the groups.

    Raises:
        DeployError: the policy is made of other policies, or nothing is observed.
    """

    algorithm: Algorithm
    variables: dict
    stats: dict

    def __post_init__(self):
        policy = self.algorithm.policy
        if not isinstance(policy, Policy):
            raise DeployError(f"a {type(policy).__name__} is not exported: it selects among policies that can be")

    @property
    def observations(self) -> dict[str, tuple[int, ...]]:
        """Shape of each component without the batch, in the order of the group."""
        actor = self.algorithm.groups["actor"]
        return dict(zip(actor.names, actor.shapes, strict=True))

    @cached_property
    def carry(self) -> dict[str, tuple[int, ...]]:
        """Shape of each memory without the batch; empty when feed-forward."""
        return {name: leaf.shape[1:] for name, leaf in _names(self._needed(1)).items()}

    @property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        """Shape of each input without the batch, in the order of the exported function."""
        return self.observations | self.carry

    @property
    def outputs(self) -> dict[str, tuple[int, ...]]:
        """Shape of each output without the batch."""
        return {"action": (self.algorithm.policy.action_size,)} | self.carry

    @property
    def unread(self) -> tuple[str, ...]:
        """Components whose values do not matter: an estimate takes their place before anything reads them."""
        read, replaced = set(), set()
        for stage in (self.algorithm.policy.adaptor, self.algorithm.policy.estimator):
            if stage is not None and stage.replace_prob > 0:
                read |= set(stage.inputs) - replaced
                replaced |= set(stage.targets)
        return tuple(name for name in self.observations if name in replaced - read)

    def __call__(self, values: dict[str, Array]) -> dict[str, Array]:
        """One step. In full float32 also where a device would take shorter matrix products."""
        algorithm, policy = self.algorithm, self.algorithm.policy
        batch = values[next(iter(self.observations))].shape[0]
        needed = self._needed(batch)
        given = [values[name] for name in _names(needed)]
        carry = policy.initial_carry(batch) | jax.tree.unflatten(jax.tree.structure(needed), given)
        with jax.default_matmul_precision("float32"):
            groups = algorithm.pack(self.stats, values, ("actor",))
            # One flag for all: the caller resets with zeros.
            mean, _, end = policy.apply(self.variables, groups, carry, jnp.zeros(1, bool), method="act")
        return {"action": mean} | _names({name: end[name] for name in needed})

    def _needed(self, batch) -> dict:
        """Empty memories that the action depends on."""
        policy = self.algorithm.policy
        unused = {"critic"}
        for name in ("adaptor", "estimator"):
            stage = getattr(policy, name)
            if stage is None or stage.replace_prob == 0:
                unused.add(name)
        return {name: carry for name, carry in policy.initial_carry(batch).items() if name not in unused}


def largest_difference(deployable: Deployable, step: Step, seed: int = 0) -> float:
    """How far an exported policy is from the one in this process, on random observations.

    Both go through a few steps with memories of their own, for two sizes of the batch.
    Observations are as widely spread as the statistics say.

    Returns:
        The largest ``|exported - own| / max(1, |own|)`` of all actions and memories; NaN
        if anything is.
    """
    rng, own, worst = np.random.default_rng(seed), jax.jit(deployable), 0.0
    for batch in BATCHES:
        zeros = {name: np.zeros((batch, *shape), np.float32) for name, shape in deployable.carry.items()}
        carries = [zeros, zeros]
        for _ in range(STEPS):
            obs = _random(deployable, batch, rng)
            results = [
                {name: np.asarray(x) for name, x in function(obs | carry).items()}
                for function, carry in zip((own, step), carries, strict=True)
            ]
            for name in deployable.outputs:
                right, found = (result[name] for result in results)
                worst = np.maximum(worst, np.max(np.abs(found - right) / np.maximum(1.0, np.abs(right))))
            carries = [{name: result[name] for name in zeros} for result in results]
    return float(worst)


def check(deployable: Deployable, step: Step, name: str) -> float:
    """``largest_difference``. Raises ``DeployError`` if it is above ``TOLERANCE``."""
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


def _names(carry: dict) -> dict[str, Array]:
    """Leaves by names like ``carry.actor.hidden``."""
    keystr = jax.tree_util.keystr
    leaves = jax.tree_util.tree_leaves_with_path(carry)
    return {f"carry.{keystr(path, simple=True, separator='.')}": leaf for path, leaf in leaves}
