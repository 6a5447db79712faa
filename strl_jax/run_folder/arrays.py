"""Trees of arrays as flat dicts by path, and the form in which a file holds each array."""

import zlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strl_jax.run_folder.errors import CheckpointError


def flatten(tree: Any) -> dict[str, Any]:
    """Leaves by path, such as ``params/policy/params/actor/layer_0/kernel``, which must be unique."""
    flat = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if name in flat:
            raise CheckpointError(f"two leaves have the path {name!r}; rename one of the dict keys in it")
        flat[name] = leaf
    return flat


def describe(leaf: Any) -> dict[str, Any]:
    """Description of a leaf for JSON: ``shape``, ``dtype``, and for a PRNG key array its implementation as ``key``.

    Raises:
        CheckpointError: the leaf is not an array or a number.
    """
    if not hasattr(leaf, "dtype"):
        leaf = np.asarray(leaf)
    if str(leaf.dtype).startswith(("object", "<U", "|S")):
        raise CheckpointError(f"a state may hold arrays and numbers only, not {leaf!r}")
    description = {"shape": list(leaf.shape), "dtype": str(leaf.dtype)}
    if is_key(leaf) and isinstance(leaf, jax.Array):
        description["key"] = str(jax.random.key_impl(leaf))
    return description


def is_key(leaf: Any) -> bool:
    """Whether the leaf is a typed PRNG key array, or a ``jax.ShapeDtypeStruct`` of one."""
    return jnp.issubdtype(getattr(leaf, "dtype", None), jax.dtypes.prng_key)


def is_empty(leaf: Any) -> bool:
    """Whether the leaf has no entries; such leaves are not written."""
    return 0 in np.shape(leaf)


def encode(leaf: Any) -> Any:
    """The array that is written: the data of a PRNG key, an array for a number, else the leaf."""
    if is_key(leaf):
        return jax.random.key_data(leaf)
    return leaf if isinstance(leaf, jax.Array) else np.array(leaf)


def checksum(value: Any) -> int | None:
    """CRC-32 of a result of ``encode``; None if other processes hold a part of the array."""
    if isinstance(value, jax.Array) and not (value.is_fully_addressable or value.is_fully_replicated):
        return None
    return zlib.crc32(np.ascontiguousarray(value).reshape(-1).view(np.uint8))


def template(leaf: Any) -> Any:
    """Shape, dtype and sharding with which Orbax reads a target leaf; without a sharding: on the first device."""
    if not isinstance(leaf, jax.Array | jax.ShapeDtypeStruct):
        return np.asarray(leaf)
    data = jax.eval_shape(jax.random.key_data, leaf) if is_key(leaf) else leaf
    sharding = leaf.sharding or jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    return jax.ShapeDtypeStruct(data.shape, data.dtype, sharding=sharding)


def from_description(description: Mapping) -> jax.ShapeDtypeStruct:
    """The inverse of ``describe``, without values."""
    key = description.get("key")
    dtype = description["dtype"] if key is None else jax.random.key(0, impl=key).dtype
    return jax.ShapeDtypeStruct(tuple(description["shape"]), dtype)


def decode(value: Any, description: Mapping, target: Any) -> Any:
    """The inverse of ``encode``.

    Args:
        value: the array that was read, None if the leaf is empty.
        description: result of ``describe`` when the leaf was saved.
        target: the leaf that the result replaces.
    """
    if value is None:
        value = _empty(template(target))
    if is_key(target):
        return jax.random.wrap_key_data(value, impl=description["key"])
    return value.item() if type(target) in (bool, int, float) else value


def show(description: Mapping) -> str:
    """A result of ``describe`` in a message, such as ``float32[2,3]``."""
    return f"{description['dtype']}[{','.join(map(str, description['shape']))}]"


def _empty(leaf: Any) -> Any:
    zeros = np.zeros(leaf.shape, leaf.dtype)
    if isinstance(leaf, np.ndarray):
        return zeros
    # Built by callback, not by a jitted zeros: a simulator has dozens of these, each a compilation.
    return jax.make_array_from_callback(leaf.shape, leaf.sharding, lambda index: zeros[index])
