"""Layout of a flat observation: order, shapes and slices of its named components."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp


@dataclass(frozen=True)
class Segments:
    """An ordered list of components, which are flattened and concatenated.

    The order is defined here and not by a dict of components, because ``jax.jit``
    sorts the keys of a dict.

    Attributes:
        names: component names in order, without repetition.
        shapes: shape of each component without batch axes.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def select_from(cls, available: Mapping[str, tuple[int, ...]], names: Sequence[str]):
        """Segments of ``names``, with their shapes in ``available``.

        Raises:
            ValueError: a name is unknown or is listed twice.
        """
        for name in names:
            if name not in available:
                raise ValueError(f"unknown component {name!r}; the environment offers {', '.join(sorted(available))}")
            if list(names).count(name) > 1:
                raise ValueError(f"component {name!r} is listed twice")
        return cls(tuple(names), tuple(tuple(available[name]) for name in names))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of entries of each component."""
        return tuple(math.prod(shape) for shape in self.shapes)

    @property
    def size(self) -> int:
        """Length of the flat array."""
        return sum(self.sizes)

    def slice(self, name: str) -> slice:
        """Slice of component ``name`` in the flat array.

        Raises:
            ValueError: there is no such component.
        """
        index = self.names.index(name)
        start = sum(self.sizes[:index])
        return slice(start, start + self.sizes[index])

    def flatten(self, obs: Mapping[str, jax.Array]) -> jax.Array:
        """Flattens and concatenates the components, ``[..., *shape]`` each, to ``[..., size]``."""
        parts = []
        for name, shape, size in zip(self.names, self.shapes, self.sizes, strict=True):
            value = obs[name]
            batch = value.shape[: value.ndim - len(shape)]
            parts.append(value.reshape(*batch, size))
        return jnp.concatenate(parts, axis=-1)

    def select(self, flat: jax.Array, name: str) -> jax.Array:
        """Component ``name`` of a flat array ``[..., size]``, in its shape ``[..., *shape]``."""
        shape = self.shapes[self.names.index(name)]
        return flat[..., self.slice(name)].reshape(*flat.shape[:-1], *shape)

    def replace(self, flat: jax.Array, name: str, value: jax.Array) -> jax.Array:
        """``flat`` ``[..., size]`` with component ``name`` replaced by ``value``, ``[..., *shape]`` or flattened."""
        where = self.slice(name)
        return flat.at[..., where].set(value.reshape(*flat.shape[:-1], where.stop - where.start))
