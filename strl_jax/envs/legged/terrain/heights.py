"""Terrain: a height field of square fields, each with one kind of ground and one level of difficulty."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from strl_jax.envs.legged.config_ground import TerrainConfig
from strl_jax.envs.legged.terrain.shapes import FIELDS, Shape
from strl_jax.types import Array


@dataclass(frozen=True, eq=False)
class Terrain:
    """The ground: heights at the points of a grid, with bilinear interpolation between them.

    Rows of fields are the levels of difficulty, along x; columns are along y.

    Attributes:
        heights: float32 ``[X, Y]``, m.
        cell: distance between neighbouring points, m.
        corner: position of ``heights[0, 0]`` in the world, m; the centre of the grid is the world's origin.
        origins: float32 ``[rows, columns, 3]``, centre and height of each field, where robots start, m.
        kinds: the kind of each column.
        obstacles: float32 ``[rows, columns, 4]``: id, inner radius, extent and height (m) of the square
            ring around a field's centre. Id 0: none; 2: a gap to jump over; 3: a block to climb, down if its
            height is negative.
    """

    heights: np.ndarray
    cell: float
    corner: tuple[float, float]
    origins: np.ndarray
    kinds: tuple[str, ...]
    obstacles: np.ndarray

    def height(self, xy: Array) -> Array:
        """Height of the ground ``[...]`` in m at positions ``xy[..., 2]``; outside the terrain, that of its edge."""
        return self.surface(xy)[0]

    def surface(self, xy: Array) -> tuple[Array, Array]:
        """``height`` ``[...]``, and the unit normal ``[..., 3]`` of the surface in the cell of each position."""
        point = (xy - jnp.array(self.corner, jnp.float32)) / self.cell
        last = jnp.array(self.heights.shape) - 2
        index = jnp.clip(jnp.floor(point).astype(jnp.int32), 0, last)
        fraction = jnp.clip(point - index, 0.0, 1.0)
        x, y = index[..., 0], index[..., 1]
        u, v = fraction[..., 0], fraction[..., 1]
        grid = jnp.asarray(self.heights)
        near, far = grid[x, y], grid[x + 1, y]  # heights at the lower y; the rises lead to the upper y
        near_rise, far_rise = grid[x, y + 1] - near, grid[x + 1, y + 1] - far
        low, high = near + v * near_rise, far + v * far_rise
        slope_x, slope_y = (high - low) / self.cell, (near_rise + u * (far_rise - near_rise)) / self.cell
        normal = jnp.stack([-slope_x, -slope_y, jnp.ones_like(slope_x)], axis=-1)
        return low + u * (high - low), normal / jnp.linalg.norm(normal, axis=-1, keepdims=True)

    def inside(self, xy: Array) -> Array:
        """bool ``[...]``: the positions ``xy[..., 2]`` are on the terrain."""
        low = jnp.array(self.corner, jnp.float32)
        high = low + self.cell * (jnp.array(self.heights.shape) - 1)
        return ((xy >= low) & (xy <= high)).all(axis=-1)


def build(config: TerrainConfig) -> Terrain:
    """The terrain of a config; equal configs have equal terrains."""
    kinds = config.kinds
    cell, rows, cols = config.horizontal_scale, config.num_rows, config.num_cols
    cells, border = round(config.terrain_length / cell), round(config.border_size / cell)
    heights = np.zeros((rows * cells + 2 * border + 1, cols * cells + 2 * border + 1), np.float32)
    obstacles = np.zeros((rows, cols, 4), np.float32)
    corner = tuple(-cell * (count - 1) / 2 for count in heights.shape)
    offset = np.abs(np.arange(cells + 1) - cells / 2) * cell
    radius = np.maximum.outer(offset, offset)
    origins = np.zeros((rows, cols, 3), np.float32)
    for row in range(rows):
        for col, kind in enumerate(kinds):
            random = np.random.default_rng([config.seed, row, col])
            shape = Shape(config, radius, row / max(rows - 1, 1), random)
            field, obstacles[row, col] = FIELDS[kind](shape)
            x, y = border + row * cells, border + col * cells
            heights[x : x + cells + 1, y : y + cells + 1] = field
            middle = [corner[0] + cell * (x + cells / 2), corner[1] + cell * (y + cells / 2)]
            origins[row, col] = [*middle, field[cells // 2, cells // 2]]
    return Terrain(heights, cell, corner, origins, kinds, obstacles)
