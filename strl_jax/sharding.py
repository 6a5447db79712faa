"""Several devices: mesh, shardings, collectives, and ``jax.jit`` over ``jax.shard_map``.

Functions that run on several devices are written for one shard and take
``axis_name``. With ``axis_name=None`` the collectives return their argument, so that
the same function works in a plain ``jax.jit``.
"""

from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

AXIS = "env"


def make_mesh(devices: Sequence[jax.Device] | None = None) -> Mesh:
    """One-dimensional mesh over ``devices`` (None: all devices of all processes)."""
    return Mesh(np.asarray(devices if devices is not None else jax.devices()), (AXIS,))


def replicated(mesh: Mesh) -> NamedSharding:
    """Sharding of arrays of which every device holds a full copy."""
    return NamedSharding(mesh, P())


def sharded(mesh: Mesh) -> NamedSharding:
    """Sharding of arrays that are split over their leading axis."""
    return NamedSharding(mesh, P(AXIS))


def replicate(tree, mesh: Mesh):
    """Copies a pytree of host arrays, equal in every process, to all devices."""

    def place(value):
        value = np.asarray(value)
        return jax.make_array_from_callback(value.shape, replicated(mesh), lambda index: value[index])

    return jax.tree.map(place, tree)


def replicate_key(key: jax.Array, mesh: Mesh) -> jax.Array:
    """Copies a PRNG key, equal in every process, to all devices, also those of other processes."""
    return jax.random.wrap_key_data(replicate(jax.random.key_data(key), mesh), impl=jax.random.key_impl(key))


def axis_size(axis_name: str | None) -> int:
    """Number of shards."""
    return 1 if axis_name is None else jax.lax.axis_size(axis_name)


def psum(tree, axis_name: str | None):
    """Sum over all shards, leaf by leaf."""
    return tree if axis_name is None else jax.lax.psum(tree, axis_name)


def pmean(tree, axis_name: str | None):
    """Mean over all shards, leaf by leaf.

    It is the global mean if the local values are weighted sums with ``returns.weights``. It is wrong
    for local means over different numbers of samples.
    """
    return tree if axis_name is None else jax.lax.pmean(tree, axis_name)


def all_gather(tree, axis_name: str | None):
    """Concatenation of all shards along the leading axis."""
    return tree if axis_name is None else jax.lax.all_gather(tree, axis_name, tiled=True)


def shard_jit(function: Callable, mesh: Mesh, in_specs, out_specs, donate_argnums=()) -> Callable:
    """``jax.jit(jax.shard_map(function))`` with fixed input and output shardings.

    The shardings are fixed because leaves of size zero would otherwise be returned
    replicated, and the second call would compile again. Replication checks are off,
    because MJX cannot be traced with them; a ``pmean`` inside a differentiated function
    then has a wrong gradient, so gradients must be averaged with ``pmean`` after
    ``jax.grad``.

    Args:
        function: a function of one shard.
        mesh: the devices.
        in_specs, out_specs: a ``PartitionSpec`` for each argument and each result.
        donate_argnums: arguments whose buffers may be reused for the results.
    """
    mapped = jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)

    def named(specs):
        return jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs, is_leaf=lambda x: isinstance(x, P))

    return jax.jit(mapped, in_shardings=named(in_specs), out_shardings=named(out_specs), donate_argnums=donate_argnums)
