"""Rotations by unit quaternions ``[..., 4]``, w first, from a body's frame to the world frame."""

import jax.numpy as jnp

from strl_jax.types import Array


def rotate(quaternion: Array, vector: Array) -> Array:
    """``vector[..., 3]`` of the body's frame, in the world frame; ``quaternion[..., 4]`` broadcasts to it."""
    w, axis = quaternion[..., :1], jnp.broadcast_to(quaternion[..., 1:], vector.shape)
    cross = 2 * jnp.cross(axis, vector)
    return vector + w * cross + jnp.cross(axis, cross)


def rotate_back(quaternion: Array, vector: Array) -> Array:
    """``vector[..., 3]`` of the world frame, in the body's frame."""
    return rotate(quaternion * jnp.array([1.0, -1.0, -1.0, -1.0]), vector)


def product(first: Array, second: Array) -> Array:
    """The quaternion ``[..., 4]`` of the rotation ``second``, followed by ``first``."""
    w, axis = first[..., :1] * second[..., :1], first[..., 1:] * second[..., :1] + first[..., :1] * second[..., 1:]
    w -= (first[..., 1:] * second[..., 1:]).sum(-1, keepdims=True)
    return jnp.concatenate([w, axis + jnp.cross(first[..., 1:], second[..., 1:])], axis=-1)


def yaw(quaternion: Array) -> Array:
    """Heading ``[...]`` of the body's x axis in the world, rad."""
    w, x, y, z = jnp.moveaxis(quaternion, -1, 0)
    return jnp.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
