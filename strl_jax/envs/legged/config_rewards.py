"""The section ``rewards`` of a legged environment's config."""

from pydantic import Field

from strl_jax.envs.legged.config_types import Extent, Gain, Weight
from strl_jax.section import Section


class RewardScales(Section):
    """Weight of each reward term, per second; 0: the term is not computed.

    The defaults are those of legged_gym for the A1, except for larger weights of tracking and a smaller weight of
    torques. With these, a robot learns to walk in half the time.
    """

    termination: Weight = 0.0
    tracking_lin_vel: Weight = 2.0
    tracking_ang_vel: Weight = 0.75
    lin_vel_z: Weight = -2.0
    ang_vel_xy: Weight = -0.05
    orientation: Weight = 0.0
    base_height: Weight = 0.0
    torques: Weight = -0.0001
    dof_vel: Weight = 0.0
    dof_acc: Weight = -2.5e-7
    dof_pos_limits: Weight = -10.0
    dof_vel_limits: Weight = 0.0
    torque_limits: Weight = 0.0
    action_rate: Weight = -0.01
    feet_air_time: Weight = 1.0
    collision: Weight = -1.0
    feet_stumble: Weight = 0.0
    feet_contact_forces: Weight = 0.0
    stand_still: Weight = 0.0


class RewardsConfig(Section):
    """The reward terms and their parameters.

    Attributes:
        scales: the weights.
        only_positive_rewards: the sum is at least 0 before the term ``termination`` is added.
        tracking_sigma: tracking = exp(-error^2 / tracking_sigma).
        soft_dof_pos_limit, soft_dof_vel_limit, soft_torque_limit: fraction of each limit at which its penalty begins.
        base_height_target: in m.
        feet_air_time_threshold: in seconds; ``feet_air_time`` penalises shorter steps and rewards longer ones.
        max_contact_force: in N.
    """

    scales: RewardScales = RewardScales()
    only_positive_rewards: bool = True
    tracking_sigma: float = Field(0.15, ge=0.001, le=1000)
    soft_dof_pos_limit: float = Field(0.9, gt=0, le=1)
    soft_dof_vel_limit: float = Field(1.0, gt=0, le=1)
    soft_torque_limit: float = Field(1.0, gt=0, le=1)
    base_height_target: Extent = 0.25
    feet_air_time_threshold: float = Field(0.5, ge=0, le=100)
    max_contact_force: Gain = 100.0
