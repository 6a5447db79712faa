"""A depth camera on the robot's base: rays against the ground as a function of the place."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from strl_jax.envs.legged.config_ground import CameraConfig
from strl_jax.envs.legged.rotations import rotate
from strl_jax.types import Array

HALVINGS = 5  # of the last stride of a ray, before the surface in it is taken as straight


def depth_image(
    config: CameraConfig,
    height: Callable[[Array], Array] | None,
    position: Array,
    turn: Array,
    key: Array | None = None,
) -> Array:
    """What ONE environment's camera sees, float32 ``[1, H, W]``; row 0 is the top, column 0 the left.

    Each pixel is the depth along the camera's axis in m (not along its own ray), as simulators and real
    cameras give it: all of a wall that stands across the view has one depth. It is cut to ``depth_range`` and
    mapped to [0, 1], or to [-0.5, 0.5] where ``centered``; sky is the far end. The camera sees the ground
    alone, neither the robot's own legs nor other robots.

    The image is a function of the pose (and the key) alone. An environment whose camera is slower than its
    control keeps the image in its state and puts this call under a ``lax.cond`` on a clock that all
    environments share, which also spares the rays of the steps between.

    Args:
        height: places ``[..., 2]`` in the world -> height of the ground ``[...]`` there; None: flat, at 0.
        position: ``[3]``, of the base in the world.
        turn: ``[4]``, the base's unit quaternion, w first.
        key: of the noise; needed where ``config.noise`` is above 0.
    """
    near, far = config.depth_range
    eye = position + rotate(turn, jnp.array(config.position))
    direction = rotate(turn, jnp.asarray(directions(config)))
    depth = _to_plane(eye, direction) if height is None else _to_surface(config, height, eye, direction)
    if config.noise > 0:
        noise = config.noise * jax.random.normal(key, depth.shape)
        depth = jnp.where(depth < far, depth + noise, depth)  # there is nothing to be measured beyond
    share = (jnp.clip(depth, near, far) - near) / (far - near)
    return (share - 0.5 * config.centered)[None]


def directions(config: CameraConfig) -> np.ndarray:
    """Ray of each pixel in the base's frame (x forwards, y left, z up), one m long along the camera's axis.

    Returns:
        float32 ``[H, W, 3]``.
    """
    half = np.tan(config.horizontal_fov / 2) / (config.width / 2)  # of one pixel; they are square
    right = half * (np.arange(config.width) + 0.5 - config.width / 2)
    down = half * (np.arange(config.height) + 0.5 - config.height / 2)
    down, right = np.meshgrid(down, right, indexing="ij")
    cos, sin = np.cos(config.pitch), np.sin(config.pitch)
    return np.stack([cos - sin * down, -right, -sin - cos * down], axis=-1).astype(np.float32)


def _to_plane(eye: Array, direction: Array) -> Array:
    """Depth ``[...]`` of the plane z = 0, infinite for rays that do not go down."""
    falls = direction[..., 2] < 0
    return jnp.where(falls, eye[2] / -jnp.where(falls, direction[..., 2], -1.0), jnp.inf)


def _to_surface(config: CameraConfig, height: Callable[[Array], Array], eye: Array, direction: Array) -> Array:
    """Depth ``[...]`` of the first point under the ground, the far end where there is none.

    Each ray is sampled at ``steps`` equal strides of depth until a sample is under the ground; the stride
    before it is halved and the surface taken as straight in what remains. A part of the ground that a ray
    enters and leaves within one stride is not seen. Nothing is kept of earlier samples, so that the memory
    is that of a few images.
    """
    near, far = config.depth_range
    stride = (far - near) / config.steps

    def over(depth: Array) -> Array:
        point = eye + depth[..., None] * direction
        return point[..., 2] - height(point[..., :2])

    def advance(number, carry):
        last, first = carry  # the last sample over the ground and the one after it: depth, height over the ground
        depth = jnp.full_like(first[0], near + stride * (number + 1.0))
        new, going = (depth, over(depth)), first[1] > 0
        return _pick(going, first, last), _pick(going, new, first)

    def halve(_, carry):
        last, first = carry
        depth = (last[0] + first[0]) / 2
        middle = depth, over(depth)
        above = middle[1] > 0
        return _pick(above, middle, last), _pick(above, first, middle)

    start = jnp.full(direction.shape[:-1], near, jnp.float32)
    start = start, over(start)
    last, first = jax.lax.fori_loop(0, config.steps, advance, (start, start))
    last, first = jax.lax.fori_loop(0, HALVINGS, halve, (last, first))
    share = last[1] / jnp.maximum(last[1] - first[1], 1e-9)
    return jnp.where(first[1] > 0, far, last[0] + share * (first[0] - last[0]))


def _pick(condition: Array, chosen: tuple, other: tuple) -> tuple:
    return tuple(jnp.where(condition, a, b) for a, b in zip(chosen, other, strict=True))
