"""Every reward term of the legged environments against numbers computed by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from strl_jax.envs.legged import rewards
from strl_jax.envs.legged.config_rewards import RewardScales, RewardsConfig
from strl_jax.envs.legged.env import LeggedEnv

DT = 0.02
CONFIG = RewardsConfig(
    tracking_sigma=0.5, soft_dof_pos_limit=0.5, soft_dof_vel_limit=0.5, soft_torque_limit=0.5, base_height_target=0.3,
    max_contact_force=10.0,
)  # fmt: skip
# Joint ranges [-1, 1] and [0, 4]: half of each about its middle is [-0.5, 0.5] and [1, 3].
LIMITS = rewards.limits(
    CONFIG,
    lower=np.array([-1.0, 0.0]),
    upper=np.array([1.0, 4.0]),
    velocity=np.array([8.0, 8.0]),  # half: 4
    torque=np.array([20.0, 40.0]),  # half: 10 and 20
    default=np.array([0.25, 2.0]),
)
QUANTITIES = rewards.Quantities(
    lin_vel=jnp.array([[0.5, 0.25, -0.2]]),
    ang_vel=jnp.array([[0.3, -0.4, 0.5]]),
    gravity=jnp.array([[0.6, 0.0, -0.8]]),
    height=jnp.array([0.4]),
    joint_pos=jnp.array([[-0.75, 3.5]]),
    joint_vel=jnp.array([[-4.5, 7.0]]),
    joint_acc=jnp.array([[3.0, 4.0]]),
    torque=jnp.array([[12.0, -25.0]]),
    action=jnp.array([[1.0, 2.0]]),
    last_action=jnp.array([[0.5, 4.0]]),
    command=jnp.array([[1.0, 0.25, 1.0]]),
    landed=jnp.array([[True, False]]),
    air_time=jnp.array([[0.8, 0.9]]),
    foot_force=jnp.array([[[0.0, 0.0, 50.0], [6.0, 8.0, 1.0]]]),
    collisions=jnp.array([[True, False, True]]),
    terminated=jnp.array([True]),
)
EXPECTED = {
    "termination": 1.0,
    "tracking_lin_vel": np.exp(-0.5),  # error 0.5 and 0: 0.25 / 0.5
    "tracking_ang_vel": np.exp(-0.5),  # error 0.5
    "lin_vel_z": 0.04,
    "ang_vel_xy": 0.25,  # 0.09 + 0.16
    "orientation": 0.36,
    "base_height": 0.01,
    "torques": 769.0,  # 144 + 625
    "dof_vel": 69.25,  # 20.25 + 49
    "dof_acc": 25.0,
    "dof_pos_limits": 0.75,  # 0.25 under -0.5, 0.5 over 3
    "dof_vel_limits": 1.5,  # 0.5, and 3 that counts as 1
    "torque_limits": 7.0,  # 2 + 5
    "action_rate": 4.25,  # 0.25 + 4
    "feet_air_time": 0.3,  # 0.8 - 0.5 of the foot that has landed
    "collision": 2.0,
    "feet_stumble": 1.0,  # 10 > 5 x 1
    "feet_contact_forces": 40.0 + np.sqrt(101.0) - 10.0,  # 50 - 10, |(6, 8, 1)| - 10
    "stand_still": 0.0,  # it is to walk
}


def test_every_term_has_a_weight_and_a_value_here():
    assert set(rewards.TERMS) == set(RewardScales.model_fields) == set(EXPECTED)
    assert set(rewards.FORCES) < set(rewards.TERMS)


@pytest.mark.parametrize("name", EXPECTED)
def test_term(name):
    value = rewards.TERMS[name](QUANTITIES, CONFIG, LIMITS)
    assert value.shape == (1,)
    np.testing.assert_allclose(value, [EXPECTED[name]], rtol=1e-6, atol=1e-7)


def test_terms_of_a_robot_that_is_to_stand():
    still = QUANTITIES._replace(command=jnp.array([[0.05, 0.0, 1.0]]))
    assert rewards.TERMS["stand_still"](still, CONFIG, LIMITS).tolist() == [2.5]  # 1 + 1.5 from the default
    assert rewards.TERMS["feet_air_time"](still, CONFIG, LIMITS).tolist() == [0.0]


def test_short_steps_are_penalised_and_the_threshold_is_the_configs():
    both = QUANTITIES._replace(landed=jnp.array([[True, True]]), air_time=jnp.array([[0.1, 0.25]]))
    for threshold, expected in ((0.5, -0.65), (0.2, -0.05), (0.0, 0.35)):
        config = CONFIG.model_copy(update={"feet_air_time_threshold": threshold})
        np.testing.assert_allclose(rewards.TERMS["feet_air_time"](both, config, LIMITS), [expected], rtol=1e-6)


def test_quiet_feet_do_not_stumble():
    quiet = QUANTITIES._replace(foot_force=jnp.array([[[3.0, 4.0, 1.0], [0.0, 0.0, 0.0]]]))  # 5 = 5 x 1
    assert rewards.TERMS["feet_stumble"](quiet, CONFIG, LIMITS).tolist() == [0.0]
    assert rewards.TERMS["feet_contact_forces"](quiet, CONFIG, LIMITS).tolist() == [0.0]


def test_a_joint_without_limits_is_never_beyond_them():
    free = rewards.limits(CONFIG, np.full(2, -np.inf), np.full(2, np.inf), 8.0, 20.0, np.zeros(2))
    assert rewards.TERMS["dof_pos_limits"](QUANTITIES, CONFIG, free).tolist() == [0.0]


def only(**scales) -> RewardScales:
    """These weights; all others 0."""
    return RewardScales(**dict.fromkeys(RewardScales.model_fields, 0.0) | scales)


def total(positive: bool, **scales):
    config = CONFIG.model_copy(update={"scales": only(**scales), "only_positive_rewards": positive})
    return rewards.total(config, LIMITS, QUANTITIES, DT)


def test_total_weighs_the_terms_by_their_seconds():
    reward, terms = total(False, orientation=-2.0, dof_acc=0.1, termination=-5.0)
    # 0.02 x (-2 x 0.36, 0.1 x 25, -5)
    assert sorted(terms) == ["reward_dof_acc", "reward_orientation", "reward_termination"]
    np.testing.assert_allclose(terms["reward_orientation"], [-0.0144], rtol=1e-6)
    np.testing.assert_allclose(terms["reward_dof_acc"], [0.05], rtol=1e-6)
    np.testing.assert_allclose(terms["reward_termination"], [-0.1], rtol=1e-6)
    np.testing.assert_allclose(reward, [-0.0144 + 0.05 - 0.1], rtol=1e-6)


def test_the_sum_is_not_negative_but_for_the_termination():
    reward, _ = total(True, orientation=-2.0, termination=-5.0)
    np.testing.assert_allclose(reward, [-0.1], rtol=1e-6)
    reward, _ = total(True, orientation=-2.0)
    assert reward.tolist() == [0.0]


def test_without_terms_there_is_no_reward():
    reward, terms = total(True)
    assert reward.tolist() == [0.0]
    assert terms == {}


def test_cost_of_transport_of_robots_that_move():
    """Work per weight and way; without a value below 0.02 m/s."""
    env = LeggedEnv()
    weight = 9.81 * env.robot.model.body_mass.sum()
    errors = {"squared_lin_vel_error": jnp.float32(0.04), "squared_ang_vel_error": jnp.float32(0.09)}
    found = [
        env.scores(errors | {"power": 30.0, "weight_speed": jnp.float32(weight * v)})["CoT"]
        for v in (0.5, 0.03, 0.01, 0.0)
    ]
    np.testing.assert_allclose(found, [30.0 / weight / 0.5, 30.0 / weight / 0.03, np.nan, np.nan], rtol=1e-5)
