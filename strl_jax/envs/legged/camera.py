"""A depth camera on the robot's base: rays meet the ground, whose height is a function of the position."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from strl_jax.envs.base import where
from strl_jax.envs.legged.config_ground import CameraConfig
from strl_jax.envs.legged.rotations import rotate
from strl_jax.types import Array

HALVINGS = 5  # bisection steps in the last interval of a ray, before linear interpolation in it


def depth_image(
    config: CameraConfig,
    height: Callable[[Array], Array] | None,
    position: Array,
    quaternion: Array,
    key: Array | None = None,
) -> Array:
    """The image of ONE environment's camera, float32 ``[1, H, W]``; row 0 is the top, column 0 is the left.

    A pixel is the depth in m along the camera's axis, not along the pixel's ray: all pixels of a wall
    perpendicular to the axis have the same depth, as in simulators and real depth cameras. The depth is clipped
    to ``depth_range`` and mapped to [0, 1], or to [-0.5, 0.5] if ``centered``; the sky has the greatest
    depth. The image shows only the ground, not the robot's legs or other robots.

    The image depends only on the pose and the key. If a camera is slower than the control, keep the image in
    the environment's state and call this function in a ``lax.cond`` on a step count that all environments
    share; the steps between two images then compute no rays.

    Args:
        height: positions ``[..., 2]`` in the world -> height of the ground ``[...]``, m; None: flat ground at 0.
        position: ``[3]``, of the base in the world, m.
        quaternion: ``[4]``, orientation of the base, w first.
        key: PRNG key of the noise; required if ``config.noise`` is above 0.
    """
    near, far = config.depth_range
    origin = position + rotate(quaternion, jnp.array(config.position))
    direction = rotate(quaternion, jnp.asarray(directions(config)))
    depth = _to_plane(origin, direction) if height is None else _to_surface(config, height, origin, direction)
    if config.noise > 0:
        noise = config.noise * jax.random.normal(key, depth.shape)
        depth = jnp.where(depth < far, depth + noise, depth)  # a pixel without a surface in range has no noise
    normalised = (jnp.clip(depth, near, far) - near) / (far - near)
    return (normalised - 0.5 * config.centered)[None]


def directions(config: CameraConfig) -> np.ndarray:
    """The ray of each pixel in the base's frame (x forwards, y left, z up); its part along the camera's axis is 1 m.

    Returns:
        float32 ``[H, W, 3]``.
    """
    pixel = np.tan(config.horizontal_fov / 2) / (config.width / 2)  # size of a square pixel at a depth of 1 m
    right = pixel * (np.arange(config.width) + 0.5 - config.width / 2)
    down = pixel * (np.arange(config.height) + 0.5 - config.height / 2)
    down, right = np.meshgrid(down, right, indexing="ij")
    cos, sin = np.cos(config.pitch), np.sin(config.pitch)
    return np.stack([cos - sin * down, -right, -sin - cos * down], axis=-1).astype(np.float32)


def _to_plane(origin: Array, direction: Array) -> Array:
    """Depth ``[...]`` of the plane z = 0; infinite for rays that do not go down."""
    downwards = direction[..., 2] < 0
    return jnp.where(downwards, origin[2] / -jnp.where(downwards, direction[..., 2], -1.0), jnp.inf)


def _to_surface(config: CameraConfig, height: Callable[[Array], Array], origin: Array, direction: Array) -> Array:
    """Depth ``[...]`` at which each ray enters the ground; the greatest depth if it does not.

    Each ray is sampled at ``steps`` equal intervals of depth. The interval before the first sample below the
    ground is bisected, and the surface is interpolated linearly in the rest. A ray that enters and leaves
    the ground within one interval misses it. Only the last two samples are kept, so the memory is that
    of a few images.
    """
    near, far = config.depth_range
    stride = (far - near) / config.steps

    def above_ground(depth: Array) -> Array:
        point = origin + depth[..., None] * direction
        return point[..., 2] - height(point[..., :2])

    def advance(number, carry):
        last, first = carry  # the last sample above the ground and the next one: depth, height above the ground
        depth = jnp.full_like(first[0], near + stride * (number + 1.0))
        new, searching = (depth, above_ground(depth)), first[1] > 0
        return where(searching, first, last), where(searching, new, first)

    def bisect(_, carry):
        last, first = carry
        depth = (last[0] + first[0]) / 2
        middle = depth, above_ground(depth)
        above = middle[1] > 0
        return where(above, middle, last), where(above, first, middle)

    start = jnp.full(direction.shape[:-1], near, jnp.float32)
    start = start, above_ground(start)
    last, first = jax.lax.fori_loop(0, config.steps, advance, (start, start))
    last, first = jax.lax.fori_loop(0, HALVINGS, bisect, (last, first))
    fraction = last[1] / jnp.maximum(last[1] - first[1], 1e-9)
    return jnp.where(first[1] > 0, far, last[0] + fraction * (first[0] - last[0]))
