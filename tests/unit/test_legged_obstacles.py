"""Which obstacle a robot on a terrain has to do with, what the multi-policies make of it, and that it is seen."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from strl_jax.envs.legged import observations
from strl_jax.envs.legged.camera import depth_image
from strl_jax.envs.legged.config import LeggedConfig
from strl_jax.envs.legged.config_ground import CameraConfig, TerrainConfig, TerrainProportions
from strl_jax.envs.legged.env import LeggedEnv
from strl_jax.envs.legged.terrain import obstacles
from strl_jax.envs.legged.terrain.levels import OnField
from strl_jax.modules.mutex_selection import select_climb, select_field

# id, inner radius, extent, height: nothing, a gap, a block up and one down; fields of 8 m.
FIELDS = jnp.array(
    [
        [[0.0, 0.0, 0.0, 0.0], [2.0, 2.0, 0.5, -1.0]],
        [[3.0, 1.5, 0.75, 0.25], [3.0, 1.5, 0.75, -0.25]],
    ]
)
ORIGINS = jnp.array([[[4.0, 4.0, 0.0], [4.0, 12.0, 0.0]], [[12.0, 4.0, 0.0], [12.0, 12.0, 0.5]]])
SMOOTH, GAP, UP, DOWN = (0, 0), (0, 1), (1, 0), (1, 1)
NONE = [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]


@functools.partial(jax.jit, static_argnames=("engage_distance", "passed_distance"))
def block_at(level, column, position, engage_distance=1.0, passed_distance=0.25):
    config = TerrainConfig(engage_distance=engage_distance, passed_distance=passed_distance)
    field = OnField(level, column, jnp.zeros(level.shape))
    return obstacles.engaging_block(config, FIELDS, ORIGINS, field, position)


def blocks(field, offsets, **distances):
    """The component of robots at ``offsets[B, 2]`` from the field's centre."""
    offsets = jnp.asarray(offsets, jnp.float32)
    position = jnp.concatenate([ORIGINS[field][:2] + offsets, jnp.full((len(offsets), 1), 0.3)], axis=1)
    where = [jnp.full(len(offsets), index, jnp.int32) for index in field]
    return np.asarray(block_at(*where, position, **distances))


def test_a_field_without_an_obstacle():
    found = blocks(SMOOTH, [[0.0, 0.0], [0.0, 1.0], [3.0, 0.0]])
    assert found.shape == (3, obstacles.SIZE) == (3, 8)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, [NONE] * 3)


def test_on_the_way_over_a_gap():
    """It lies from 2 m to 2.5 m; it counts from 1 m before until 0.25 m behind it: from 1 m to 2.75 m."""
    out = [0.9, 1.25, 2.0, 2.25, 2.625, 2.875, 6.0]
    found = blocks(GAP, [[x, 0.5] for x in out])
    np.testing.assert_allclose(found[:, 0], [1.0, 0.75, 0.0, -0.25, -0.625, 1.0, 1.0], atol=1e-6)
    for row in (0, 5, 6):
        np.testing.assert_array_equal(found[row], NONE)
    for row in range(1, 5):
        np.testing.assert_array_equal(found[row, 1:], [0.0, 0.0, 1.0, 0.0, 0.0, 0.5, -1.0])


def test_its_bounds_belong_to_it():
    flags = blocks(GAP, [[1.0, 0.0], [2.75, 0.0]])[:, 1:6]
    np.testing.assert_array_equal(flags, [[0, 0, 1, 0, 0]] * 2)


def test_distances_are_counted_in_squares_and_in_all_directions():
    """1.75 m along one axis are 0.25 m before the gap, whatever the other offset and the field's place."""
    found = blocks(GAP, [[1.75, 0.0], [-1.75, 1.0], [0.3, 1.75], [-1.75, -1.75]])
    np.testing.assert_allclose(found[:, 0], 0.25, atol=1e-6)


def test_the_distances_are_given():
    found = blocks(GAP, [[1.25, 0.0], [1.75, 0.0], [2.625, 0.0]], engage_distance=0.5, passed_distance=0.0)
    np.testing.assert_allclose(found[:, 0], [0.5, 0.25, 0.5], atol=1e-6)
    assert found[:, 1].tolist() == [1.0, 0.0, 1.0]


def test_each_robot_has_its_own_field():
    """All stand at the world's (11, 4): 1 m from the centre of its own block, far out of the other fields."""
    level, column = jnp.array([1, 0, 0, 1]), jnp.array([0, 0, 1, 1])
    found = np.asarray(block_at(level, column, jnp.tile(jnp.array([11.0, 4.0, 0.3]), (4, 1))))
    np.testing.assert_allclose(found[0], [0.5, 0, 0, 0, 1, 0, 0.75, 0.25], atol=1e-6)
    np.testing.assert_array_equal(found[1:], [NONE] * 3)


@pytest.mark.parametrize(
    ("field", "out", "by_field", "by_climb"),
    [
        (SMOOTH, 1.0, 0, 0),
        (GAP, 1.75, 2, 2),
        (GAP, 0.5, 0, 0),
        (UP, 1.0, 3, 3),
        (DOWN, 1.0, 3, 5),  # jumps down
        (DOWN, 2.0, 3, 5),
        (DOWN, 3.0, 0, 0),
    ],
)
def test_what_the_multi_policies_select(field, out, by_field, by_climb):
    block = jnp.asarray(blocks(field, [[out, 0.0]]))
    np.testing.assert_array_equal(select_field(block)[0], np.eye(5)[by_field])
    np.testing.assert_array_equal(select_climb(block)[0], np.eye(6)[by_climb])


KINDS = ("flat", "rough", "slope_up", "slope_down", "stairs_up", "stairs_down", "gaps", "blocks_up", "blocks_down")
BLOCKS = TerrainConfig(
    mesh_type="heightfield",
    num_rows=2,
    num_cols=1,
    terrain_proportions=TerrainProportions(**dict.fromkeys(KINDS, 0.0) | {"blocks_up": 1.0}),
    block_height=(0.2, 0.4),
    measure_heights=False,
)


def test_the_environment_offers_what_there_is():
    """Its ground as the camera's, and each robot's own field.

    In the last row, at 1 m from the middle towards x, facing the block of 0.4 m at 1.5 m, the camera 0.27 m
    ahead and 0.05 m under the base, level. The wall slants over 0.1 m.
    """
    assert not {"forward_depth", "engaging_block"} & set(observations.shapes(LeggedConfig(), 12, 4))
    camera = CameraConfig(position=(0.27, 0.0, -0.05), pitch=0.0, height=3, width=4)
    env = LeggedEnv(LeggedConfig(terrain=BLOCKS, camera=camera))
    assert env.observation_shapes["forward_depth"] == (1, 3, 4)
    assert env.observation_shapes["engaging_block"] == (8,)

    state = jax.eval_shape(env.reset, jax.random.split(jax.random.key(0), 2)).physics
    key = jax.random.split(jax.random.key(1), 2)
    state = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), state.replace(key=None)).replace(key=key)
    base = jnp.asarray(env.terrain.origins[[1, 0], 0]) + jnp.array([[1.0, 0.0, 0.25], [0.0, 0.0, 0.25]])
    qpos = state.motion.qpos.at[:, :3].set(base).at[:, 3].set(1.0)
    state = state.replace(
        motion=state.motion.replace(qpos=qpos), field=state.field.replace(level=jnp.array([1, 0], jnp.int32))
    )
    seen = jax.jit(env.observe)(state)
    np.testing.assert_allclose(seen["engaging_block"][0], [0.5, 0, 0, 0, 1, 0, 1.5, 0.4], atol=1e-5)
    np.testing.assert_array_equal(seen["engaging_block"][1], NONE)  # 1.5 m before it
    # The middle row at 0.2 m, half of the wall: 0.5 - 0.27 + 0.05 m ahead, and 2 m of range from 0.1 m on.
    np.testing.assert_allclose(seen["forward_depth"][0, 0, 1, :], (0.28 - 0.1) / 2.0, atol=1e-4)
    level = jnp.array([1.0, 0.0, 0.0, 0.0])
    expected = depth_image(camera, env.terrain.height, base[1], level)
    np.testing.assert_allclose(seen["forward_depth"][1], expected, atol=1e-4)
