"""Ground that is not flat: a grid of square fields, each of one kind and one difficulty, as a height field."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from strl_jax.envs.legged.config_ground import TerrainConfig
from strl_jax.envs.legged.terrain.shapes import EPS, FIELDS, Shape, half_platform
from strl_jax.types import Array

MOST = 10_000_000  # heights: every compiled program holds them


@dataclass(frozen=True, eq=False)
class Terrain:
    """The ground as heights at the points of a grid, bilinear between them.

    Rows lie along x and are the levels of difficulty; columns lie along y.

    Attributes:
        heights: float32 ``[X, Y]``, in m.
        cell: m between neighbouring points.
        corner: place of ``heights[0, 0]``; the whole is centred on the world's origin.
        origins: float32 ``[rows, columns, 3]``, each field's centre and its height, where robots start.
        kinds: of each column.
        obstacles: float32 ``[rows, columns, 4]``: id, inner radius, extent and height in m of the square ring
            round a field's centre that has to be leapt (2) or climbed (3;
            down where the height is below 0); id 0: none.
    """

    heights: np.ndarray
    cell: float
    corner: tuple[float, float]
    origins: np.ndarray
    kinds: tuple[str, ...]
    obstacles: np.ndarray

    def height(self, xy: Array) -> Array:
        """Height of the ground ``[...]`` at places ``xy[..., 2]``; beyond the edge that of the edge."""
        return self.surface(xy)[0]

    def normal(self, xy: Array) -> Array:
        """The unit normal ``[..., 3]`` of the ground at places ``xy[..., 2]``, that of the cell they are in."""
        return self.surface(xy)[1]

    def surface(self, xy: Array) -> tuple[Array, Array]:
        """``height`` and ``normal`` from one look at the grid."""
        place = (xy - jnp.array(self.corner, jnp.float32)) / self.cell
        last = jnp.array(self.heights.shape) - 2
        index = jnp.clip(jnp.floor(place).astype(jnp.int32), 0, last)
        share = jnp.clip(place - index, 0.0, 1.0)
        x, y = index[..., 0], index[..., 1]
        u, v = share[..., 0], share[..., 1]
        grid = jnp.asarray(self.heights)
        near, far = grid[x, y], grid[x + 1, y]  # at the lower y; each with what it rises towards the upper y
        near_rise, far_rise = grid[x, y + 1] - near, grid[x + 1, y + 1] - far
        low, high = near + v * near_rise, far + v * far_rise
        slope_x, slope_y = (high - low) / self.cell, (near_rise + u * (far_rise - near_rise)) / self.cell
        normal = jnp.stack([-slope_x, -slope_y, jnp.ones_like(slope_x)], axis=-1)
        return low + u * (high - low), normal / jnp.linalg.norm(normal, axis=-1, keepdims=True)

    def inside(self, xy: Array) -> Array:
        """bool ``[...]``: the places ``xy[..., 2]`` are not beyond the edge."""
        low = jnp.array(self.corner, jnp.float32)
        high = low + self.cell * (jnp.array(self.heights.shape) - 1)
        return ((xy >= low) & (xy <= high)).all(axis=-1)


def build(config: TerrainConfig) -> Terrain:
    """The terrain of a config; the same for the same config. Raises ``ValueError`` as ``check``."""
    kinds = check(config)
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


def check(config: TerrainConfig) -> tuple[str, ...]:
    """The kind of each column of a terrain that can be built.

    Raises:
        ValueError: one line that begins with the config's key: all proportions are 0, a field that is no even
            number of cells or too small for what stands in it, a platform too small for the places where
            robots start, or too many heights.
    """
    _check_size(config)
    kinds = _kinds(config)
    _check_fields(config, kinds)
    return kinds


def _kinds(config: TerrainConfig) -> tuple[str, ...]:
    """The kind of each column: what its middle falls on where the kinds share all columns."""
    shares = config.terrain_proportions.model_dump()
    total = sum(shares.values())
    if total == 0:
        raise ValueError("terrain.terrain_proportions: all are 0; one of them at least must be above 0")
    ends = np.cumsum(list(shares.values())) / total
    middles = (np.arange(config.num_cols) + 0.5) / config.num_cols
    return tuple(np.array(list(shares))[np.searchsorted(ends, middles, side="right")].tolist())


def _check_fields(config: TerrainConfig, kinds: tuple[str, ...]) -> None:
    cell, length, platform = config.horizontal_scale, config.terrain_length, 2 * half_platform(config)
    if abs(length / cell / 2 - round(length / cell / 2)) > EPS:  # so that a point stands in the middle
        raise ValueError(f"terrain.terrain_length: {length:g} is not allowed; it must be a multiple of {2 * cell:g}")
    around = {"gaps": config.gap_size[1], "blocks_up": config.block_length, "blocks_down": config.block_length}
    around |= {"stairs_up": config.step_width, "stairs_down": config.step_width}
    widest = max(kinds, key=lambda kind: around.get(kind, 0.0))
    least = platform + 2 * (max(around.get(widest, 0.0), 2 * cell) + cell)
    if length < least - EPS:
        raise ValueError(
            f"terrain.terrain_length: {length:g} is not allowed; it must be >= {least:g}, "
            f"the platform of {platform:g} and what is round it in {widest}"
        )
    if config.start_offset > platform / 2:
        raise ValueError(
            f"terrain.start_offset: {config.start_offset:g} is not allowed; "
            f"it must be <= {platform / 2:g}, half of the platform"
        )


def _check_size(config: TerrainConfig) -> None:
    cell, length = config.horizontal_scale, config.terrain_length
    points = [round((count * length + 2 * config.border_size) / cell) for count in (config.num_rows, config.num_cols)]
    if points[0] * points[1] > MOST:
        raise ValueError(
            f"terrain.horizontal_scale: {cell:g} is not allowed; it makes {points[0]} x {points[1]} heights, "
            f"more than {MOST}"
        )
