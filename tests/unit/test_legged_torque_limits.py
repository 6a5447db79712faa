"""The torque limit of a joint: the smallest of all limits in the file."""

import mujoco
import numpy as np
import pytest

from strl_jax.envs.legged import torque_limits

ROBOT = """
<mujoco>
  <worldbody>
    <body>
      <freejoint/><geom size="0.1"/>
      <body><joint name="knee" {joint}/><geom size="0.1"/><site name="tip"/></body>
    </body>
  </worldbody>
  <actuator>{actuators}</actuator>
</mujoco>
"""


def limit(joint: str = "", actuators: str = "", config=None) -> float:
    model = mujoco.MjModel.from_xml_string(ROBOT.format(joint=joint, actuators=actuators))
    (found,) = torque_limits.of(model, np.array([1]), ("knee",), config)
    return found


@pytest.mark.parametrize(
    ("joint", "actuators", "expected"),
    [
        ('actuatorfrcrange="-8 8"', "", 8.0),
        ("", '<motor joint="knee" ctrlrange="-5 5"/>', 5.0),
        ("", '<motor joint="knee" gear="3" ctrlrange="-5 5"/>', 15.0),
        ("", '<motor joint="knee" gear="-3" ctrlrange="-5 6"/>', 15.0),
        ("", '<motor jointinparent="knee" gear="3" ctrlrange="-5 5"/>', 15.0),
        ("", '<motor joint="knee" gear="3" forcerange="-4 4"/>', 12.0),
        ("", '<general joint="knee" gear="2" gainprm="7" ctrlrange="-1 1"/>', 14.0),
        ("", '<general joint="knee" biastype="affine" gainprm="7" ctrlrange="-1 1"/>', 7.0),
        ("", '<general joint="knee" dyntype="filter" gainprm="7" ctrlrange="-1 1"/>', 7.0),
        ("", '<general joint="knee" dyntype="integrator" actlimited="true" gainprm="7" actrange="-2 2"/>', 14.0),
        ("", '<position joint="knee" kp="9" gear="2" ctrlrange="-1 1" forcerange="-6 6"/>', 12.0),
        ("", '<velocity joint="knee" kv="9" ctrlrange="-1 1" forcerange="-6 6"/>', 6.0),
        ('actuatorfrcrange="-8 8"', '<motor joint="knee" ctrlrange="-5 5" forcerange="-9 9"/>', 5.0),
        ('actuatorfrcrange="-8 8"', '<motor joint="knee" ctrlrange="-15 15" forcerange="-9 9"/>', 8.0),
        ('actuatorfrcrange="-8 8"', '<motor joint="knee" ctrlrange="-15 15" gear="2" forcerange="-3 3"/>', 6.0),
        ("", '<motor joint="knee" ctrlrange="-5 5"/><motor joint="knee" gear="0" ctrlrange="-1 1"/>', 5.0),
        ("", '<motor joint="knee" ctrlrange="-5 5"/><motor site="tip" ctrlrange="-1 1"/>', 5.0),
    ],
)
def test_each_source_and_their_minimum(joint, actuators, expected):
    assert limit(joint, actuators) == pytest.approx(expected)


@pytest.mark.parametrize(
    "actuators",
    [
        "",
        '<motor joint="knee"/>',
        '<motor joint="knee" ctrllimited="false" ctrlrange="-5 5"/>',
        '<position joint="knee" kp="9" ctrlrange="-1 1"/>',  # an angle
        '<velocity joint="knee" kv="9" ctrlrange="-1 1"/>',  # a velocity
        '<general joint="knee" dyntype="integrator" gainprm="7" ctrlrange="-1 1"/>',  # a rate
        '<motor joint="knee" gear="0" ctrlrange="-5 5"/>',
    ],
)
def test_no_limit(actuators):
    with pytest.raises(ValueError, match=r"^robot\.torque_limit: null is not allowed; .* no torque limit for knee$"):
        limit(actuators=actuators)


def test_the_config_replaces_the_limits_of_the_file():
    assert limit('actuatorfrcrange="-8 8"', '<motor joint="knee" ctrlrange="-5 5"/>', {"knee": 11.0}) == 11.0
