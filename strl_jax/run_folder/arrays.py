"""Trees of arrays as flat dicts by path, in a form that a file can hold."""

import zlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strl_jax.run_folder.errors import CheckpointError


def flatten(tree: Any) -> dict[str, Any]:
    """Leaves by path, such as ``params/policy/params/actor/Dense_0/kernel``.

    Raises:
        CheckpointError: two leaves have one path.
    """
    flat = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if name in flat:
            raise CheckpointError(f"two leaves are called {name!r}; rename one of the dict keys it is made of")
        flat[name] = leaf
    return flat


def describe(leaf: Any) -> dict[str, Any]:
    """Shape and dtype of a leaf, JSON-able; of a real PRNG key array its implementation too.

    Raises:
        CheckpointError: the leaf is no array and no number.
    """
    if not hasattr(leaf, "dtype"):
        leaf = np.asarray(leaf)
    if str(leaf.dtype).startswith(("object", "<U", "|S")):
        raise CheckpointError(f"a state may hold arrays and numbers only, not {leaf!r}")
    about = {"shape": list(leaf.shape), "dtype": str(leaf.dtype)}
    if is_key(leaf) and isinstance(leaf, jax.Array):
        about["key"] = str(jax.random.key_impl(leaf))
    return about


def is_key(leaf: Any) -> bool:
    """Whether the leaf is (or stands for) a typed PRNG key array."""
    return jnp.issubdtype(getattr(leaf, "dtype", None), jax.dtypes.prng_key)


def is_empty(leaf: Any) -> bool:
    """Whether the leaf has no entries."""
    return 0 in np.shape(leaf)


def encode(leaf: Any) -> Any:
    """What is written for a leaf: the data of a PRNG key, an array for a number."""
    if is_key(leaf):
        return jax.random.key_data(leaf)
    return leaf if isinstance(leaf, jax.Array) else np.array(leaf)


def checksum(value: Any) -> int | None:
    """CRC-32 of what ``encode`` gives; None for an array of which other processes hold a part."""
    if isinstance(value, jax.Array) and not (value.is_fully_addressable or value.is_fully_replicated):
        return None
    return zlib.crc32(np.ascontiguousarray(value).reshape(-1).view(np.uint8))


def abstract(leaf: Any) -> Any:
    """What is to be read for a target leaf: with its sharding, or on the first device if it has none."""
    if not isinstance(leaf, jax.Array | jax.ShapeDtypeStruct):
        return np.asarray(leaf)
    data = jax.eval_shape(jax.random.key_data, leaf) if is_key(leaf) else leaf
    return jax.ShapeDtypeStruct(data.shape, data.dtype, sharding=_sharding(leaf))


def described(about: Mapping) -> jax.ShapeDtypeStruct:
    """The leaf that ``describe`` described, without its values."""
    dtype = jax.random.key(0, impl=about["key"]).dtype if "key" in about else about["dtype"]
    return jax.ShapeDtypeStruct(tuple(about["shape"]), dtype)


def decode(value: Any, about: Mapping, target: Any) -> Any:
    """The leaf from what was read (None where nothing was written because it is empty).

    Args:
        about: what ``describe`` gave when the leaf was saved.
        target: the leaf that it takes the place of.
    """
    if value is None:
        value = _empty(abstract(target))
    if is_key(target):
        return jax.random.wrap_key_data(value, impl=about["key"])
    return value.item() if type(target) in (bool, int, float) else value


def compare(saved: Mapping[str, Mapping], wanted: Mapping[str, Mapping]) -> list[str]:
    """Every leaf whose presence, shape or dtype differs, with both; empty if the trees agree.

    Args:
        saved, wanted: path -> what ``describe`` gives.
    """
    return [
        f"{name}: saved {_text(saved.get(name))}, wanted {_text(wanted.get(name))}"
        for name in sorted(saved.keys() | wanted.keys())
        if _text(saved.get(name)) != _text(wanted.get(name))
    ]


def _text(about: Mapping | None) -> str:
    if about is None:
        return "nothing"
    return f"{about['dtype']}[{','.join(map(str, about['shape']))}]"


def _sharding(leaf: Any) -> jax.sharding.Sharding:
    return leaf.sharding or jax.sharding.SingleDeviceSharding(jax.local_devices()[0])


def _empty(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        return np.zeros(leaf.shape, leaf.dtype)
    # Built by callback, not by a jitted zeros: a simulator has dozens of these, each a compilation.
    zeros = np.zeros(leaf.shape, leaf.dtype)
    return jax.make_array_from_callback(leaf.shape, leaf.sharding, lambda index: zeros[index])
