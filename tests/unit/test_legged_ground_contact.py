"""Which shapes of a robot count as its contact with the ground, and how low they reach."""

import warnings

import humanoid
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from strl_jax.envs.legged import default_pose, lowest, robot
from strl_jax.envs.legged.config import ControlConfig, LeggedConfig, RobotConfig, SimConfig
from strl_jax.envs.legged.env import LeggedEnv
from strl_jax.envs.legged.physics import Physics
from strl_jax.viewer import shapes

NAMES = {
    "base": "pelvis",
    "joints": (*humanoid.LEGS, "waist", "left_shoulder", "right_shoulder"),
    "feet": ("left_toe", "right_toe"),
    "penalize_contacts_on": ("left_shin", "right_shin"),
    "terminate_after_contacts_on": ("pelvis", "torso"),
    "default_joint_angles": {"hip": -0.3, "knee": 0.6, "ankle": -0.3, "waist": 0.0, "shoulder": 0.5},
    "torque_limit": 60.0,
}
# Of two geoms of a body, the mesh reaches 1 cm lower than the sphere when the body is upright.
SHAPES = """
<mujoco>
  <asset><mesh name="wedge" vertex="-0.1 0 0  0.1 0 0  0 0.1 0  0 0 0.3  0.02 0.03 0.05"/></asset>
  <worldbody><body>
    <freejoint/>
    <geom type="sphere" size="0.1" pos="0.1 0.2 0.3"/>
    <geom type="capsule" size="0.05 0.2" euler="20 30 40"/>
    <geom type="cylinder" size="0.1 0.02" pos="0.3 0 0" euler="50 -30 10"/>
    <geom type="ellipsoid" size="0.1 0.2 0.05" euler="70 10 20"/>
    <geom type="box" size="0.1 0.2 0.05" euler="10 60 -20"/>
    <geom type="mesh" mesh="wedge" euler="-20 10 80"/>
  </body></worldbody>
</mujoco>
"""


def load(path, **changes):
    return robot.load(RobotConfig(path=path, **NAMES | changes), ControlConfig(), SimConfig())


@pytest.mark.parametrize("seed", range(3))
def test_lowest_point_is_that_of_the_surface(seed):
    """Of each kind of shape in a random orientation, along a random normal, within the size of the surface's faces."""
    model = mujoco.MjModel.from_xml_string(SHAPES)
    data, random = mujoco.MjData(model), np.random.default_rng(seed)
    data.qpos[3:] = random.normal(size=4)
    mujoco.mj_kinematics(model, data)
    rotation = data.geom_xmat.reshape(-1, 3, 3)
    normal = random.normal(size=3)
    normal /= np.linalg.norm(normal)
    for geom in range(model.ngeom):
        vertices, _ = shapes.triangles(model, geom)
        surface = data.geom_xpos[geom] + vertices @ rotation[geom].T
        found = lowest.of(model, np.array([geom]))
        centres = found.centres(data.geom_xpos, rotation)
        down = (centres[:, 2] - found.reach(rotation)).min()
        along = (centres @ normal - found.reach(rotation, np.tile(normal, (len(centres), 1)))).min()
        assert surface[:, 2].min() - 0.004 < down < surface[:, 2].min() + 1e-6
        assert (surface @ normal).min() - 0.004 < along < (surface @ normal).min() + 1e-6


def test_only_the_hull_of_a_mesh_is_tested():
    """Its inner vertex is left out; the corners of a flat mesh are all kept."""
    model = mujoco.MjModel.from_xml_string(SHAPES)
    assert len(lowest.of(model, np.array([5])).geom) == 4


def contacts(ours) -> tuple[np.ndarray, np.ndarray, bool]:
    """Contacts of feet, collisions and failure in the default pose."""
    physics = Physics(ours, 0.25, 4, False)
    motion, _, _ = jax.jit(physics.stand)(jnp.asarray(ours.default, jnp.float32), jnp.float32(0.0))
    places = jax.jit(physics.places)(motion)
    return np.asarray(places.contact), np.asarray(places.collisions), bool(places.failed)


def test_visual_meshes_below_the_feet_do_not_touch_the_ground(tmp_path):
    contact, collisions, failed = contacts(load(humanoid.write(tmp_path)))
    assert contact.all()
    assert not collisions.any()
    assert not failed
    assert default_pose.fault(load(humanoid.write(tmp_path))) is None


@pytest.mark.parametrize("mask", ["contype", "conaffinity"])
def test_a_mesh_that_collides_touches_the_ground(tmp_path, mask):
    """It counts, and the run reports it before it compiles anything."""
    changes = [(f'"{side}_cover" class', f'"{side}_cover" {mask}="1" class') for side in ("left", "right")]
    path = humanoid.write(tmp_path, ('0 0 -0.2"/>', '0 0 -0.31"/>'), *changes)
    ours = load(path)
    _, collisions, failed = contacts(ours)
    assert collisions.tolist() == [True, True]
    assert not failed
    assert len(ours.penalized["left_shin"]) == 2
    with pytest.warns(UserWarning, match=r"default pose: left_shin, right_shin \(penalize_contacts_on\)$"):
        LeggedEnv(LeggedConfig(robot=RobotConfig(path=path, **NAMES)))


def test_a_geom_of_a_pair_collides(tmp_path):
    pair = '<contact><pair geom1="left_cover" geom2="pelvis"/></contact><actuator>'
    ours = load(humanoid.write(tmp_path, ("<actuator>", pair)))
    assert [len(ours.penalized[name]) for name in ("left_shin", "right_shin")] == [2, 1]


def test_terminal_bodies_are_named_in_the_same_line(tmp_path):
    """The toes do not count as feet here, and belong to a terminal body."""
    named = {"feet": ("left_heel", "right_heel"), "terminate_after_contacts_on": ("pelvis", "left_sole")}
    ours = load(humanoid.write(tmp_path), **named, penalize_contacts_on=("right_sole", "left_shin"))
    touching = "right_sole (penalize_contacts_on); left_sole (terminate_after_contacts_on)"
    assert default_pose.fault(ours) == f"robot: bodies that touch the ground in the default pose: {touching}"


def test_the_quadruped_has_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LeggedEnv()


def test_a_body_of_visual_geoms_has_no_contact(tmp_path):
    """The run says so, and goes on."""
    path = humanoid.write(tmp_path, ('name="torso" type="ellipsoid"', 'name="torso" class="visual" type="ellipsoid"'))
    with pytest.warns(UserWarning, match=r"^robot\.terminate_after_contacts_on: no geom .* never .*: torso$"):
        ours = load(path)
    assert list(ours.terminal) == ["pelvis"]
