"""Feet of several geoms, joints that are held, and poses of keyframes."""

import humanoid
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from strl_jax.builders.environment import make_env
from strl_jax.config import ConfigError, EnvConfig
from strl_jax.envs.legged import robot
from strl_jax.envs.legged.config import ControlConfig, EpisodeConfig, LeggedConfig, RobotConfig, SimConfig
from strl_jax.envs.legged.env import LeggedEnv
from strl_jax.envs.legged.physics import Physics, Variation

NAMES = {
    "base": "pelvis",
    "joints": ("*_hip", "*_knee", "*_ankle"),
    "held_joints": ("*",),
    "feet": ("left_sole", "right_sole"),
    "penalize_contacts_on": ("*_shin",),
    "terminate_after_contacts_on": ("pelvis", "torso"),
    "default_keyframe": "bent",
}


def load(path, control=None, **changes):
    return robot.load(RobotConfig(path=path, **NAMES | changes), control or ControlConfig(), SimConfig())


@pytest.fixture
def file(tmp_path):
    return humanoid.write(tmp_path)


def names_of(ours, feet=None):
    return {name: [ours.model.geom(geom).name for geom in geoms] for name, geoms in (feet or ours.feet).items()}


@pytest.mark.parametrize(
    ("feet", "expected"),
    [
        (("left_sole", "right_toe"), {"left_sole": ["left_heel", "left_toe"], "right_toe": ["right_toe"]}),
        (
            (("left_toe", "left_heel"), "right_??e*"),
            {"left_toe": ["left_toe", "left_heel"], "right_??e*": ["right_heel", "right_toe"]},
        ),
    ],
)
def test_a_foot_is_a_geom_a_body_a_pattern_or_a_list(file, feet, expected):
    """Visual geoms are no part of it."""
    ours = load(file, feet=feet)
    assert names_of(ours) == expected
    assert sorted(np.flatnonzero(ours.model.geom_conaffinity)) == sorted(ours.foot_geoms)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"feet": ("left_sole", "left_toe")}, r"^robot\.feet: left_toe is listed twice$"),
        ({"feet": (("left_toe", "left_*oe"),)}, r"^robot\.feet: left_toe is listed twice$"),
        ({"feet": ("hand*",)}, r"^robot\.feet: hand\* fits no name; there are pelvis, left_thigh, "),
        ({"joints": ("*_hip", "left_*")}, r"^robot\.joints: left_hip is listed twice$"),
        ({"joints": ("*_elbow",)}, r"^robot\.joints: \*_elbow fits no name; there are left_hip, left_knee"),
        ({"held_joints": ()}, r"6 of the model's 9 joints are listed; missing: waist, left_shoulder, right_shoulder; "),
        (
            {"held_joints": ("waist",)},
            r"7 of the model's 9 joints are listed; missing: left_shoulder, right_shoulder; ",
        ),
        ({"held_joints": ("left_hip", "*")}, r"^robot\.held_joints: left_hip is listed in robot\.joints$"),
        ({"held_joints": ("elbow",)}, r"^robot\.held_joints: the model has no joint 'elbow'; it has root, left_hip, "),
        (
            {"default_keyframe": "home"},
            r"^robot\.default_keyframe: the model has no keyframe 'home'; it has low, bent$",
        ),
        ({"default_joint_angles": {"elbow": 0.1}}, r"elbow is not allowed; it is part of no joint name: left_hip, "),
        ({"default_joint_angles": {"waist": 3.0}}, r"^robot\.default_joint_angles: 3 of waist .* in \[-1, 1\]$"),
        ({"penalize_contacts_on": ("arm*",)}, r"^robot\.penalize_contacts_on: arm\* fits no name; there are world, "),
        ({"torque_limit": {"hip": 3.0}}, r"^robot\.torque_limit: no key is part of the joint name left_knee; "),
        ({"armature": {"elbow": 0.1}}, r"^robot\.armature: elbow is not allowed; it is part of no joint name: "),
    ],
)
def test_parts_that_do_not_fit(file, changes, expected):
    with pytest.raises(ValueError, match=expected):
        load(file, **changes)


def test_a_keyframe_outside_of_a_joints_range(tmp_path):
    path = humanoid.write(tmp_path, ('"waist" axis="0 0 1" range="-1 1"', '"waist" axis="0 0 1" range="0.1 1"'))
    with pytest.raises(ValueError, match=r"^robot\.default_keyframe: 0 of waist is not allowed; .* in \[0\.1, 1\]$"):
        load(path)


def test_the_order_of_patterns(file):
    """Joints of a pattern are in the order of the file; the held ones are all others."""
    ours = load(file)
    assert ours.joint_names == ("left_hip", "right_hip", "left_knee", "right_knee", "left_ankle", "right_ankle")
    np.testing.assert_allclose(ours.default, [-0.3, -0.3, 0.6, 0.6, -0.3, -0.3])
    assert ours.torque_limit.tolist() == [60.0, 60.0, 80.0, 80.0, 20.0, 20.0]
    assert ours.held.qpos.tolist() == [13, 14, 15]
    np.testing.assert_allclose(ours.held.default, [0.0, 0.5, 0.4])
    assert np.isinf(ours.held.torque_limit).all()
    assert list(ours.penalized) == ["left_shin", "right_shin"]


def test_angles_that_differ_from_the_keyframe(file):
    ours = load(file, default_joint_angles={"shoulder": 0.1, "left_knee": 0.7})
    np.testing.assert_allclose(ours.default, [-0.3, -0.3, 0.7, 0.6, -0.3, -0.3])
    np.testing.assert_allclose(ours.held.default, [0.0, 0.1, 0.1])
    low = load(file, default_keyframe="low")
    np.testing.assert_allclose(low.default, [-0.6, -0.6, 1.2, 1.2, -0.6, -0.6])
    # Without a keyframe, a held joint stays at the file's reference angle; an action needs an angle.
    angles = {"hip": -0.2, "knee": 0.4, "ankle": -0.2}
    assert load(file, default_keyframe=None, default_joint_angles=angles).held.default.tolist() == [0.0] * 3
    with pytest.raises(ValueError, match=r"^robot\.default_joint_angles: no key is part of the joint name left_knee; "):
        load(file, default_keyframe=None, default_joint_angles={"hip": -0.2, "ankle": -0.2})


def test_a_stored_config_keeps_the_keyframe():
    """The angles of the quadruped are not stored with it."""
    stored = RobotConfig(**NAMES).model_dump(mode="json")
    assert stored["default_joint_angles"] == {}
    assert RobotConfig(**stored) == RobotConfig(**NAMES)
    assert RobotConfig().default_joint_angles["calf"] == -1.5


def test_gains_and_inertia_of_held_joints(file):
    control = ControlConfig(stiffness={"_": 80.0, "waist": 50.0, "shoulder": 20.0}, damping=2.0)
    ours = load(file, control, armature={"_": 0.01, "waist": 0.03})
    assert ours.stiffness.tolist() == [80.0] * 6
    assert ours.held.stiffness.tolist() == [50.0, 20.0, 20.0]
    assert ours.held.damping.tolist() == [2.0] * 3
    assert ours.model.dof_armature[ours.dof].tolist() == [0.01] * 6
    assert ours.model.dof_armature[ours.held.dof].tolist() == [0.03, 0.01, 0.01]
    assert load(file).model.dof_armature[6:].tolist() == [0.02] * 9


NOMINAL = Variation(
    friction=jnp.float32(1.0),
    added_mass=jnp.float32(0.0),
    com=jnp.zeros(3),
    strength=jnp.ones(6),
    gains=jnp.ones(2),
    delay=jnp.float32(0.0),
)


def test_one_contact_and_one_position_for_each_foot(file):
    """Two geoms of a foot: on the ground, tilted so that the toes alone touch it, and lifted."""
    ours = load(file)
    physics = Physics(ours, 0.25, 4, True)
    stand, places = jax.jit(physics.stand), jax.jit(physics.places)
    motion, feet, contact = stand(jnp.asarray(ours.default, jnp.float32), jnp.float32(0.0))
    assert contact.tolist() == [True, True]
    np.testing.assert_allclose(feet[:, 2], 0.02, atol=1e-5)
    data = mujoco.MjData(ours.model)
    data.qpos[:] = motion.qpos
    mujoco.mj_kinematics(ours.model, data)
    middle = (data.geom("left_toe").xpos + data.geom("left_heel").xpos) / 2
    np.testing.assert_allclose(places(motion).feet[0], middle, atol=1e-6)
    tiptoe = motion.replace(qpos=motion.qpos.at[ours.qpos[4:]].add(jnp.array([0.1, 0.0])))
    raised = places(tiptoe.replace(qpos=tiptoe.qpos.at[2].add(0.1 * np.sin(0.1))))
    assert raised.contact.tolist() == [True, False]
    assert places(motion.replace(qpos=motion.qpos.at[2].add(0.01))).contact.tolist() == [False, False]


@pytest.mark.slow  # a minute to compile
def test_held_joints_stay_and_the_feet_bear_the_weight(file):
    """Half a second under zero actions."""
    control = ControlConfig(stiffness={"_": 150.0, "waist": 100.0, "shoulder": 40.0}, damping=3.0)
    ours = load(file, control)
    physics = Physics(ours, 0.25, 4, True)
    motion, _, _ = jax.jit(physics.stand)(jnp.asarray(ours.default, jnp.float32), jnp.float32(0.0))
    advance = jax.jit(physics.advance)
    for _ in range(25):
        motion, torque, force = advance(motion, NOMINAL, jnp.zeros(6), jnp.zeros(6))
    assert torque.shape == (6,)
    np.testing.assert_allclose(motion.qpos[ours.held.qpos], ours.held.default, atol=0.1)
    weight = 9.81 * ours.model.body_mass.sum()
    assert force.shape == (2, 3)
    assert 0.5 * weight < force[:, 2].sum() < 1.5 * weight


def test_observations_and_actions_have_the_moved_joints_only(file):
    kwargs = {"robot": {key: list(v) if isinstance(v, tuple) else v for key, v in NAMES.items()} | {"path": file}}
    env = make_env(EnvConfig(name="legged:flat", kwargs=kwargs))
    assert env.action_size == 6
    assert env.observation_shapes["proprioception"] == (12 + 3 * 6,)
    assert env.observation_shapes["contact"] == (2,)
    assert env.observation_shapes["motor_strength"] == (6,)
    assert env.observation_shapes["amp"] == (6 + 6 + 6 + 6 + 1,)
    kwargs["robot"]["feet"] = [["left_toe", 3], "right_sole"]
    with pytest.raises(ConfigError, match=r"^env\.kwargs\.robot\.feet\.0") as caught:
        make_env(EnvConfig(name="legged:flat", kwargs=kwargs))
    assert len(caught.value.lines) == 1


@pytest.mark.parametrize("level", [False, True])
def test_all_feet_of_the_quadruped_start_on_the_ground(level):
    """In its default pose, the rear legs are 9 mm shorter than the front legs."""
    env = LeggedEnv(LeggedConfig(episode=EpisodeConfig(level_feet=level)))
    ours, physics, stand = env.robot, env.physics, jax.jit(env.physics.stand)
    motion, feet, contact = stand(jnp.asarray(ours.default, jnp.float32), jnp.float32(1.0))
    assert contact.tolist() == ([True] * 4 if level else [True, True, False, False])
    if level:
        np.testing.assert_allclose(feet[:, 2], 0.02, atol=1e-5)
        assert jax.jit(physics.places)(motion).contact.all()
    np.testing.assert_allclose(jnp.linalg.norm(motion.qpos[3:7]), 1.0, rtol=1e-6)


def test_a_biped_is_levelled_about_one_axis(file):
    """One leg is shorter by 4 cm: the base rolls, and does not pitch."""
    ours = load(file)
    physics = Physics(ours, 0.25, 4, False, None, True)
    short = jnp.asarray(ours.default, jnp.float32).at[jnp.array([0, 2, 4])].set(jnp.array([-0.5, 1.0, -0.5]))
    motion, feet, _ = jax.jit(physics.stand)(short, jnp.float32(0.0))
    np.testing.assert_allclose(feet[0, 2], feet[1, 2], atol=0.003)
    assert abs(motion.qpos[4]) > 0.05
    assert abs(motion.qpos[5]) < 0.02
