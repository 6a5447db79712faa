"""Estimators: their inputs, their targets, and how estimates replace observation components."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from strl_jax.modules.stages import EstimatorStage
from strl_jax.observations import Segments
from strl_jax.types import Array


def in_order(names: Sequence[str], *groups: Segments) -> tuple[str, ...]:
    """``names`` in the order of the first group, then those that only later groups have, in their order."""
    ordered = [name for group in groups for name in group.names]
    return tuple(dict.fromkeys(name for name in ordered if name in names))


def estimator_inputs(stage: EstimatorStage, actor: Segments, flat: Array) -> Array:
    """Input ``[..., D]`` of an estimator: its components of the actor's observation, in the actor's order."""
    names = in_order(stage.inputs, actor)
    return jnp.concatenate([flat[..., actor.slice(name)] for name in names], axis=-1)


def estimation_targets(stage: EstimatorStage, actor: Segments, critic: Segments, flat: Array) -> Array:
    """Target ``[..., E]`` of an estimator, read from the critic's observation ``[..., D]``.

    Components are in the order of the estimate: first those in the actor's group, in
    the actor's order, then those that only the critic observes, in the critic's order.
    """
    names = in_order(stage.targets, actor, critic)
    return jnp.concatenate([flat[..., critic.slice(name)] for name in names], axis=-1)


def estimate_size(stage: EstimatorStage, critic: Segments) -> int:
    """Length E of the estimate."""
    return sum(critic.sizes[critic.names.index(name)] for name in stage.targets)


def split_estimate(stage: EstimatorStage, actor: Segments, critic: Segments, estimate: Array) -> dict[str, Array]:
    """Component -> its part ``[..., *shape]`` of an estimate ``[..., E]``."""
    names = in_order(stage.targets, actor, critic)
    targets = Segments(names, tuple(critic.shapes[critic.names.index(name)] for name in names))
    return {name: targets.select(estimate, name) for name in names}


def substitute(
    stage: EstimatorStage, actor: Segments, critic: Segments, flat: Array, estimate: Array, mask: Array | None
) -> Array:
    """The actor's observation with the true components replaced by their estimates.

    No gradient flows into the estimate.

    Args:
        flat: the actor's observation ``[..., D]``.
        estimate: ``[..., E]``.
        mask: bool ``[...]``: where to replace; None: everywhere.
    """
    estimate, start = jax.lax.stop_gradient(estimate), 0
    replaced = flat
    for name in in_order(stage.targets, actor, critic):
        size = critic.sizes[critic.names.index(name)]
        replaced = actor.replace(replaced, name, estimate[..., start : start + size])
        start += size
    return replaced if mask is None else jnp.where(mask[..., None], replaced, flat)
