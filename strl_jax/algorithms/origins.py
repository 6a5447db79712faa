"""Origins of values that are not finite: parts of the environment, networks, rewards, losses and gradients.

All of it is computed from numbers that an iteration has anyway, and leaves the compiled program as a few integers.
"""

import jax
import jax.numpy as jnp

from strl_jax.algorithms.base import Algorithm, Outputs
from strl_jax.envs import broken
from strl_jax.sharding import all_gather, axis_size
from strl_jax.types import Array, Flags, Origins, StepRecord, Transition


def in_rollout(
    algorithm: Algorithm, record: StepRecord, steps: Transition, last_value: Array, rewards: dict[str, Array]
) -> dict[str, Array]:
    """Origin -> bool[B]: something of it was not finite in at least one step.

    The environment is not reported for a step whose action was not finite: it follows from the action.

    Args:
        record, steps: leaves ``[T, B, ...]``.
        last_value: ``[B]``, the critic's value of the observation after the last step.
        rewards: origin -> bool[T, B], see ``finish.Rewards``.
    """
    executed = _all_finite(record.action)
    decided = _all_finite(record.mean) & _all_finite(record.std)
    flags = {"output of the actor": ~decided}
    if algorithm.act_hook is not None:
        flags[f"action of the {algorithm.act_hook.name}"] = decided & ~executed
    valued = jnp.isfinite(steps.value) & jnp.isfinite(steps.bootstrap) & jnp.isfinite(last_value)
    flags |= {"output of the critic": ~valued} | rewards
    flags = {name: flag.any(axis=0) for name, flag in flags.items()}
    return flags if record.broken is None else flags | broken.unpack(_any_step(record.broken, executed))


def _all_finite(x: Array) -> Array:
    return jnp.isfinite(x).all(axis=-1)


def _any_step(flags: Flags, where: Array) -> Flags:
    """The flags ``[B, W]`` that are set in a step of ``where[T, B]``."""
    bits = jnp.where(where[..., None], flags.bits, jnp.uint32(0))
    return flags.replace(bits=jax.lax.reduce(bits, jnp.uint32(0), jax.lax.bitwise_or, (0,)))


def in_networks(outputs: Outputs) -> dict[str, Array]:
    """Origin -> bool[]: an output of this network is not finite, for one minibatch.

    Actor and critic are left out: ``in_rollout`` has them, and a check in each minibatch made a small policy's
    iteration 3 % slower on a CPU.
    """
    trees = outputs.policy.estimates | outputs.networks
    return {f"output of the {name}": _any_not_finite(tree) for name, tree in trees.items()}


def _any_not_finite(tree) -> Array:
    leaves = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return broken.any_of({index: ~jnp.isfinite(leaf).all() for index, leaf in enumerate(leaves)})


def by_environment(flags: dict[str, Array], unit: str, axis_name: str | None) -> Origins:
    """Counts of ``name -> bool[B]`` over all shards, with the number of the first environment."""
    stacked = jnp.stack(list(flags.values()))
    batch = stacked.shape[1]
    total = batch * axis_size(axis_name)
    offset = 0 if axis_name is None else jax.lax.axis_index(axis_name) * batch
    first = jnp.where(stacked.any(axis=1), offset + jnp.argmax(stacked, axis=1), total)
    count = stacked.sum(axis=1, dtype=jnp.int32)
    shards = all_gather(jnp.stack([count, first.astype(jnp.int32)])[None], axis_name)
    return Origins(shards[:, 0].sum(axis=0), shards[:, 1].min(axis=0), tuple(flags), total, unit)


def by_update(flags: Flags, axis_name: str | None) -> Origins:
    """Number of updates of an iteration with each flag, in at least one shard; bits ``[updates, W]``."""
    shards = all_gather(flags.bits[None], axis_name)
    bits = jax.lax.reduce(shards, jnp.uint32(0), jax.lax.bitwise_or, (0,))
    count = jnp.stack([flag.sum(dtype=jnp.int32) for flag in broken.unpack(flags.replace(bits=bits)).values()])
    return Origins(count, None, flags.names, bits.shape[0], "updates")
