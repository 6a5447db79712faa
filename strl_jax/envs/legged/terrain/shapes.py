"""The kinds of fields of a terrain: a flat platform, the ground of the kind around it, height 0 at the edge."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from strl_jax.envs.legged.config_ground import EPS, TerrainConfig

GAP, BLOCK = 2, 3  # obstacle ids, see modules/mutex_selection.py
NO_OBSTACLE = [0, 0.0, 0.0, 0.0]
Field = tuple[np.ndarray, list[float]]  # heights [N + 1, N + 1] in m, and the field's [4] of Terrain.obstacles


@dataclass(frozen=True)
class Shape:
    """The grid of one field, its difficulty and its random numbers.

    Attributes:
        config: of the terrain.
        radius: ``[N + 1, N + 1]``, m, the greater of the offsets from the centre along x and y.
        difficulty: from 0 (first level) to 1 (last level).
        random: the generator of this field.
    """

    config: TerrainConfig
    radius: np.ndarray
    difficulty: float
    random: np.random.Generator

    @property
    def platform(self) -> float:
        """Half of the side of the platform, m."""
        return self.config.half_platform

    @property
    def half(self) -> float:
        """Half of the side of the field, m."""
        return self.config.terrain_length / 2

    def at_difficulty(self, limits: tuple[float, float]) -> float:
        """Linear interpolation between the limits by the difficulty."""
        return limits[0] + self.difficulty * (limits[1] - limits[0])

    def whole_cells(self, length: float, minimum: int) -> float:
        """The length in m, rounded to a whole number of cells, at least ``minimum`` cells."""
        return max(minimum, round(length / self.config.horizontal_scale)) * self.config.horizontal_scale


def _flat(shape: Shape) -> Field:
    return np.zeros_like(shape.radius), NO_OBSTACLE


def _rough(shape: Shape) -> Field:
    """Random heights at every second point, linear between them; 0 on the platform and at the edge of the field."""
    limit, count = shape.at_difficulty(shape.config.rough_height), len(shape.radius)
    coarse = shape.random.uniform(-limit, limit, ((count + 2) // 2,) * 2)
    position = np.arange(count) / 2
    low = np.minimum(position.astype(int), len(coarse) - 2)
    fraction = position - low
    fine = coarse[low] * (1 - fraction[:, None]) + coarse[low + 1] * fraction[:, None]
    fine = fine[:, low] * (1 - fraction) + fine[:, low + 1] * fraction
    uneven = (shape.radius > shape.platform + EPS) & (shape.radius < shape.half - EPS)
    return np.where(uneven, fine, 0.0), NO_OBSTACLE


def _slope(shape: Shape) -> Field:
    """A pyramid with a flat top."""
    slope = shape.at_difficulty(shape.config.slope)
    return slope * (shape.half - np.maximum(shape.radius, shape.platform)), NO_OBSTACLE


def _stairs(shape: Shape) -> Field:
    """A pyramid of steps; each riser is one cell wide."""
    width = shape.whole_cells(shape.config.step_width, 2)
    steps = int((shape.half - shape.platform + EPS) / width)
    passed = np.clip(np.ceil((shape.radius - shape.platform - EPS) / width), 0, steps)
    return shape.at_difficulty(shape.config.step_height) * (steps - passed), NO_OBSTACLE


def _gaps(shape: Shape) -> Field:
    extent, depth = shape.whole_cells(shape.at_difficulty(shape.config.gap_size), 2), shape.config.gap_depth
    return _ring(shape, GAP, extent, -depth)


def _block(shape: Shape) -> Field:
    extent, height = shape.whole_cells(shape.config.block_length, 2), shape.at_difficulty(shape.config.block_height)
    return _ring(shape, BLOCK, extent, height)


def _ring(shape: Shape, obstacle: int, extent: float, height: float) -> Field:
    """A square ring around the platform; its walls are one cell wide and are part of ``extent``."""
    inner = shape.platform
    on_ring = (shape.radius > inner + EPS) & (shape.radius < inner + extent - EPS)
    return np.where(on_ring, height, 0.0), [obstacle, inner, extent, height]


def _inverted(make: Callable) -> Callable:
    """The kind of field with negated heights."""

    def field(shape: Shape) -> Field:
        heights, (obstacle, inner, extent, height) = make(shape)
        return 0.0 - heights, [obstacle, inner, extent, 0.0 - height]  # minus from 0.0 avoids -0.0

    return field


FIELDS = {  # up and down: for a robot that leaves the platform
    "flat": _flat,
    "rough": _rough,
    "slope_up": _inverted(_slope),
    "slope_down": _slope,
    "stairs_up": _inverted(_stairs),
    "stairs_down": _stairs,
    "gaps": _gaps,
    "blocks_up": _block,
    "blocks_down": _inverted(_block),
}
