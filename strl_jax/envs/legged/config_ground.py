"""The sections ``terrain`` and ``camera`` of a legged environment's config."""

import math
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from strl_jax.envs.legged.config_types import Depths, Distance, Extent, Extents, Length, Place, Points, Slopes
from strl_jax.section import Section

EPS = 1e-6  # m; smaller distances between places on the grid are 0
MOST_POINTS = 10_000_000  # every compiled program holds their heights


class CameraConfig(Section):
    """A forward depth camera on the base, with the observation component ``forward_depth`` [1, height, width].

    The default image has an eighth of the pixels of the usual 106 x 60. One image takes 3 KB: 0.3 GB for a
    rollout of 4096 environments and 24 steps. Time and memory are proportional to the number of pixels.

    Attributes:
        position: position in the base's frame, in m.
        pitch: downward angle in rad.
        horizontal_fov: horizontal field of view in rad; pixels are square.
        height, width: pixels.
        depth_range: minimum and maximum depth, in m.
        steps: samples along a ray on uneven ground; a ray can miss what is thinner than the distance of two samples.
        noise: standard deviation of the noise of each pixel, in m.
        centered: depths are scaled to [-0.5, 0.5], not to [0, 1].
    """

    position: tuple[Place, Place, Place] = (0.27, 0.0, 0.03)
    pitch: float = Field(0.4, ge=-1.57, le=1.57)
    horizontal_fov: float = Field(1.5, gt=0, lt=3.1)
    height: int = Field(24, ge=1, le=1024)
    width: int = Field(32, ge=1, le=1024)
    depth_range: Depths = (0.1, 2.1)
    steps: int = Field(25, ge=1, le=10000)
    noise: float = Field(0.0, ge=0, le=100)
    centered: bool = False


class TerrainProportions(Section):
    """Share of the columns of each kind of field; up and down are seen from the middle of a field."""

    flat: float = Field(0.1, ge=0, le=1e6)
    rough: float = Field(0.1, ge=0, le=1e6)
    slope_up: float = Field(0.1, ge=0, le=1e6)
    slope_down: float = Field(0.1, ge=0, le=1e6)
    stairs_up: float = Field(0.2, ge=0, le=1e6)
    stairs_down: float = Field(0.1, ge=0, le=1e6)
    gaps: float = Field(0.1, ge=0, le=1e6)
    blocks_up: float = Field(0.1, ge=0, le=1e6)
    blocks_down: float = Field(0.1, ge=0, le=1e6)


class TerrainConfig(Section):
    """The ground: flat, or square fields in rows of increasing difficulty, where all fields of a column have one kind.

    The two numbers of a range are those of the easiest and of the hardest row, in m; a slope is height / distance.

    Attributes:
        mesh_type: plane, infinite flat ground; or heightfield, to which all other keys apply.
        horizontal_scale: distance between neighbouring points of the height field, in m; also the width of walls.
        border_size: width in m of the flat ground around all fields; a robot that leaves it has a time-out.
        curriculum: robots that walk far move to the next row, others move back. False: each environment keeps
            one field of a random row. With a curriculum, shorten episodes with ``episode.episode_length_s``: if
            ``env.episode_length`` ends an episode earlier, the curriculum treats this like a fall.
        max_init_terrain_level: last row, counted from 0, in which robots start with the curriculum.
        terrain_length: side of a field, in m.
        num_rows, num_cols: number of levels, and of fields in each level.
        platform_size: side in m of the flat square in the middle of each field, where robots start; it is
            rounded up to an even number of cells.
        start_offset: maximum initial distance from the middle along each axis, in m.
        rough_height: maximum height and depth of random ground.
        step_width: depth of a stair's step from edge to edge, in m.
        gap_size, gap_depth: width and depth of the gap around the platform.
        block_height, block_length: height (or depth) and width of the block around the platform.
        seed: seed of the random ground.
        measure_heights: add the observation component ``height_scan``.
        measured_points_x, measured_points_y: its points, in m from the base; x is forward.
        engage_distance: distance in m before the near edge of an obstacle at which it enters the observation
            component ``engaging_block``.
        passed_distance: distance in m after the far edge at which it leaves this component; the default is half
            of the robot's length.
    """

    mesh_type: Literal["plane", "heightfield"] = "plane"
    horizontal_scale: float = Field(0.1, ge=0.01, le=10)
    border_size: Distance = 5.0
    curriculum: bool = True
    max_init_terrain_level: int = Field(5, ge=0, le=1000)
    terrain_length: Length = 8.0
    num_rows: int = Field(10, ge=1, le=1000)
    num_cols: int = Field(10, ge=1, le=1000)
    terrain_proportions: TerrainProportions = TerrainProportions()
    platform_size: Length = 3.0
    start_offset: Distance = 0.5
    rough_height: Extents = (0.01, 0.08)
    slope: Slopes = (0.05, 0.4)
    step_height: Extents = (0.04, 0.18)
    step_width: Length = 0.3
    gap_size: Extents = (0.2, 0.6)
    gap_depth: Extent = 1.0
    block_height: Extents = (0.05, 0.35)
    block_length: Length = 1.5
    seed: int = Field(0, ge=0, lt=2**32)
    measure_heights: bool = True
    measured_points_x: Points = tuple(round(0.1 * i, 1) for i in range(-8, 9))
    measured_points_y: Points = tuple(round(0.1 * i, 1) for i in range(-5, 6))
    engage_distance: Distance = 1.0
    passed_distance: Distance = 0.25

    @property
    def half_platform(self) -> float:
        """Half of the side of a field's platform in m, rounded up to the next points of the grid."""
        return math.ceil(self.platform_size / 2 / self.horizontal_scale - EPS) * self.horizontal_scale

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of each column: the kinds divide all columns in proportion to their shares."""
        shares = self.terrain_proportions.model_dump()
        ends = np.cumsum(list(shares.values())) / sum(shares.values())
        middles = (np.arange(self.num_cols) + 0.5) / self.num_cols
        return tuple(np.array(list(shares))[np.searchsorted(ends, middles, side="right")].tolist())

    @model_validator(mode="after")
    def _can_be_built(self):
        if self.mesh_type == "plane":
            return self
        cell, length, platform = self.horizontal_scale, self.terrain_length, 2 * self.half_platform
        x, y = (round((count * length + 2 * self.border_size) / cell) for count in (self.num_rows, self.num_cols))
        if x * y > MOST_POINTS:
            raise ValueError(
                f"horizontal_scale: {cell:g} is not allowed; it gives {x} x {y} heights; at most {MOST_POINTS} "
                "are allowed"
            )
        if not any(self.terrain_proportions.model_dump().values()):
            raise ValueError("terrain_proportions: all are 0; at least one must be above 0")
        if abs(length / cell / 2 - round(length / cell / 2)) > EPS:  # so that there is a point in the middle
            raise ValueError(f"terrain_length: {length:g} is not allowed; it must be a multiple of {2 * cell:g}")
        around = {"gaps": self.gap_size[1], "blocks_up": self.block_length, "blocks_down": self.block_length}
        around |= {"stairs_up": self.step_width, "stairs_down": self.step_width}
        widest = max(self.kinds, key=lambda kind: around.get(kind, 0.0))
        least = platform + 2 * (max(around.get(widest, 0.0), 2 * cell) + cell)
        if length < least - EPS:
            raise ValueError(
                f"terrain_length: {length:g} is not allowed; it must be >= {least:g}, "
                f"for the platform of {platform:g} and the ground around it in {widest}"
            )
        if self.start_offset > platform / 2:
            raise ValueError(
                f"start_offset: {self.start_offset:g} is not allowed; "
                f"it must be <= {platform / 2:g}, half of the platform"
            )
        return self
