"""The legged environment: the robot's physics, its observations, and what outlives an episode."""

import functools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from tiny import make_algorithm

from strl_jax.algorithms.train_step import init_states, make_train_step
from strl_jax.envs import contract
from strl_jax.envs.base import carried
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.envs.legged import commands, observations
from strl_jax.envs.legged.config import (
    CommandsConfig,
    ControlConfig,
    DomainRandConfig,
    EpisodeConfig,
    LeggedConfig,
    RobotConfig,
    SimConfig,
)
from strl_jax.envs.legged.config_observations import NoiseConfig
from strl_jax.envs.legged.config_rewards import RewardScales, RewardsConfig
from strl_jax.envs.legged.env import LeggedEnv
from strl_jax.envs.legged.physics import Motion
from strl_jax.envs.legged.rotations import yaw
from strl_jax.envs.legged.state import body_velocities
from strl_jax.sharding import make_mesh

pytestmark = pytest.mark.slow  # MJX takes a minute to compile
B = 4
MASS = 4.713 + 4 * (0.696 + 1.013 + 0.166 + 0.06)
FORCE = 1e-4  # weight of the contact forces, which are penalised from 0 N on
CONFIG = LeggedConfig(
    sim=SimConfig(iterations=4, ls_iterations=8),  # friction's limit is kept
    rewards=RewardsConfig(
        scales=RewardScales(feet_contact_forces=FORCE), only_positive_rewards=False, max_contact_force=0.0
    ),
    commands=CommandsConfig(curriculum=True, start=0.5, step=0.2, resampling_time=8.0),  # 400 steps
    domain_rand=DomainRandConfig(friction_range=(0.8, 1.2), push_interval_s=9.0),  # 450 steps
    noise=NoiseConfig(add_noise=False),
    episode=EpisodeConfig(start_length_s=6.0),  # 300 steps
)


@pytest.fixture(scope="module")
def env():
    return LeggedEnv(CONFIG)


@pytest.fixture(scope="module")
def start(env):
    return carried(jax.jit(env.reset)(jax.random.split(jax.random.key(0), B)))


@pytest.fixture(scope="module")
def step(env):
    return jax.jit(env.step)


@pytest.fixture(scope="module")
def places(env):
    return jax.jit(jax.vmap(env.physics.places))


ZERO = jnp.zeros((B, 12))


def change(state, **fields):
    """The state with other fields of ``Legged``."""
    return state.replace(physics=state.physics.replace(**fields))


def alike(state):
    """Every environment as environment 0; keys stay."""
    same = jax.tree.map(lambda leaf: jnp.stack([leaf[0]] * B), state)
    return change(same, key=state.physics.key)


def moved(state, qpos=None, qvel=None):
    """The state with numbers ``{index: [B] or number}`` of its positions and velocities."""
    motion = state.physics.motion
    for index, value in (qpos or {}).items():
        motion = motion.replace(qpos=motion.qpos.at[:, index].set(value))
    for index, value in (qvel or {}).items():
        motion = motion.replace(qvel=motion.qvel.at[:, index].set(value))
    return change(state, motion=motion)


def roll(angle):
    """Positions of the base's quaternion after a turn about x."""
    angle = jnp.asarray(angle)
    return {3: jnp.cos(angle / 2), 4: jnp.sin(angle / 2), 5: 0.0, 6: 0.0}


def vary(state, **fields):
    return change(state, variation=state.physics.variation.replace(**fields))


def test_it_keeps_to_the_contract(env):
    contract.check(env)
    assert env.observation_shapes["proprioception"] == (48,)
    assert env.observation_shapes["amp"] == (43,)
    assert env.dt == pytest.approx(0.02)  # 4 x 0.005 s
    assert env.episode_length == 1000


def test_reset_stands_on_its_lowest_foot(env, start):
    state = start.physics
    np.testing.assert_allclose(state.feet[..., 2].min(axis=1), 0.02, atol=1e-6)  # the feet's radius
    assert (state.contact.sum(axis=1) >= 1).all()
    joints, default = state.motion.qpos[:, 7:], env.robot.default
    assert (np.abs(joints - default) <= 0.2 * np.abs(default) + 1e-6).all()
    assert len(np.unique(joints)) == B * 12
    assert len(np.unique(yaw(state.motion.qpos[:, 3:7]))) == B
    np.testing.assert_allclose(jnp.linalg.norm(state.motion.qpos[:, 3:7], axis=1), 1.0, rtol=1e-6)
    assert (state.command_level == 0.5).all()
    assert (state.limit == 300).all()


@pytest.fixture(scope="module")
def standing(start, step):
    """Before and after five seconds without an action, with a list of every step's falls.

    Environment 1 carries 2 kg more, 2 has stiffer joints, in 3 the weight lies further in front.
    """
    state = vary(
        moved(alike(start), qvel=dict.fromkeys(range(6), 0.0)),
        added_mass=jnp.array([0.0, 2.0, 0.0, 0.0]),
        gains=jnp.array([[1.0, 1.0], [1.0, 1.0], [1.5, 1.0], [1.0, 1.0]]),
        com=jnp.zeros((B, 3)).at[3, 0].set(0.05),
    )
    before, fell, after = state, [], None
    for _ in range(250):
        after = step(state, ZERO)
        fell.append(after.terminated)
        state = carried(after)
    return before, after, fell


def test_it_stands_still_for_five_seconds(standing):
    before, after, fell = standing
    assert not np.any(fell)
    motion = after.physics.motion
    assert after.physics.contact.all()
    assert np.abs(motion.qvel).max() < 0.02
    assert np.linalg.norm(motion.qpos[:, :2] - before.physics.motion.qpos[:, :2], axis=1).max() < 0.05
    gravity = body_velocities(motion)[2]
    assert (gravity[:, 2] < -0.99).all()
    height = motion.qpos[:, 2]
    assert 0.2 < height[1] < height[0] < height[2] < 0.32
    assert gravity[3, 0] > gravity[0, 0] + 0.005  # nose down: gravity points forwards
    # The feet bear the weight, and push against each other a little.
    force = after.metrics["reward_feet_contact_forces"] / (FORCE * 0.02)
    weight = 9.81 * (MASS + np.array([0.0, 2.0, 0.0, 0.0]))
    assert (force > 0.999 * weight).all()
    assert (force < 1.1 * weight).all()


def velocity_of_the_whole(env, motion, index):
    """Of one environment's centre of mass in the world, by MuJoCo itself."""
    model = env.robot.model
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = motion.qpos[index], motion.qvel[index]
    mujoco.mj_forward(model, data)
    mujoco.mj_subtreeVel(model, data)
    return data.subtree_linvel[env.robot.base].copy()


def test_only_friction_slows_a_slide(env, standing, step):
    """Pushed sideways at 1 m/s, over 4 steps of 0.02 s; the greatest loss is friction x 9.81 x 0.08 s."""
    state = alike(carried(standing[1]))
    state = vary(
        moved(state, qvel={**dict.fromkeys(range(18), 0.0), 1: 1.0}), friction=jnp.array([0.05, 0.2, 1.2, 1.2])
    )
    for _ in range(4):
        state = carried(step(state, ZERO))
    lost = [1.0 - velocity_of_the_whole(env, state.physics.motion, index)[1] for index in range(B)]
    assert 0.03 < lost[0] < 0.0393
    assert 0.12 < lost[1] < 0.157
    assert 0.25 < lost[2] < 0.942
    assert lost[2] == lost[3]


@pytest.mark.parametrize(
    ("axis", "angle", "expected"),
    [
        (0, np.pi / 2, [0.0, -1.0, 0.0]),  # rolled: its y axis points up
        (1, np.pi / 2, [1.0, 0.0, 0.0]),  # nose down
        (1, -np.pi / 6, [-0.5, 0.0, -np.sqrt(0.75)]),
        (2, 1.0, [0.0, 0.0, -1.0]),
    ],
)
def test_gravity_in_the_frame_of_the_base(axis, angle, expected):
    turn = np.zeros((1, 19), np.float32)
    turn[0, 3], turn[0, 4 + axis] = np.cos(angle / 2), np.sin(angle / 2)
    _, _, gravity = body_velocities(Motion(jnp.asarray(turn), jnp.zeros((1, 18)), jnp.zeros((1, 18))))
    np.testing.assert_allclose(gravity[0], expected, atol=1e-6)


def test_velocities_in_the_frame_of_the_base():
    """It faces along y; MuJoCo gives the linear velocity in the world and the angular one in the base's frame."""
    qpos = jnp.zeros((1, 19)).at[0, 3].set(jnp.cos(jnp.pi / 4)).at[0, 6].set(jnp.sin(jnp.pi / 4))
    qvel = jnp.zeros((1, 18)).at[0, :6].set(jnp.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
    motion = Motion(qpos, qvel, jnp.zeros((1, 18)))
    linear, angular, _ = body_velocities(motion)
    np.testing.assert_allclose(linear[0], [2.0, -1.0, 3.0], atol=1e-6)
    assert angular[0].tolist() == [4.0, 5.0, 6.0]
    np.testing.assert_allclose(yaw(motion.qpos[:, 3:7]), [np.pi / 2], rtol=1e-6)


def test_what_touches_the_ground(start, places):
    """In the air; standing; kneeling with the feet in the air; on its belly."""
    state = moved(alike(start), qpos=roll(0.0))
    # Kneeling: 0.2 m of thigh and its radius of 0.016 m, half a millimetre in the ground; calves folded up.
    state = moved(state, qpos={2: jnp.array([1.0, start.physics.motion.qpos[0, 2], 0.2155, 0.05])})
    motion = state.physics.motion
    angles = {0: 0.0, 1: 0.0, 2: -2.6}
    for joint in range(12):
        motion = motion.replace(qpos=motion.qpos.at[2, 7 + joint].set(angles[joint % 3]))
    found = places(motion)
    assert found.contact.any(axis=1).tolist() == [False, True, False, True]
    assert found.collisions[0].tolist() == [False] * 8
    assert found.collisions[1].tolist() == [False] * 8
    assert found.collisions[2].tolist() == [True, False] * 4  # the thighs; the calves are thinner
    assert found.failed.tolist() == [False, False, False, True]


def test_falls(start, step):
    """Upright, beyond 1 rad, within it; on the belly with its legs up, so that they do not lift it."""
    state = moved(alike(start), qpos=roll([0.0, 1.2, 0.8, 0.0]) | {2: jnp.array([1.0, 1.0, 1.0, 0.03])})
    motion = state.physics.motion
    legs = motion.qpos.at[3, 8::3].set(3.0).at[3, 9::3].set(-1.5)
    state = change(state, motion=motion.replace(qpos=legs))
    assert step(state, ZERO).terminated.tolist() == [False, True, False, True]


def test_a_delayed_action_acts_later(start, step):
    state = vary(alike(start), delay=jnp.array([0.0, 0.01, 0.02, 0.02]))
    joints = step(state, ZERO.at[:3].set(1.0)).physics.motion.qpos[:, 7:]
    np.testing.assert_array_equal(joints[2], joints[3])  # one control step: nothing of it yet
    towards = (joints - joints[3]).sum(axis=1)
    assert towards[0] > 2 * towards[1] > 0


def test_weak_motors(env, start):
    """Half the strength is half the torque; all of it is limited."""
    torque = jax.vmap(env.physics.torque)
    state = vary(moved(alike(start), qvel=dict.fromkeys(range(18), 0.0)), strength=jnp.ones((B, 12)).at[1].set(0.5))
    state = moved(state, qpos={7 + joint: env.robot.default[joint] for joint in range(12)})
    found = torque(state.physics.motion, state.physics.variation, jnp.ones((B, 12)).at[3].set(-100.0))
    np.testing.assert_allclose(found[0], 5.0, rtol=1e-4)  # 20 Nm/rad x 0.25 rad
    np.testing.assert_allclose(found[1], 2.5, rtol=1e-4)
    np.testing.assert_array_equal(found[3], -33.5)


def test_observations_stand_in_their_order(env, start):
    state = moved(alike(start), qpos=roll(np.pi / 2), qvel={0: 0.5, 2: 0.25, 3: 1.0, 6: 2.0, 17: -3.0})
    state = moved(state, qpos={7 + joint: env.robot.default[joint] + 0.01 * joint for joint in range(12)})
    state = change(state, action=jnp.tile(jnp.arange(12.0), (B, 1)), command=jnp.full((B, 5), 0.5).at[:, 0].set(1.0))
    seen = jax.jit(env.observe)(state.physics)
    got = np.asarray(seen["proprioception"][0])
    # Turned by 90 degrees about x: the world's z is its y. Scales 2, 0.25, 1 and 0.05.
    np.testing.assert_allclose(got[0], 1.0, rtol=1e-6)
    np.testing.assert_allclose(got[1], 0.5, rtol=1e-5)
    np.testing.assert_allclose(got[3], 0.25, rtol=1e-6)
    np.testing.assert_allclose(got[6:9], [0.0, -1.0, 0.0], atol=1e-6)
    # Half of the planar range is in use: 0.5 x 1 m/s; heading 0 is where it faces.
    np.testing.assert_allclose(got[9:12], [1.0, 0.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(got[12:24], 0.01 * np.arange(12), atol=1e-6)
    np.testing.assert_allclose(got[[24, 35]], [0.1, -0.15], rtol=1e-5)
    np.testing.assert_array_equal(got[36:], np.arange(12.0))
    np.testing.assert_allclose(seen["base_velocity"][0], got[:3])


def test_amp_components(env, start, places):
    """Feet in the base's frame, whatever way it faces."""
    motion = moved(
        alike(start), qpos={2: 1.0, 3: jnp.cos(jnp.arange(4.0)), 4: 0.0, 5: 0.0, 6: jnp.sin(jnp.arange(4.0))}
    )
    motion = moved(motion, qpos={7 + joint: 0.0 if joint % 3 < 2 else -1.0 for joint in range(12)}).physics.motion
    state = start.physics.replace(motion=motion, feet=places(motion).feet)
    seen = jax.jit(env.observe)(state)["amp"]
    np.testing.assert_allclose(seen[:, 12:24], np.tile(seen[0, 12:24], (B, 1)), atol=1e-5)
    # FR: hip and thigh 0.047 + 0.0838 to the right; the calf turned by -1 rad swings its foot forwards.
    foot = [0.183 + 0.2 * np.sin(1.0), -0.1308, -0.2 - 0.2 * np.cos(1.0)]
    np.testing.assert_allclose(seen[0, 12:15], foot, atol=1e-5)
    np.testing.assert_array_equal(seen[:, :12], motion.qpos[:, 7:])
    np.testing.assert_array_equal(seen[:, 30:42], motion.qvel[:, 6:])
    np.testing.assert_array_equal(seen[:, 42], motion.qpos[:, 2])


def test_noise_of_the_proprioception():
    config = LeggedConfig()
    expected = [0.2] * 3 + [0.05] * 3 + [0.05] * 3 + [0.0] * 3 + [0.01] * 12 + [0.075] * 12 + [0.0] * 12
    np.testing.assert_allclose(observations.noise_scales(config, 12), expected, rtol=1e-6)
    key, three, twelve = jax.random.split(jax.random.key(0), 200), jnp.zeros((200, 3)), jnp.zeros((200, 12))
    read = functools.partial(observations.proprioception, config, three, three, three, three, twelve, twelve, twelve)
    noise = np.abs(jax.jit(read)(key))
    assert (noise <= np.array(expected) + 1e-7).all()
    np.testing.assert_allclose(noise.max(axis=0), expected, rtol=0.1)


def test_rewards_add_up_and_tracking_is_summed(env, start, step):
    after = step(start, ZERO)
    terms = {name: value for name, value in after.metrics.items() if name.startswith("reward_")}
    assert set(terms) == {f"reward_{name}" for name, scale in CONFIG.rewards.scales.model_dump().items() if scale}
    np.testing.assert_allclose(after.reward, sum(terms.values()), rtol=1e-5, atol=1e-8)
    # The term is 0.02 s x 2 of it.
    np.testing.assert_allclose(after.physics.tracking, terms["reward_tracking_lin_vel"] / 0.04, rtol=1e-5)
    assert (after.metrics["command_level"] == 0.5).all()


def test_air_time(start, step):
    """In the air it counts; on the ground it is 0."""
    state = change(
        moved(alike(start), qpos=roll(0.0) | {2: jnp.array([1.0, 1.0, 0.25, 0.25])}), air_time=jnp.ones((B, 4))
    )
    after = step(state, ZERO).physics
    np.testing.assert_allclose(after.air_time[:2], 1.02, rtol=1e-6)
    assert (after.air_time[2:][after.contact[2:]] == 0).all()
    assert after.contact[2:].any()


def test_commands_and_pushes_come_in_time(start, step):
    """Steps 399, 400 (a command), 449 and 450 (a push)."""
    state = change(alike(start), age=jnp.array([398, 399, 448, 449]))
    after = step(state, ZERO).physics
    drawn = (after.command != state.physics.command).any(axis=1)
    assert drawn.tolist() == [False, True, False, False]
    speed = after.motion.qvel[:, :3]
    assert (speed != speed[0]).any(axis=1).tolist() == [False, False, False, True]
    assert speed[3, 2] == speed[0, 2]
    assert after.age.tolist() == [399, 400, 449, 450]


def test_an_episode_ends_at_its_own_limit(start, step):
    state = change(start, age=jnp.array([298, 299, 299, 0]), limit=jnp.array([300, 300, 450, 300]))
    assert step(state, ZERO).timeout.tolist() == [False, True, False, False]


def test_what_outlives_an_episode(env, start):
    """0 and 1 end: 0 was told what it could do, for its whole time; 2 and 3 go on."""
    old = change(
        start,
        age=jnp.array([300, 10, 300, 10]),
        tracking=jnp.array([250.0, 230.0, 250.0, 10.0]),  # of 300 steps: above and under 0.8
        command_level=jnp.array([0.5, 0.7, 0.5, 0.7]),
    )
    old = vary(old, friction=jnp.array([0.1, 0.2, 0.3, 0.4]))
    fresh = alike(jax.tree.map(lambda leaf: leaf[::-1], start))
    merged = jax.jit(env.merge)(jnp.array([True, True, False, False]), fresh, old)
    state = merged.physics
    np.testing.assert_allclose(state.command_level, [0.7, 0.7, 0.5, 0.7], rtol=1e-6)
    assert state.limit.tolist() == [450, 300, 300, 300]  # by half
    np.testing.assert_allclose(state.variation.friction, [0.1, 0.2, 0.3, 0.4], rtol=1e-6)
    assert state.age.tolist() == [0, 0, 300, 10]
    assert state.tracking.tolist() == [0, 0, 250, 10]
    np.testing.assert_array_equal(state.motion.qpos[:2], fresh.physics.motion.qpos[:2])
    np.testing.assert_array_equal(state.motion.qpos[2:], old.physics.motion.qpos[2:])
    # Commands of its own, seen in units of 1/2 m/s at the level that was kept; friction is the environment's own.
    heading = yaw(state.motion.qpos[:, 3:7])
    told = commands.velocity(CONFIG.commands, state.command, state.command_level, heading)
    np.testing.assert_allclose(merged.obs["proprioception"][:2, 9], 2 * told[:2, 0], rtol=1e-6)
    # The two took the same fresh state, and part.
    assert (state.command[0] != state.command[1]).all()
    assert len(np.unique(jax.random.key_data(state.key), axis=0)) == B
    np.testing.assert_allclose(merged.obs["friction"][:2, 0], [0.1, 0.2], rtol=1e-6)
    np.testing.assert_array_equal(merged.obs["proprioception"][2:], old.obs["proprioception"][2:])


def test_variations_may_be_drawn_for_every_episode(start):
    env = LeggedEnv(
        CONFIG.model_copy(update={"domain_rand": DomainRandConfig(each_episode=True, friction_range=(0.9, 1.1))})
    )
    old = vary(start, friction=jnp.array([0.1, 0.2, 0.3, 0.4]))
    merged = jax.jit(env.merge)(jnp.array([True, False, True, False]), start, old)
    friction = np.asarray(merged.physics.variation.friction)
    np.testing.assert_allclose(friction[[1, 3]], [0.2, 0.4], rtol=1e-6)
    assert friction[0] != friction[2]
    assert ((friction[[0, 2]] >= 0.9) & (friction[[0, 2]] <= 1.1)).all()


def test_the_bare_simulator_is_the_physics_of_a_step(env, start):
    """Its shapes; the state keeps its form."""
    reset, step = env.simulator()
    assert reset == env.reset
    found = jax.eval_shape(step, start, ZERO)
    shapes = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), (found, start))
    assert shapes[0] == shapes[1]


def test_one_broken_environment_leaves_the_others_alone(env, start, step):
    good = step(start, ZERO)
    bad = step(moved(start, qvel={7: jnp.array([0.0, jnp.nan, 0.0, 0.0])}), ZERO)
    assert env.finite(good).all()
    assert env.finite(bad).tolist() == [True, False, True, True]
    same = step(moved(start, qvel={7: 0.0}), ZERO)
    np.testing.assert_array_equal(bad.obs["proprioception"][2:], same.obs["proprioception"][2:])
    merged = jax.jit(env.merge)(~env.finite(bad), start, carried(bad))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(merged.obs))
    assert np.isfinite(merged.physics.command_level).all()


def train(env, num_envs, iterations):
    """Metrics of every iteration, and the last train state."""
    algorithm = make_algorithm(env=env, num_mini_batches=1, num_learning_epochs=1)
    episodes = EpisodeEnv(env, 50)
    one = make_mesh(jax.devices()[:1])
    states = init_states(episodes, algorithm, one, jax.random.key(0), num_envs, random_lengths=True)
    run, metrics = make_train_step(episodes, algorithm, one, 8), []
    for _ in range(iterations):
        *states, new = run(*states, {})
        metrics.append(jax.device_get(new))
    return metrics, states[0]


def test_torques_that_break_the_simulator_poison_no_run():
    """Large random torques at a coarse step: two iterations of PPO with 4 environments."""
    wild = LeggedConfig(
        sim=SimConfig(dt=0.02),
        control=ControlConfig(decimation=2, stiffness=1e5, damping=0.0, action_scale=3.0),
        robot=RobotConfig(torque_limit=1e6),
        episode=EpisodeConfig(max_tilt=None),
    )
    metrics, state = train(LeggedEnv(wild), 4, 2)
    assert sum(m.invalid for m in metrics) > 0
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.params))
    assert all(m.update["skipped"] == 0 for m in metrics)


def test_twenty_iterations_of_sixteen_robots():
    metrics, state = train(LeggedEnv(), 16, 20)
    assert sum(m.invalid for m in metrics) == 0
    assert sum(m.finished for m in metrics) >= 16 * 20 * 8 // 50 - 16
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.params))
    assert state.iteration == 20
