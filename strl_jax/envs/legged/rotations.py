"""Unit quaternions, w first."""

import jax.numpy as jnp

from strl_jax.types import Array


def rotate(turn: Array, vector: Array) -> Array:
    """``vector[..., 3]`` of the frame that ``turn[..., 4]`` turns, in the world."""
    w, axis = turn[..., :1], jnp.broadcast_to(turn[..., 1:], vector.shape)
    cross = 2 * jnp.cross(axis, vector)
    return vector + w * cross + jnp.cross(axis, cross)


def rotate_back(turn: Array, vector: Array) -> Array:
    """World ``vector[..., 3]`` in the frame that ``turn[..., 4]`` turns."""
    return rotate(turn * jnp.array([1.0, -1.0, -1.0, -1.0]), vector)


def yaw(turn: Array) -> Array:
    """Heading ``[...]`` of ``turn[..., 4]`` in the world, rad."""
    w, x, y, z = jnp.moveaxis(turn, -1, 0)
    return jnp.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
