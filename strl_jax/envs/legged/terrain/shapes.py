"""The kinds of a terrain's fields: heights about a flat platform, 0 at the field's edge."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from strl_jax.envs.legged.config_ground import TerrainConfig

GAP, BLOCK = 2, 3  # obstacle ids, see modules/mutex_selection.py
NONE = [0, 0.0, 0.0, 0.0]  # no obstacle
EPS = 1e-6  # m, of comparing places on the grid
Field = tuple[np.ndarray, list[float]]  # heights [N + 1, N + 1], and what Terrain.obstacles holds of it


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
        return half_platform(self.config)

    @property
    def half(self) -> float:
        return self.config.terrain_length / 2

    def within(self, limits: tuple[float, float]) -> float:
        """The number of a range at this difficulty."""
        return limits[0] + self.difficulty * (limits[1] - limits[0])

    def whole(self, length: float, least: int = 1) -> float:
        """The length as whole cells, at least so many."""
        return max(least, round(length / self.config.horizontal_scale)) * self.config.horizontal_scale


def half_platform(config: TerrainConfig) -> float:
    """m from a field's middle to the edge of its platform, which lies on the next line of points."""
    return math.ceil(config.platform_size / 2 / config.horizontal_scale - EPS) * config.horizontal_scale


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
    inner = shape.platform
    on = (shape.radius > inner + EPS) & (shape.radius < inner + extent - EPS)
    return np.where(on, height, 0.0), [obstacle, inner, extent, height]


def _sunk(make: Callable) -> Callable:
    """The field upside down."""

    def field(shape: Shape) -> Field:
        heights, (obstacle, inner, extent, height) = make(shape)
        return 0.0 - heights, [obstacle, inner, extent, 0.0 - height]  # 0, not -0

    return field


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
