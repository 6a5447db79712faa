"""Estimators: which components they read, which they predict, and how estimates take their place."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from strl_jax.modules.stages import EstimatorStage
from strl_jax.observations import Segments
from strl_jax.types import Array


def in_order(names: Sequence[str], *groups: Segments) -> tuple[str, ...]:
    """``names`` in the order in which the groups hold them, the first group's first."""
    known = [name for group in groups for name in group.names]
    return tuple(dict.fromkeys(name for name in known if name in names))


def estimator_inputs(stage: EstimatorStage, actor: Segments, flat: Array) -> Array:
    """The components that an estimator reads, ``[..., D]``, in the order of the actor's group."""
    names = in_order(stage.inputs, actor)
    return jnp.concatenate([flat[..., actor.slice(name)] for name in names], axis=-1)


def estimation_targets(stage: EstimatorStage, actor: Segments, critic: Segments, flat: Array) -> Array:
    """What an estimator has to predict, ``[..., E]``, out of the critic's observation.

    In the order of the actor's group, which is the order of the estimate, and then
    of the critic's for what the actor does not see.
    """
    names = in_order(stage.targets, actor, critic)
    return jnp.concatenate([flat[..., critic.slice(name)] for name in names], axis=-1)


def estimate_size(stage: EstimatorStage, critic: Segments) -> int:
    """Length of the estimate."""
    return sum(critic.sizes[critic.names.index(name)] for name in stage.targets)


def substitute(
    stage: EstimatorStage, actor: Segments, critic: Segments, flat: Array, estimate: Array, mask: Array | None
) -> Array:
    """The actor's observation with the estimate, without its gradient, in the place of the truth.

    Args:
        flat: ``[..., D]``.
        estimate: ``[..., E]``.
        mask: bool ``[...]``: where to replace; None: everywhere.
    """
    estimate, start = jax.lax.stop_gradient(estimate), 0
    replaced = flat
    for name in in_order(stage.targets, actor, critic):
        size = critic.sizes[critic.names.index(name)]
        replaced = replaced.at[..., actor.slice(name)].set(estimate[..., start : start + size])
        start += size
    return replaced if mask is None else jnp.where(mask[..., None], replaced, flat)
