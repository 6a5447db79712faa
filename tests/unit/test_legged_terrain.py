"""Terrain of the legged environments: its fields, heights between the points, and the curriculum of its rows."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from strl_jax.builders import environment
from strl_jax.config import ConfigError, EnvConfig
from strl_jax.envs.legged import observations, robot
from strl_jax.envs.legged.config import ControlConfig, LeggedConfig, RobotConfig, SimConfig
from strl_jax.envs.legged.config_ground import TerrainConfig, TerrainProportions
from strl_jax.envs.legged.terrain import heights as terrain
from strl_jax.envs.legged.terrain import levels
from strl_jax.envs.legged.terrain.heights import Terrain
from strl_jax.envs.legged.terrain.levels import OnField

KINDS = tuple(TerrainProportions.model_fields)
# One column of each kind, two rows; points every half metre, so that 4 m from the middle are 8 steps of the grid.
COARSE = TerrainConfig(
    mesh_type="heightfield",
    horizontal_scale=0.5,
    border_size=1.0,
    num_rows=2,
    num_cols=9,
    terrain_proportions=TerrainProportions(**dict.fromkeys(KINDS, 1.0)),
    platform_size=2.0,
    rough_height=(0.05, 0.2),
    slope=(0.1, 0.5),
    step_height=(0.1, 0.2),
    step_width=1.0,
    gap_size=(1.0, 1.5),
    gap_depth=0.8,
    block_height=(0.1, 0.3),
    block_length=1.5,
)


@pytest.fixture(scope="module")
def coarse():
    return terrain.build(COARSE)


def field(ground, row, kind):
    """The 17 x 17 heights of a field, 2 points of border before the first."""
    col = ground.kinds.index(kind)
    return ground.heights[2 + 16 * row : 19 + 16 * row, 2 + 16 * col : 19 + 16 * col]


def test_the_whole_is_centred(coarse):
    assert coarse.kinds == KINDS
    # 2 x 8 m and 9 x 8 m with 1 m on each side, in halves of a metre, and one point more.
    assert coarse.heights.shape == (2 * 18 + 1, 2 * 74 + 1)
    assert coarse.heights.dtype == np.float32
    assert coarse.corner == (-9.0, -37.0)
    np.testing.assert_array_equal(coarse.origins[:, 0, 0], [-4.0, 4.0])
    np.testing.assert_array_equal(coarse.origins[0, :, 1], [-32, -24, -16, -8, 0, 8, 16, 24, 32])


@pytest.mark.parametrize(
    ("kind", "row", "expected"),
    [
        ("flat", 1, [0.0] * 9),
        # 0.1 and 0.5 a metre, from 1 m to 4 m.
        ("slope_down", 0, [0.3, 0.3, 0.3, 0.25, 0.2, 0.15, 0.1, 0.05, 0.0]),
        ("slope_up", 1, [-1.5, -1.5, -1.5, -1.25, -1.0, -0.75, -0.5, -0.25, 0.0]),
        # Three steps of 1 m from 1 m on, each riser half a metre wide.
        ("stairs_down", 0, [0.3, 0.3, 0.3, 0.2, 0.2, 0.1, 0.1, 0.0, 0.0]),
        ("stairs_up", 1, [-0.6, -0.6, -0.6, -0.4, -0.4, -0.2, -0.2, 0.0, 0.0]),
        # Rings from 1 m to 2 or 2.5 m; their edges are at the height of the ground about them.
        ("gaps", 0, [0.0, 0.0, 0.0, -0.8, 0.0, 0.0, 0.0, 0.0, 0.0]),
        ("gaps", 1, [0.0, 0.0, 0.0, -0.8, -0.8, 0.0, 0.0, 0.0, 0.0]),
        ("blocks_up", 0, [0.0, 0.0, 0.0, 0.1, 0.1, 0.0, 0.0, 0.0, 0.0]),
        ("blocks_down", 1, [0.0, 0.0, 0.0, -0.3, -0.3, 0.0, 0.0, 0.0, 0.0]),
    ],
)
def test_profiles_from_the_middle_outwards(coarse, kind, row, expected):
    heights = field(coarse, row, kind)
    np.testing.assert_allclose(heights[8:, 8], expected, atol=1e-6)
    np.testing.assert_allclose(heights[8::-1, 8], expected, atol=1e-6)
    np.testing.assert_allclose(heights[8, 8:], expected, atol=1e-6)
    np.testing.assert_allclose(np.diagonal(heights)[8:], expected, atol=1e-6)  # squares, not circles
    assert coarse.origins[row, coarse.kinds.index(kind), 2] == heights[8, 8]


def test_obstacles_are_the_rings(coarse):
    """Id, inner radius, extent, height."""
    found = dict(zip(coarse.kinds, np.moveaxis(coarse.obstacles, 1, 0), strict=True))
    np.testing.assert_allclose(found.pop("gaps"), [[2, 1, 1, -0.8], [2, 1, 1.5, -0.8]], rtol=1e-6)
    np.testing.assert_allclose(found.pop("blocks_up"), [[3, 1, 1.5, 0.1], [3, 1, 1.5, 0.3]], rtol=1e-6)
    np.testing.assert_allclose(found.pop("blocks_down"), [[3, 1, 1.5, -0.1], [3, 1, 1.5, -0.3]], rtol=1e-6)
    assert all((rows == 0).all() for rows in found.values())


def test_rough_ground(coarse):
    """Random within its height, between the platform and the field's edge."""
    for row, most in ((0, 0.05), (1, 0.2)):
        heights = field(coarse, row, "rough")
        assert (heights[6:11, 6:11] == 0).all()
        edge = np.concatenate([heights[0], heights[-1], heights[:, 0], heights[:, -1]])
        assert (edge == 0).all()
        uneven = heights[1:-1, 1:-1]
        assert 0.8 * most < np.abs(uneven).max() <= most
        assert len(np.unique(uneven)) > 100
        # Every second point is the mean of its neighbours.
        np.testing.assert_allclose(heights[3, 2:-2:2], (heights[2, 2:-2:2] + heights[4, 2:-2:2]) / 2, atol=1e-6)


@pytest.mark.parametrize(("size", "scale", "half"), [(3.0, 0.1, 15), (3.3, 0.1, 17), (1.1, 0.25, 3), (0.01, 0.1, 1)])
def test_platforms_of_any_size_are_flat(size, scale, half):
    """The next whole cell from half of the size on, and only there the field's shape begins."""
    ground = terrain.build(
        COARSE.model_copy(update={"platform_size": size, "horizontal_scale": scale, "num_rows": 1, "start_offset": 0.1})
    )
    cells, border = round(8 / scale), round(1 / scale)
    for col, kind in enumerate(ground.kinds):
        heights = ground.heights[border : border + cells + 1, border + col * cells : border + (col + 1) * cells + 1]
        middle = heights[cells // 2 - half :, cells // 2 - half :][: 2 * half + 1, : 2 * half + 1]
        assert (middle == ground.origins[0, col, 2].astype(np.float32)).all(), kind
        wider = heights[cells // 2 - half - 1 :, cells // 2 - half - 1 :][: 2 * half + 3, : 2 * half + 3]
        assert (len(np.unique(wider)) > 1) == (kind != "flat"), kind
        if kind in ("gaps", "blocks_up", "blocks_down"):
            assert ground.obstacles[0, col, 1] == pytest.approx(half * scale)


def test_seeds():
    same, other = terrain.build(COARSE), terrain.build(COARSE.model_copy(update={"seed": 7}))
    first = terrain.build(COARSE)
    np.testing.assert_array_equal(same.heights, first.heights)
    assert (field(other, 1, "rough") != field(first, 1, "rough")).any()
    assert (field(other, 1, "stairs_up") == field(first, 1, "stairs_up")).all()


def test_the_default_gets_harder_by_the_row():
    ground = terrain.build(TerrainConfig(mesh_type="heightfield"))
    assert set(ground.kinds) == set(KINDS)
    assert ground.heights.size < 1e6
    for col, kind in enumerate(ground.kinds):
        # 5 m of border and 8 m for each field, at 0.1 m
        parts = [ground.heights[50 + 80 * row : 131 + 80 * row, 50 + 80 * col : 131 + 80 * col] for row in range(10)]
        assert all((part[25:56, 25:56] == part[40, 40]).all() for part in parts)  # 3 m of platform
        sizes = ground.obstacles[:, col, 2] if kind == "gaps" else [np.abs(part).max() for part in parts]
        assert (np.diff(sizes) >= -0.01).all(), kind  # random ground does not always reach its whole height
        assert (sizes[-1] > 2 * sizes[0]) == (kind != "flat")


@pytest.mark.parametrize(
    ("shares", "columns", "expected"),
    [
        ({"flat": 1.0, "gaps": 1.0}, 4, ("flat", "flat", "gaps", "gaps")),
        # Middles at 1/6, 1/2 and 5/6 of 0.2, 0.5 and 0.3
        ({"rough": 2.0, "stairs_up": 5.0, "blocks_up": 3.0}, 3, ("rough", "stairs_up", "blocks_up")),
        ({"rough": 1.0, "gaps": 0.01}, 2, ("rough", "rough")),
    ],
)
def test_columns_by_their_proportions(shares, columns, expected):
    proportions = TerrainProportions(**dict.fromkeys(KINDS, 0.0) | shares)
    changes = {"terrain_proportions": proportions, "num_cols": columns}
    assert terrain.build(COARSE.model_copy(update=changes)).kinds == expected


PATCH = Terrain(
    heights=np.array([[0.0, 1.0, 1.0], [2.0, 5.0, 1.0]], np.float32),
    cell=0.5,
    corner=(1.0, -1.0),
    origins=np.zeros((1, 1, 3), np.float32),
    kinds=("flat",),
    obstacles=np.zeros((1, 1, 4), np.float32),
)


def test_heights_between_the_points():
    xy = jnp.array([[[1.0, -1.0], [1.5, -0.5], [1.25, -1.0]], [[1.25, -0.75], [1.1, -0.6], [1.5, 0.0]]])
    # Corners 0 and 5; half of 0 and 2; the mean of 0, 1, 2 and 5; a fifth along x, four fifths along y:
    # 0.8 x (0.8 x 1) + 0.2 x (2 + 0.8 x 3); the last point.
    expected = [[0.0, 5.0, 1.0], [2.0, 0.8 * 0.8 + 0.2 * 4.4, 1.0]]
    np.testing.assert_allclose(PATCH.height(xy), expected, rtol=1e-5)
    beyond = jnp.array([[0.0, -9.0], [9.0, -0.5], [9.0, 9.0]])
    np.testing.assert_allclose(PATCH.height(beyond), [0.0, 5.0, 1.0], rtol=1e-6)
    assert PATCH.inside(jnp.array([[1.0, -1.0], [1.5, 0.0], [0.9, -0.5], [1.2, 0.1]])).tolist() == [
        True,
        True,
        False,
        False,
    ]


def test_normals_of_a_cell():
    # In the middle of the first cell, in 0.5 m: (2 + 5) / 2 - (0 + 1) / 2 along x, (1 + 5) / 2 - (0 + 2) / 2 along y.
    expected = np.array([-6.0, -4.0, 1.0]) / math.sqrt(53.0)
    np.testing.assert_allclose(PATCH.surface(jnp.array([1.25, -0.75]))[1], expected, rtol=1e-5)
    border = terrain.build(COARSE).surface(jnp.array([[-8.7, 0.2], [100.0, 0.0]]))[1]
    assert border.tolist() == [[0.0, 0.0, 1.0]] * 2
    # A slope of 0.1 that falls in the direction of x.
    ground = terrain.build(COARSE)
    place = jnp.asarray(ground.origins)[0, KINDS.index("slope_down"), :2] + jnp.array([2.2, 0.3])
    np.testing.assert_allclose(ground.surface(place)[1], np.array([0.1, 0.0, 1.0]) / math.sqrt(1.01), atol=1e-5)


def test_the_scan_is_the_heights_under_it(coarse):
    config = LeggedConfig(
        terrain=COARSE.model_copy(
            update={"measured_points_x": (0.5, 1.0), "measured_points_y": (-1.0, 0.0, 2.0)},
        )
    )
    assert observations.shapes(config, 12, 4)["height_scan"] == (6,)
    middle = coarse.origins[1, KINDS.index("stairs_up")]
    base = jnp.asarray(np.stack([middle, middle]) + np.array([1.5, 0.5, 0.9], np.float32))
    found = observations.height_scan(config, coarse, base, jnp.array([0.0, math.pi / 2]))
    x, y = middle[0] + 1.5, middle[1] + 0.5
    ahead = [(x + dx, y + dy) for dx in (0.5, 1.0) for dy in (-1.0, 0.0, 2.0)]
    left = [(x - dy, y + dx) for dx in (0.5, 1.0) for dy in (-1.0, 0.0, 2.0)]  # it faces along y
    for row, places in enumerate((ahead, left)):
        over = middle[2] + 0.9 - np.asarray(coarse.height(jnp.array(places)))
        assert len(np.unique(over)) > 1
        np.testing.assert_allclose(found[row], 5.0 * np.clip(over - 0.5, -1.0, 1.0), atol=1e-4)


def test_the_scan_of_flat_ground():
    config = LeggedConfig()
    base = jnp.array([[3.0, 4.0, 0.3], [0.0, 0.0, 9.0]])
    found = observations.height_scan(config, None, base, jnp.zeros(2))
    assert found.shape == (2, 17 * 11)
    np.testing.assert_allclose(found[0], 5.0 * (0.3 - 0.5), rtol=1e-6)
    np.testing.assert_allclose(found[1], 5.0)
    without = LeggedConfig(terrain=TerrainConfig(measure_heights=False))
    assert "height_scan" not in observations.shapes(without, 12, 4)


def test_who_goes_up_and_who_goes_down():
    """Half of a field is 4 m. Two thirds of the time limit were used, so the whole of it asks for 1.5 times the way."""
    cases = [
        # level, walked, asked so far, level after it
        (1, 4.1, 20.0, 2),  # far, though less than half of what was asked
        (1, 3.9, 5.0, 1),  # 7.5 m in the whole time
        (1, 3.7, 5.0, 0),
        (0, 0.1, 5.0, 0),
        (1, 0.0, 0.0, 1),  # told to stand
        (1, math.nan, 5.0, 1),  # a broken simulation says nothing
    ]
    level, walked, asked, expected = map(list, zip(*cases, strict=True))
    old = OnField(jnp.array(level), jnp.arange(len(cases)), jnp.array(asked))
    config = COARSE.model_copy(update={"num_rows": 3})
    keys = jax.random.split(jax.random.key(0), len(cases))
    new = levels.next_field(config, old, jnp.array(walked), jnp.full(len(cases), 2 / 3), keys)
    assert new.level.tolist() == expected
    assert new.column.tolist() == list(range(len(cases)))
    assert (new.asked == 0).all()
    still = config.model_copy(update={"curriculum": False})
    kept = levels.next_field(still, old, jnp.array(walked), jnp.full(len(cases), 2 / 3), keys)
    assert kept.level.tolist() == level


def test_from_the_last_row_to_any():
    count = 60
    old = OnField(jnp.full(count, 2), jnp.zeros(count, int), jnp.zeros(count))
    config = COARSE.model_copy(update={"num_rows": 3})
    keys = jax.random.split(jax.random.key(0), count)
    new = levels.next_field(config, old, jnp.full(count, 5.0), jnp.ones(count), keys)
    assert (np.bincount(new.level, minlength=3) > 10).all()  # 20 each
    assert new.level.max() == 2


@pytest.mark.parametrize(
    ("changes", "rows"),
    [
        ({"max_init_terrain_level": 1}, 2),
        ({"max_init_terrain_level": 99}, 4),
        ({"max_init_terrain_level": 1, "curriculum": False}, 4),
    ],
)
def test_where_environments_start(changes, rows):
    config = COARSE.model_copy(update={"num_rows": 4, "num_cols": 3} | changes)
    drawn = levels.draw(config, jax.random.split(jax.random.key(1), 200))
    counts = np.bincount(drawn.level)
    assert len(counts) == rows
    assert (counts > 100 / rows).all()
    assert (np.bincount(drawn.column) > 40).all()


def test_every_touching_geom_has_its_own_plane():
    ours = robot.load(RobotConfig(), ControlConfig(), SimConfig(), own_planes=True)
    assert ours.touching.tolist() == ours.foot_geoms.tolist()
    all_of_it = robot.load(RobotConfig(collide=True), ControlConfig(), SimConfig(), own_planes=True)
    model = all_of_it.model
    assert len(all_of_it.ground) == 1 + 4 * 5  # trunk; hip, motor, thigh, calf and foot of each leg
    met = (model.geom_contype[all_of_it.ground, None] & model.geom_conaffinity[None, :]) != 0
    assert met.sum(axis=1).tolist() == [1] * 21
    assert met.argmax(axis=1).tolist() == all_of_it.touching.tolist()
    assert (model.geom_conaffinity[all_of_it.ground] == 0).all()


def test_more_geoms_than_planes(tmp_path):
    path = tmp_path / "robot.xml"
    geoms = "".join(f'<geom name="g{i}" size="0.1" pos="{i} 0 0"/>' for i in range(32))
    leg = '<body name="leg"><joint name="j"/><geom name="foot" size="0.1"/></body>'
    path.write_text(f'<mujoco><worldbody><body name="body"><freejoint/>{geoms}{leg}</body></worldbody></mujoco>')
    names = {"base": "body", "joints": ("j",), "feet": ("foot",), "penalize_contacts_on": ()}
    names |= {"terminate_after_contacts_on": (), "torque_limit": 1.0, "default_joint_angles": {"j": 0.0}}
    config = RobotConfig(path=str(path), collide=True, **names)
    with pytest.raises(ValueError, match=r"^robot\.collide: 33 geoms can touch the ground; on a terrain at most 31"):
        robot.load(config, ControlConfig(), SimConfig(), own_planes=True)
    assert len(robot.load(config, ControlConfig(), SimConfig()).ground) == 1


ONLY_FLAT = dict.fromkeys(KINDS, 0.0) | {"flat": 1.0}


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        (
            {"terrain_proportions": dict.fromkeys(KINDS, 0)},
            ".terrain_proportions: all are 0; at least one must be above 0",
        ),
        ({"terrain_proportions": {"flat": -1}}, ".terrain_proportions.flat: -1 is not allowed; it must be >= 0"),
        ({"terrain_proportions": {"stair_up": 1}}, ".terrain_proportions.stair_up: unknown key; nearest is stairs_up"),
        ({"num_rows": 0}, ".num_rows: 0 is not allowed; it must be >= 1"),
        ({"mesh_type": "trimesh"}, ".mesh_type: 'trimesh' is not allowed; "),
        ({"horizontal_scale": -0.1}, ".horizontal_scale: -0.1 is not allowed; it must be >= 0.01"),
        ({"slope": [0.0, 0.4]}, ".slope.0: 0.0 is not allowed; it must be > 0"),
        ({"measured_points_x": [0, 1e9]}, ".measured_points_x.1: 1000000000.0 is not allowed; it must be <= 100"),
        ({"measured_points_x": []}, ".measured_points_x: [] is not allowed; "),
        ({"terrain_length": 8.1}, ".terrain_length: 8.1 is not allowed; it must be a multiple of 0.2"),
        (
            # 3 m of platform, 2 x (1.5 m of block and one cell)
            {"terrain_length": 6.0},
            ".terrain_length: 6 is not allowed; it must be >= 6.2, for the platform of 3 and ",
        ),
        (
            # 3 m of platform, 2 x 3 cells
            {"terrain_length": 3.0, "terrain_proportions": ONLY_FLAT},
            ".terrain_length: 3 is not allowed; it must be >= 3.6, for the platform of 3 and ",
        ),
        ({"start_offset": 2.0}, ".start_offset: 2 is not allowed; it must be <= 1.5, half of the platform"),
        (
            {"horizontal_scale": 0.01},
            ".horizontal_scale: 0.01 is not allowed; it gives 9000 x 9000 heights; at most 10000000",
        ),
    ],
)
def test_one_line_for_each_fault_of_a_terrain(section, expected):
    with pytest.raises(ConfigError) as caught:
        environment.make_env(EnvConfig(name="legged:rough", kwargs={"terrain": section}))
    assert str(caught.value).startswith(f"env.kwargs.terrain{expected}")
    assert len(caught.value.lines) == 1


def test_names_of_the_environments():
    section = {"terrain": {"num_rows": 3, "border_size": 2, "max_init_terrain_level": 0}}
    rough = environment.make_env(EnvConfig(name="legged:rough", kwargs=section))
    assert rough.terrain.origins.shape == (3, 10, 3)
    fair = rough.evaluated()
    assert fair.config.terrain.curriculum is False
    levels = jax.jit(fair.ground.draw)(jax.random.split(jax.random.key(0), 300)).level
    assert np.bincount(levels).min() > 60  # of the three rows; 100 each on average, with a deviation of 8
    flat = environment.make_env(EnvConfig(name="legged:flat", kwargs=section))
    assert flat.terrain is None
    assert len(flat.robot.ground) == 1
