"""Ground that is not flat: a grid of square fields, each of one kind and one difficulty, as a height field."""

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from strl_jax.envs.legged.config import TerrainConfig
from strl_jax.types import Array

GAP, BLOCK = 2, 3  # obstacle ids, see modules/mutex_selection.py; 0 is none
MOST = 10_000_000  # heights: every compiled program holds them
EPS = 1e-6  # m, of comparing places on the grid
Field = tuple[np.ndarray, list[float]]  # heights [N + 1, N + 1], and what Terrain.obstacles holds of it


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
            round a field's centre that has to be leapt (``GAP``) or climbed (``BLOCK``, down where the height is
            below 0); id 0: none.
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


@dataclass(frozen=True)
class Shape:
    """A field's points, and the random numbers of its unevenness.

    Attributes:
        config: of the terrain.
        radius: ``[N + 1, N + 1]``, m from the centre, the greater of those along x and y.
        difficulty: from 0, the first level, to 1, the last.
        random: of this field alone.
    """

    config: TerrainConfig
    radius: np.ndarray
    difficulty: float
    random: np.random.Generator

    @property
    def platform(self) -> float:
        """Half of the flat middle."""
        return self.config.platform_size / 2

    @property
    def half(self) -> float:
        return self.config.terrain_length / 2

    def within(self, limits: tuple[float, float]) -> float:
        """The number of a range at this difficulty."""
        return limits[0] + self.difficulty * (limits[1] - limits[0])

    def whole(self, length: float, least: int = 1) -> float:
        """The length as whole cells, at least so many."""
        return max(least, round(length / self.config.horizontal_scale)) * self.config.horizontal_scale


def build(config: TerrainConfig) -> Terrain:
    """The terrain of a config; the same for the same config.

    Raises:
        ValueError: one line that begins with the config's key: all proportions are 0, a field that is no even
            number of cells or too small for what stands in it, a platform too small for the places where
            robots start, or too many heights.
    """
    kinds = _kinds(config)
    _check(config, kinds)
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


def _kinds(config: TerrainConfig) -> tuple[str, ...]:
    """The kind of each column: what its middle falls on where the kinds share all columns."""
    shares = config.terrain_proportions.model_dump()
    total = sum(shares.values())
    if total == 0:
        raise ValueError("terrain.terrain_proportions: all are 0; one of them at least must be above 0")
    ends = np.cumsum(list(shares.values())) / total
    middles = (np.arange(config.num_cols) + 0.5) / config.num_cols
    return tuple(np.array(list(shares))[np.searchsorted(ends, middles, side="right")].tolist())


def _check(config: TerrainConfig, kinds: tuple[str, ...]) -> None:
    cell, length, platform = config.horizontal_scale, config.terrain_length, config.platform_size
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
    points = [round((count * length + 2 * config.border_size) / cell) for count in (config.num_rows, config.num_cols)]
    if points[0] * points[1] > MOST:
        raise ValueError(
            f"terrain.horizontal_scale: {cell:g} is not allowed; it makes {points[0]} x {points[1]} heights, "
            f"more than {MOST}"
        )


def _flat(shape: Shape) -> Field:
    return np.zeros_like(shape.radius), NONE


def _rough(shape: Shape) -> Field:
    """Random heights at every second point, straight between them; none on the platform and at the field's edge."""
    most, count = shape.within(shape.config.rough_height), len(shape.radius)
    coarse = shape.random.uniform(-most, most, ((count + 2) // 2,) * 2)
    place = np.arange(count) / 2
    low = np.minimum(place.astype(int), len(coarse) - 2)
    share = place - low
    fine = coarse[low] * (1 - share[:, None]) + coarse[low + 1] * share[:, None]
    fine = fine[:, low] * (1 - share) + fine[:, low + 1] * share
    uneven = (shape.radius > shape.platform + EPS) & (shape.radius < shape.half - EPS)
    return np.where(uneven, fine, 0.0), NONE


def _slope(shape: Shape) -> Field:
    """A pyramid with a flat top."""
    return shape.within(shape.config.slope) * (shape.half - np.maximum(shape.radius, shape.platform)), NONE


def _stairs(shape: Shape) -> Field:
    """A pyramid of steps; each riser is one cell wide."""
    width = shape.whole(shape.config.step_width, 2)
    steps = int((shape.half - shape.platform + EPS) / width)
    passed = np.clip(np.ceil((shape.radius - shape.platform - EPS) / width), 0, steps)
    return shape.within(shape.config.step_height) * (steps - passed), NONE


def _gaps(shape: Shape) -> Field:
    extent, depth = shape.whole(shape.within(shape.config.gap_size), 2), shape.config.gap_depth
    return _ring(shape, GAP, extent, -depth)


def _block(shape: Shape) -> Field:
    return _ring(shape, BLOCK, shape.whole(shape.config.block_length, 2), shape.within(shape.config.block_height))


def _ring(shape: Shape, obstacle: int, extent: float, height: float) -> Field:
    """A square ring round the platform; its walls are one cell wide and belong to it."""
    inner = shape.whole(shape.platform)
    on = (shape.radius > inner + EPS) & (shape.radius < inner + extent - EPS)
    return np.where(on, height, 0.0), [obstacle, inner, extent, height]


def _sunk(make: Callable) -> Callable:
    """The field upside down."""

    def field(shape: Shape) -> Field:
        heights, (obstacle, inner, extent, height) = make(shape)
        return 0.0 - heights, [obstacle, inner, extent, 0.0 - height]  # 0, not -0

    return field


NONE = [0, 0.0, 0.0, 0.0]  # no obstacle
FIELDS = {  # up and down: the way of a robot that leaves the platform
    "flat": _flat,
    "rough": _rough,
    "slope_up": _sunk(_slope),
    "slope_down": _slope,
    "stairs_up": _sunk(_stairs),
    "stairs_down": _stairs,
    "gaps": _gaps,
    "blocks_up": _block,
    "blocks_down": _sunk(_block),
}
