"""The quadruped's model, another robot by its names, and names that do not fit."""

import re

import mujoco
import numpy as np
import pytest

from strl_jax.builders import environment
from strl_jax.config import ConfigError, EnvConfig
from strl_jax.envs.legged import robot
from strl_jax.envs.legged.config import ControlConfig, RobotConfig, SimConfig

# Two legs of one joint each; a hinge of the left leg stands first in the file.
BIPED = """
<mujoco>
  <compiler angle="radian"/>
  <worldbody>
    <body name="body" pos="0 0 1">
      <freejoint/>
      <geom name="shell" type="box" size="0.1 0.2 0.05" mass="2"/>
      <body name="left" pos="0 0.2 0">
        <joint name="left_joint" type="{kind}" axis="0 1 0" {range}/>
        <geom name="left_foot" type="sphere" size="0.03" pos="0 0 -0.5" mass="0.5"/>
      </body>
      <body name="right" pos="0 -0.2 0">
        <joint name="right_joint" axis="0 1 0"/>
        <geom name="right_foot" type="sphere" size="0.04" pos="0 0 -0.5" mass="0.5"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <position joint="right_joint" forcerange="-7 7" kp="3"/>
    <position joint="left_joint" forcerange="-9 9" kp="3"/>
  </actuator>
  <sensor><framequat objtype="body" objname="body"/></sensor>
  <keyframe><key qpos="0 0 1 1 0 0 0 0 0" ctrl="0 0"/></keyframe>
</mujoco>
"""
NAMES = {
    "base": "body",
    "joints": ("right_joint", "left_joint"),
    "feet": ("right_foot", "left_foot"),
    "penalize_contacts_on": (),
    "terminate_after_contacts_on": ("body",),
    "default_joint_angles": {"joint": 0.1, "left": 0.2},
}


def load(**config):
    return robot.load(RobotConfig(**config), ControlConfig(), SimConfig())


@pytest.fixture
def biped(tmp_path):
    path = tmp_path / "biped.xml"
    path.write_text(BIPED.format(kind="hinge", range='range="-1 2"'))
    return str(path)


def test_the_least_of_the_limits_of_joint_and_motors(tmp_path):
    """Motors pull with gear x force, on their joint alone: 10 x 5 Nm on the right; on the left 9 Nm, then 8."""
    text = BIPED.format(kind="hinge", range='range="-1 2" actuatorfrcrange="-8 8"')
    text = text.replace('joint="right_joint" forcerange="-7 7"', 'joint="right_joint" gear="10" forcerange="-5 6"')
    text = text.replace("</actuator>", '<general site="tip" refsite="tip" forcerange="-1 1"/></actuator>')
    text = text.replace('<geom name="shell"', '<site name="tip"/><geom name="shell"')
    path = tmp_path / "robot.xml"
    path.write_text(text)
    assert load(path=str(path), **NAMES).torque_limit.tolist() == [50.0, 8.0]


def test_a_folder_with_one_model(biped, tmp_path):
    (tmp_path / "scene.xml").write_text("<mujoco><include file='biped.xml'/></mujoco>")
    assert load(path=str(tmp_path), **NAMES).model.nq == 9  # 7 of the base, 2 joints
    (tmp_path / "other.xml").write_text("<mujoco/>")
    what = r": a folder must have one model; it has biped\.xml, other\.xml; give the path of a file$"
    with pytest.raises(ValueError, match=r"^robot\.path: .*" + what):
        load(path=str(tmp_path), **NAMES)


def test_a_model_of_an_installed_package():
    """Brax's ant: four legs of a hip and an ankle, whose motors have a gear but no limit."""
    legs = ("front_left_leg", "front_right_leg", "back_leg", "right_back_leg")
    found = load(
        path="brax:envs/assets/ant.xml",
        base="torso",
        joints=tuple(f"{part}_{number}" for number in (1, 2, 3, 4) for part in ("hip", "ankle")),
        feet=("left_foot_geom", "right_foot_geom", "third_foot_geom", "fourth_foot_geom"),
        penalize_contacts_on=legs,
        terminate_after_contacts_on=("torso",),
        default_joint_angles={"hip": 0.0, "ankle_1": 1.0, "ankle_2": -1.0, "ankle_3": -1.0, "ankle_4": 1.0},
        torque_limit=30.0,
    )
    assert found.model.nq == 7 + 8
    assert len(found.feet) == 4


@pytest.mark.parametrize("path", ["no_such_package:a.xml", "brax.no_such:a.xml", ":a.xml", "math:a.xml"])
def test_no_such_package(path):
    with pytest.raises(ValueError, match=rf"^robot\.path: {path}: no package .* is installed$"):
        load(path=path)


def test_no_such_file_in_a_package():
    with pytest.raises(ValueError, match=r"^robot\.path: brax:no\.xml: .*/brax/no\.xml does not exist$"):
        load(path="brax:no.xml")


def test_the_quadruped():
    ours = load()
    # trunk + 4 x (hip + thigh + calf + foot)
    assert ours.model.body_mass.sum() == pytest.approx(4.713 + 4 * (0.696 + 1.013 + 0.166 + 0.06))
    names = [mujoco.mj_id2name(ours.model, mujoco.mjtObj.mjOBJ_JOINT, joint) for joint in range(1, 13)]
    assert names == [f"{leg}_{part}_joint" for leg in ("FR", "FL", "RR", "RL") for part in ("hip", "thigh", "calf")]
    assert ours.qpos.tolist() == list(range(7, 19))  # after the base's 3 + 4
    assert ours.dof.tolist() == list(range(6, 18))
    np.testing.assert_allclose(ours.default[:6], [-0.1, 0.8, -1.5, 0.1, 0.8, -1.5])
    np.testing.assert_allclose(ours.default[6:], [-0.1, 1.0, -1.5, 0.1, 1.0, -1.5])
    assert (ours.default > ours.lower).all()
    assert (ours.default < ours.upper).all()
    assert (ours.torque_limit == 33.5).all()


def test_the_legs_are_where_their_names_say():
    model = load().model
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    for name, x, y in (("FR", 1, -1), ("FL", 1, 1), ("RR", -1, -1), ("RL", -1, 1)):
        np.testing.assert_allclose(data.body(f"{name}_hip").xpos[:2], [x * 0.183, y * 0.047])
        # Legs at angle 0 hang straight down: trunk, less thigh and calf.
        np.testing.assert_allclose(data.geom(f"{name}_foot").xpos, [x * 0.183, y * (0.047 + 0.0838), 0.32 - 0.4])


def test_another_robot_by_its_names(biped):
    other = load(path=biped, **NAMES)
    assert other.model.nu == 0
    assert other.qpos.tolist() == [8, 7]  # right before left, though left stands first in the file
    assert other.dof.tolist() == [7, 6]
    assert other.default.tolist() == [0.1, 0.2]
    assert other.torque_limit.tolist() == [7.0, 9.0]
    assert other.lower.tolist() == [-np.inf, -1.0]
    assert other.upper.tolist() == [np.inf, 2.0]
    assert [other.model.geom(*geoms).name for geoms in other.feet.values()] == ["right_foot", "left_foot"]
    assert other.penalized == {}
    assert {name: geoms.size for name, geoms in other.terminal.items()} == {"body": 1}
    # The feet touch the ground; nothing else, and not each other.
    touching = np.flatnonzero(other.model.geom_conaffinity)
    assert sorted(touching) == sorted(other.foot_geoms)
    assert np.flatnonzero(other.model.geom_contype).tolist() == other.ground.tolist()


def test_all_primitives_may_touch_the_ground(biped):
    other = load(path=biped, collide=True, **NAMES)
    assert other.model.geom_conaffinity.tolist().count(1) == 3


def test_gains_by_the_parts_of_names():
    ours = robot.load(RobotConfig(), ControlConfig(stiffness={"joint": 20.0, "calf": 30.0}, damping=0.7), SimConfig())
    assert ours.stiffness.tolist() == [20.0, 20.0, 30.0] * 4
    assert ours.damping.tolist() == [0.7] * 12


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"base": "trunk"}, "robot.base: the model has no body 'trunk'; it has world, body, left, right"),
        ({"base": "left"}, "robot.base: left is not allowed; its joint must be the model's first and a free joint"),
        (
            {"joints": ("left_joint",)},
            "robot.joints: 1 of the model's 2 joints are listed; missing: right_joint; list the others in "
            "robot.held_joints ('*': all others)",
        ),
        (
            {"joints": ("left_joint", "left_joint")},
            "robot.joints: left_joint is listed twice",
        ),
        (
            {"joints": ("left_joint", "knee")},
            "robot.joints: the model has no joint 'knee'; it has left_joint, right_joint",
        ),
        (
            {"feet": ("toe",)},
            "robot.feet: the model has no geom or body 'toe'; it has the geoms shell, left_foot, right_foot and the "
            "bodies world, body, left, right",
        ),
        (
            {"terminate_after_contacts_on": ("head",)},
            "robot.terminate_after_contacts_on: the model has no body 'head'; it has world, body, left, right",
        ),
        ({"feet": ("left_foot", "left_foot")}, "robot.feet: left_foot is listed twice"),
        (
            {"penalize_contacts_on": ("left",)},
            "robot.penalize_contacts_on: left has no geom that is not a foot",
        ),
        (
            {"terminate_after_contacts_on": ("world",)},
            "robot.terminate_after_contacts_on: world is not part of the robot",
        ),
        (
            {"default_joint_angles": {"joint": 0.1, "knee": 0.2}},
            "robot.default_joint_angles: knee is not allowed; it is part of no joint name: right_joint, left_joint",
        ),
        (
            {"default_joint_angles": {"joint": 0.1, "left": -1.1}},
            "robot.default_joint_angles: -1.1 of left_joint is not allowed; it must be in [-1, 2]",
        ),
        (
            {"default_joint_angles": {"left": 0.2}},
            "robot.default_joint_angles: no key is part of the joint name right_joint; keys: left",
        ),
    ],
)
def test_names_that_do_not_fit(biped, changes, expected):
    with pytest.raises(ValueError, match=re.escape(expected)) as caught:
        load(path=biped, **NAMES | changes)
    assert str(caught.value) == expected


def test_files_that_do_not_fit(tmp_path):
    path = tmp_path / "robot.xml"
    with pytest.raises(
        ValueError, match=r"^robot\.path: .*robot\.xml does not exist; it must be a file, a folder or PACKAGE:FILE$"
    ):
        load(path=str(path))
    path.write_text("<mujoco><nonsense/></mujoco>")
    with pytest.raises(ValueError, match=r"^robot\.path: .*robot\.xml is not MJCF: .*nonsense.*$"):
        load(path=str(path))
    path.write_text(BIPED.format(kind="slide", range=""))
    with pytest.raises(ValueError, match=r"^robot\.joints: left_joint is not allowed; it must be a hinge joint$"):
        load(path=str(path), **NAMES)
    path.write_text(re.sub('forcerange="-7 7"', "", BIPED.format(kind="hinge", range="")))
    with pytest.raises(
        ValueError, match=r"^robot\.torque_limit: null is not allowed; the model has no torque limit for right_joint$"
    ):
        load(path=str(path), **NAMES)
    third = '<body><joint axis="0 0 1"/><geom size="0.1"/></body><geom name="right_foot"'
    path.write_text(BIPED.format(kind="hinge", range="").replace('<geom name="right_foot"', third))
    with pytest.raises(
        ValueError, match=r"^robot\.joints: 2 of the model's 3 joints are listed; missing: a joint without a name; "
    ):
        load(path=str(path), **NAMES)
    with pytest.raises(ValueError, match=r"^robot\.path: 'x{40}'\.\.\.: File name too long$"):
        load(path="x" * 5000)


def flagged(tmp_path, flag: str, more: str = "") -> dict:
    """Keywords of a biped whose file sets an option of MuJoCo."""
    path = tmp_path / "robot.xml"
    text = BIPED.format(kind="hinge", range="").replace("<worldbody>", f"<option><flag {flag}/></option><worldbody>", 1)
    path.write_text(text.replace("<actuator>", f"{more}<actuator>"))
    return {key: list(value) if isinstance(value, tuple) else value for key, value in NAMES.items()} | {
        "path": str(path)
    }


def test_what_mjx_lacks_is_one_line(tmp_path):
    with pytest.raises(ConfigError) as caught:
        environment.make_env(EnvConfig(name="legged:flat", kwargs={"robot": flagged(tmp_path, 'override="enable"')}))
    assert str(caught.value).startswith("env.kwargs.robot.path: MJX cannot simulate this model: mjtEnableBit.")
    assert len(caught.value.lines) == 1


@pytest.mark.parametrize(
    ("flag", "more"),
    [
        ('energy="enable" fwdinv="enable"', ""),
        ('contact="disable"', ""),
        ('constraint="disable"', '<contact><exclude body1="world" body2="right"/></contact>'),
    ],
)
def test_the_ground_holds_whatever_a_file_switches(tmp_path, flag, more):
    """Both feet touch it, and it pushes them up."""
    kwargs = {"robot": flagged(tmp_path, flag, more)}
    env = environment.make_env(EnvConfig(name="legged:flat", kwargs=kwargs))
    model = env.robot.model
    data = mujoco.MjData(model)
    data.qpos[2] = 0.45  # the feet are 5 cm in the ground
    mujoco.mj_forward(model, data)
    pairs = {tuple(sorted(contact.geom)) for contact in data.contact}
    assert pairs == {tuple(sorted((env.robot.ground[0], *foot))) for foot in env.robot.feet.values()}
    assert data.qfrc_constraint[2] > 0


@pytest.mark.parametrize(
    ("name", "kwargs", "expected"),
    [
        ("legged:flt", {}, "env.name: 'legged:flt' is not allowed; unknown legged environment 'flt'; known: flat"),
        ("legged:flat", {"reward": {}}, "env.kwargs.reward: unknown key; nearest is rewards"),
        (
            "legged:flat",
            {"rewards": {"scales": {"torque": 1.0}}},
            "env.kwargs.rewards.scales.torque: unknown key; nearest is torques",
        ),
        (
            "legged:flat",
            {"commands": {"ranges": {"lin_vel_x": [1.0, -1.0]}}},
            "env.kwargs.commands.ranges.lin_vel_x: [1.0, -1.0] is not allowed; "
            "the first number must be at most the second",
        ),
        (
            "legged:flat",
            {"domain_rand": {"stiffness_range": [0.0, 1.0]}},
            "env.kwargs.domain_rand.stiffness_range.0: 0.0 is not allowed; it must be >= 0.001",
        ),
        (
            "legged:flat",
            {"domain_rand": {"friction_range": [0.0, 1.0]}},
            "env.kwargs.domain_rand.friction_range.0: 0.0 is not allowed; it must be >= 0.01",
        ),
        (
            "legged:flat",
            {"commands": {"ranges": {"lin_vel_x": [1.0]}}},
            "env.kwargs.commands.ranges.lin_vel_x.1: it is missing",
        ),
        (
            "legged:flat",
            {"camera": {"position": [0, 0, 0, 0]}},
            "env.kwargs.camera.position: [0, 0, 0, 0] is not allowed; it must be a list of 3",
        ),
        (
            "legged:flat",
            {"commands": {"ranges": {"lin_vel": [0, 1]}}},
            "env.kwargs.commands.ranges.lin_vel: unknown key; nearest is lin_vel_x",
        ),
        (
            "legged:flat",
            {"episode": {"episode_length_s": 1e9}},
            "env.kwargs.episode.episode_length_s: 1000000000.0 is not allowed; it must be <= 1000000",
        ),
        (
            "legged:flat",
            {"episode": {"episode_length_s": 0.001}},
            "env.kwargs.episode.episode_length_s: 0.001 is not allowed; it must be >= 0.02, one step",
        ),
        (
            "legged:flat",
            {"episode": {"max_tilt": 6.0}},
            "env.kwargs.episode.max_tilt: 6.0 is not allowed; it must be <= 3.14",
        ),
        (
            "legged:flat",
            {"domain_rand": {"added_mass_range": [-5.0, 0.0]}},
            "env.kwargs.domain_rand.added_mass_range: [-5.0, 0.0] is not allowed; its first number must be above -4.",
        ),
        ("legged:flat", {"robot": {"torque_limit": 0}}, "env.kwargs.robot.torque_limit: 0 is not allowed; "),
        ("legged:flat", {"control": {"stiffness": -20}}, "env.kwargs.control.stiffness: -20 is not allowed; "),
        ("legged:flat", {"control": {"damping": {"": 1}}}, "env.kwargs.control.damping"),
        (
            "legged:flat",
            {"rewards": {"tracking_sigma": 1e-45}},
            "env.kwargs.rewards.tracking_sigma: 1e-45 is not allowed; it must be >= 0.001",
        ),
        (
            "legged:flat",
            {"commands": {"ranges": {"lin_vel_y": [-1.0, 1e300]}}},
            "env.kwargs.commands.ranges.lin_vel_y.1: 1e+300 is not allowed; it must be <= 100",
        ),
        (
            "legged:flat",
            {"commands": {"ranges": {"heading": [0, 100]}}},
            "env.kwargs.commands.ranges.heading.1: 100 is not allowed; it must be <= 6.3",
        ),
        (
            "legged:flat",
            {"control": {"delay": [-0.01, 0.0]}},
            "env.kwargs.control.delay.0: -0.01 is not allowed; it must be >= 0",
        ),
        ("legged:flat", {"rewards": {"scales": {"torques": 1e300}}}, "env.kwargs.rewards.scales.torques: 1e+300 is "),
        ("legged:rough", {"terrain": {"num_cols": 10**15}}, "env.kwargs.terrain.num_cols: 1000000000000000 is not"),
        ("legged:rough", {"terrain": {"border_size": 1e308}}, "env.kwargs.terrain.border_size: 1e+308 is not allowed"),
        (
            "legged:flat",
            {"control": {"decimation": 0}},
            "env.kwargs.control.decimation: 0 is not allowed; it must be >= 1",
        ),
        (
            "legged:flat",
            {"control": {"delay": [0.0, 0.03]}},
            "env.kwargs.control.delay: [0.0, 0.03] is not allowed; it must be within [0, 0.02], one control step",
        ),
        (
            "legged:flat",
            {"episode": {"start_length_s": 30.0}},
            "env.kwargs.episode.start_length_s: 30 is not allowed; it must be <= 20",
        ),
        (
            "legged:flat",
            {"robot": {"feet": ["toe"]}},
            "env.kwargs.robot.feet: the model has no geom or body 'toe'; it has the geoms trunk, FR_hip, ",
        ),
    ],
)
def test_one_line_for_each_fault_of_a_config(name, kwargs, expected):
    with pytest.raises(ConfigError) as caught:
        environment.make_env(EnvConfig(name=name, kwargs=kwargs))
    assert str(caught.value).startswith(expected)
    assert len(caught.value.lines) == 1


def test_a_config_as_yaml_gives_it():
    kwargs = {"control": {"stiffness": {"joint": "2e1", "calf": 30}, "delay": [0, 0.01]}, "commands": {"step": "5e-2"}}
    env = environment.make_env(EnvConfig(name="legged:flat", kwargs=kwargs))
    assert env.robot.stiffness.tolist() == [20.0, 20.0, 30.0] * 4
    assert env.config.control.delay == (0.0, 0.01)
    assert env.config.commands.step == 0.05
    assert env.dt == pytest.approx(0.02)
    assert env.episode_length == 1000  # 20 s
