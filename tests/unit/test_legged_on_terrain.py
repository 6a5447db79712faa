"""Robots on the terrain of the legged environments: standing, sliding, and which field an episode is on."""

import math

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from strl_jax.envs import contract
from strl_jax.envs.base import carried
from strl_jax.envs.legged import commands, robot
from strl_jax.envs.legged.config import ControlConfig, LeggedConfig, RobotConfig, SimConfig
from strl_jax.envs.legged.config_ground import TerrainConfig, TerrainProportions
from strl_jax.envs.legged.env import LeggedEnv
from strl_jax.envs.legged.physics import Physics, Variation
from strl_jax.envs.legged.terrain import heights
from strl_jax.envs.legged.terrain.levels import OnField

pytestmark = pytest.mark.slow  # MJX takes its time to compile

B = 4
# A slope of 0.1 that falls outwards, blocks of 0.1 m, stairs and flat ground.
SMALL = TerrainConfig(
    mesh_type="heightfield",
    border_size=2.0,
    num_rows=3,
    num_cols=4,
    terrain_proportions=TerrainProportions(
        **dict.fromkeys(TerrainProportions.model_fields, 0.0)
        | dict.fromkeys(("flat", "slope_down", "stairs_up", "blocks_up"), 1.0)
    ),
    slope=(0.1, 0.1),
    block_height=(0.1, 0.1),
)
FLAT, SLOPE, STAIRS, BLOCK = 0, 1, 2, 3
CAREFUL = SimConfig(iterations=4, ls_iterations=8)  # friction's limit is kept


def make_physics(ground):
    ours = robot.load(RobotConfig(), ControlConfig(), CAREFUL, own_planes=ground is not None)
    return Physics(ours, 0.25, 4, False, ground)


def stand_still(physics, xy, lift, friction, steps):
    """Motions before and after, places at the end: robots that face along x, ``lift`` m over the ground, no action."""
    count = len(friction)
    variation = Variation(
        friction=jnp.asarray(friction, jnp.float32),
        added_mass=jnp.zeros(count),
        com=jnp.zeros((count, 3)),
        strength=jnp.ones((count, 12)),
        gains=jnp.ones((count, 2)),
        delay=jnp.zeros(count),
    )
    joints, none = jnp.asarray(physics.robot.default, jnp.float32), jnp.zeros((count, 12))

    @jax.jit
    def run(xy, lift, variation):
        before = jax.vmap(lambda place: physics.stand(joints, jnp.zeros(()), place)[0])(xy)
        start = before.replace(qpos=before.qpos.at[:, 2].add(lift))
        advance = jax.vmap(physics.advance)
        after, _ = jax.lax.scan(lambda m, _: (advance(m, variation, none, none)[0], None), start, length=steps)
        return start, after, jax.vmap(physics.places)(after)

    return run(jnp.asarray(xy, jnp.float32), jnp.asarray(lift, jnp.float32), variation)


@pytest.fixture(scope="module")
def stood():
    """One second: on a block; on a slope; on the slope, slippery; dropped on the slope from 0.1 m; on flat ground."""
    ground = heights.build(SMALL)
    middle = ground.origins[1, :, :2]
    aside = np.array([2.25, 0.0])  # the middle of the block, 1.5 m to 3 m from the middle; half down the slope
    xy = [middle[BLOCK] + aside, *[middle[SLOPE] + aside] * 3, middle[FLAT]]
    return ground, *stand_still(make_physics(ground), xy, [0.0, 0.0, 0.0, 0.1, 0.0], [1.0, 1.0, 0.05, 1.0, 1.0], 50)


def test_it_stands_where_it_is_put(stood):
    _, before, after, places = stood
    way = np.linalg.norm(after.qpos[:, :2] - before.qpos[:, :2], axis=1)
    assert (way[[0, 1, 3, 4]] < 0.06).all()
    assert places.contact.all()
    assert not places.failed.any()
    assert not places.collisions.any()
    # On the block, 0.1 m high, as high above it as on flat ground.
    np.testing.assert_allclose(after.qpos[0, 2] - 0.1, after.qpos[4, 2], atol=1e-4)


def test_feet_lie_on_the_surface(stood):
    """Also those that fell on a slope: no deeper than MuJoCo's soft contact lets them, and not above it."""
    ground, _, _, places = stood
    height, normal = ground.surface(places.feet[..., :2])
    np.testing.assert_allclose(normal[1:4, :, 0], 0.1 / math.sqrt(1.01), rtol=1e-3)
    distance = (places.feet[..., 2] - height) * normal[..., 2] - 0.02  # the feet's radius
    assert (distance > -0.004).all()
    assert (distance < 0.001).all()


def on_a_tilted_plane(friction, lift):
    """Way of the base ``[3]`` in one second on one plane with a slope of 0.1, by MuJoCo itself."""
    ours = robot.load(RobotConfig(), ControlConfig(), CAREFUL)
    model, tilt, plane = ours.model, math.atan(0.1), ours.ground[0]
    model.geom_sameframe[plane] = 0  # else MuJoCo takes the plane's frame to be the world's
    model.geom_quat[plane] = [math.cos(tilt / 2), 0.0, math.sin(tilt / 2), 0.0]
    model.geom_friction[plane, 0] = friction
    data = mujoco.MjData(model)
    data.qpos[:7], data.qpos[ours.qpos] = [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0], ours.default
    mujoco.mj_kinematics(model, data)
    normal = np.array([math.sin(tilt), 0.0, math.cos(tilt)])
    data.qpos[2] = lift - (data.geom_xpos[ours.foot_geoms] @ normal - 0.02).min() / normal[2]
    start = data.qpos[:3].copy()
    for _ in range(200):
        torque = 20.0 * (ours.default - data.qpos[ours.qpos]) - 0.5 * data.qvel[ours.dof]
        data.qfrc_applied[ours.dof] = np.clip(torque, -33.5, 33.5)
        mujoco.mj_step(model, data)
    return data.qpos[:3] - start


def test_slopes_are_like_mujocos_tilted_plane(stood):
    """Standing, sliding, and after a fall of 0.1 m."""
    _, before, after, _ = stood
    way = after.qpos[1:4, :3] - before.qpos[1:4, :3]
    expected = [on_a_tilted_plane(friction, lift) for friction, lift in ((1.0, 0.0), (0.05, 0.0), (1.0, 0.1))]
    np.testing.assert_allclose(way, expected, atol=2e-3)
    assert way[1, 0] > 5 * way[0, 0]  # the slippery robot is on its way down


def test_flat_fields_are_like_flat_ground(stood):
    """Planes under the feet do what one plane does."""
    _, before, after, _ = stood
    first, last, _ = stand_still(make_physics(None), jnp.zeros((1, 2)), [0.0], [1.0], 50)
    np.testing.assert_allclose(before.qpos[4, 2:], first.qpos[0, 2:], atol=1e-5)
    np.testing.assert_allclose(after.qpos[4, 2:], last.qpos[0, 2:], atol=1e-3)


@pytest.fixture(scope="module")
def env():
    return LeggedEnv(LeggedConfig(terrain=SMALL))


@pytest.fixture(scope="module")
def start(env):
    return carried(jax.jit(env.reset)(jax.random.split(jax.random.key(0), B)))


def on(state, **fields):
    return state.replace(physics=state.physics.replace(**fields))


def test_it_starts_on_its_field(env, start):
    state = start.physics
    origins = env.terrain.origins[state.field.level, state.field.column]
    offset = state.motion.qpos[:, :2] - origins[:, :2]
    assert (np.abs(offset) <= 0.5).all()
    assert len(np.unique(offset)) == 2 * B
    np.testing.assert_allclose(state.feet[..., 2].min(axis=1) - origins[:, 2], 0.02, atol=1e-5)  # the feet's radius
    height = state.motion.qpos[:, 2] - origins[:, 2]
    np.testing.assert_allclose(start.obs["amp"][:, 42], height, atol=1e-5)
    assert start.obs["height_scan"].shape == (B, 187)
    # The nearest points are on the platform.
    np.testing.assert_allclose(start.obs["height_scan"][:, 93], 5.0 * (height - 0.5), atol=1e-4)
    contract.check(env)


def test_a_step(env, start):
    """Environment 1 is beyond the edge: 3 x 8 m and 2 m of border end 14 m from the middle."""
    motion = start.physics.motion
    state = on(start, motion=motion.replace(qpos=motion.qpos.at[1, 0].set(14.2)))
    after = jax.jit(env.step)(state, jnp.zeros((B, 12)))
    assert after.timeout.tolist() == [False, True, False, False]
    assert after.metrics["terrain_level"].tolist() == start.physics.field.level.tolist()
    told = commands.velocity(env.config.commands, start.physics.command, jnp.ones(B), jnp.zeros(B))
    asked = 0.02 * np.linalg.norm(told[:, :2], axis=1)
    np.testing.assert_allclose(after.physics.field.asked, asked, rtol=1e-5)
    assert env.finite(after).all()


def test_a_new_episode_is_on_the_environments_own_field(env, start):
    """0 walked 5 m and goes up, 1 fell at once and goes down, 2 was told to stand and stays; 3 goes on."""
    origins = env.terrain.origins
    field = OnField(jnp.array([1, 1, 1, 1]), jnp.array([SLOPE, STAIRS, BLOCK, FLAT]), jnp.array([9.0, 0.1, 0.0, 1.0]))
    places = origins[1, field.column] + np.array([[3.0, 4.0, 0.3], [0.1, 0.0, 0.3], [0.1, 0.0, 0.3], [5.0, 0.0, 0.3]])
    motion = start.physics.motion
    age = jnp.array([1000, 10, 1000, 500])
    old = on(start, field=field, motion=motion.replace(qpos=motion.qpos.at[:, :3].set(places)), age=age)
    done = jnp.array([True, True, True, False])
    merged = jax.jit(env.merge)(done, start, old).physics
    assert merged.field.level.tolist() == [2, 0, 1, 1]
    assert merged.field.column.tolist() == field.column.tolist()
    assert merged.field.asked.tolist() == [0.0, 0.0, 0.0, 1.0]
    here, there = (origins[f.level, f.column] for f in (merged.field, start.physics.field))
    fresh = start.physics
    np.testing.assert_allclose(merged.motion.qpos[:3, :3] - here[:3], fresh.motion.qpos[:3, :3] - there[:3], atol=1e-5)
    np.testing.assert_allclose(merged.feet[:3] - here[:3, None], fresh.feet[:3] - there[:3, None], atol=1e-5)
    np.testing.assert_array_equal(merged.motion.qpos[:3, 3:], fresh.motion.qpos[:3, 3:])
    np.testing.assert_array_equal(merged.motion.qpos[3], old.physics.motion.qpos[3])
    found = jax.jit(jax.vmap(env.physics.places))(merged.motion)
    np.testing.assert_array_equal(found.contact[:3], fresh.contact[:3])
