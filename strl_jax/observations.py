"""Named observation components: their order, sizes and places in a flat array."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp


@dataclass(frozen=True)
class Segments:
    """An ordered list of components, flattened one after the other.

    The order lives here and nowhere else: a dict of components loses its order
    inside ``jax.jit``, which sorts keys.

    Attributes:
        names: component names in order, each once.
        shapes: shape of each component without batch axes.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def select_from(cls, available: Mapping[str, tuple[int, ...]], names: Sequence[str]):
        """Segments of ``names`` with the shapes that ``available`` gives.

        Raises:
            ValueError: a name is unknown or stands twice.
        """
        for name in names:
            if name not in available:
                raise ValueError(f"unknown component {name!r}; the environment offers {', '.join(sorted(available))}")
            if list(names).count(name) > 1:
                raise ValueError(f"component {name!r} stands twice")
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
        """Where ``name`` lies in the flat array. Raises ``ValueError`` if it is not part of it."""
        index = self.names.index(name)
        start = sum(self.sizes[:index])
        return slice(start, start + self.sizes[index])

    def flatten(self, obs: Mapping[str, jax.Array]) -> jax.Array:
        """``component -> [..., *shape]`` to ``[..., size]``."""
        parts = []
        for name, shape, size in zip(self.names, self.shapes, self.sizes, strict=True):
            value = obs[name]
            batch = value.shape[: value.ndim - len(shape)]
            parts.append(value.reshape(*batch, size))
        return jnp.concatenate(parts, axis=-1)

    def select(self, flat: jax.Array, name: str) -> jax.Array:
        """Component ``name`` of ``[..., size]``, in its own shape."""
        shape = self.shapes[self.names.index(name)]
        return flat[..., self.slice(name)].reshape(*flat.shape[:-1], *shape)

    def replace(self, flat: jax.Array, name: str, value: jax.Array) -> jax.Array:
        """``flat`` with component ``name`` set to ``value``, given flat or in its own shape."""
        where = self.slice(name)
        return flat.at[..., where].set(value.reshape(*flat.shape[:-1], where.stop - where.start))
