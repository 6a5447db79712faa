"""Devices: the mesh, the collectives and the one jit over both (jax.shard_map).

Everything that runs on several devices is written for one shard and takes
``axis_name``; with ``axis_name=None`` the collectives do nothing, so the same
function runs in a plain ``jax.jit``.
"""

from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

AXIS = "env"


def make_mesh(devices: Sequence[jax.Device] | None = None) -> Mesh:
    """One-dimensional mesh over ``devices`` (default: all devices of all processes)."""
    return Mesh(np.asarray(devices if devices is not None else jax.devices()), (AXIS,))


def replicated(mesh: Mesh) -> NamedSharding:
    """Sharding of what every device holds whole."""
    return NamedSharding(mesh, P())


def sharded(mesh: Mesh) -> NamedSharding:
    """Sharding over the leading axis."""
    return NamedSharding(mesh, P(AXIS))


def replicate(tree, mesh: Mesh):
    """Host arrays, the same in every process, on all devices."""

    def place(value):
        value = np.asarray(value)
        return jax.make_array_from_callback(value.shape, replicated(mesh), lambda index: value[index])

    return jax.tree.map(place, tree)


def replicate_key(key: jax.Array, mesh: Mesh) -> jax.Array:
    """A PRNG key, the same in every process, on all devices; ``device_put`` reaches only those of its process."""
    return jax.random.wrap_key_data(replicate(jax.random.key_data(key), mesh), impl=jax.random.key_impl(key))


def axis_size(axis_name: str | None) -> int:
    """Number of shards."""
    return 1 if axis_name is None else jax.lax.axis_size(axis_name)


def psum(tree, axis_name: str | None):
    """Sum over shards."""
    return tree if axis_name is None else jax.lax.psum(tree, axis_name)


def pmean(tree, axis_name: str | None):
    """Mean over shards. Right for sums weighted so that the mean is meant, never for masked local means."""
    return tree if axis_name is None else jax.lax.pmean(tree, axis_name)


def all_gather(tree, axis_name: str | None):
    """Leading axes of all shards, one after the other."""
    return tree if axis_name is None else jax.lax.all_gather(tree, axis_name, tiled=True)


def shard_jit(function: Callable, mesh: Mesh, in_specs, out_specs, donate_argnums=()) -> Callable:
    """``jax.jit(jax.shard_map(function))`` with pinned input and output shardings.

    Pinned, because zero-size leaves would otherwise come back replicated and
    compile everything again on the second call. Gradients must be averaged with
    ``pmean`` after ``jax.grad``: replication checks are off (MJX does not trace
    with them), so a ``pmean`` inside a differentiated function is not transposed.

    Args:
        in_specs, out_specs: a ``PartitionSpec`` for each argument and result.
        donate_argnums: arguments whose buffers the results may take over.
    """
    mapped = jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)

    def named(specs):
        return jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs, is_leaf=lambda x: isinstance(x, P))

    return jax.jit(mapped, in_shardings=named(in_specs), out_shardings=named(out_specs), donate_argnums=donate_argnums)
