"""Reward terms of legged_gym: pure functions of the quantities of one step; each returns ``[B]`` without its weight.

Source: https://github.com/leggedrobotics/legged_gym, class LeggedRobot.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from strl_jax.envs.legged.config_rewards import RewardsConfig
from strl_jax.types import Array


class Limits(NamedTuple):
    """Joint values ``[A]``, or one for all joints, at which penalties begin, and the joint angles at action 0."""

    lower: np.ndarray  # rad
    upper: np.ndarray  # rad
    velocity: np.ndarray  # rad/s
    torque: np.ndarray  # Nm
    default: np.ndarray  # rad, at action 0


class Quantities(NamedTuple):
    """The inputs of the reward terms in SI units; base velocities and gravity are in the base's frame."""

    lin_vel: Array  # [B, 3]
    ang_vel: Array  # [B, 3]
    gravity: Array  # [B, 3], a unit vector
    height: Array  # [B]
    joint_pos: Array  # [B, A]
    joint_vel: Array  # [B, A]
    joint_acc: Array  # [B, A]
    torque: Array  # [B, A]
    action: Array  # [B, A]
    last_action: Array  # [B, A]
    command: Array  # [B, 3]
    landed: Array  # bool[B, F], feet that touch the ground, but did not in the step before
    air_time: Array  # [B, F], seconds since the foot was last on the ground
    foot_force: Array  # [B, F, 3], in the world
    collisions: Array  # bool[B, bodies]
    terminated: Array  # bool[B]


def limits(config: RewardsConfig, lower, upper, velocity, torque, default) -> Limits:
    """Penalties begin at a fraction of each limit.

    A soft range of joint angles has the same middle as the joint's range. All arguments are ``[A]``, or one number for
    all joints.
    """
    bounded = np.isfinite(lower) & np.isfinite(upper)
    low, high = np.where(bounded, lower, 0.0), np.where(bounded, upper, 0.0)
    middle, half = (low + high) / 2, (high - low) / 2
    soft = config.soft_dof_pos_limit
    return Limits(
        lower=np.where(bounded, middle - soft * half, -np.inf),
        upper=np.where(bounded, middle + soft * half, np.inf),
        velocity=config.soft_dof_vel_limit * velocity,
        torque=config.soft_torque_limit * torque,
        default=default,
    )


def _tracking_lin_vel(q: Quantities, config: RewardsConfig, limit: Limits) -> Array:
    return jnp.exp(-_sum_squares(q.command[:, :2] - q.lin_vel[:, :2]) / config.tracking_sigma)


def _tracking_ang_vel(q: Quantities, config: RewardsConfig, limit: Limits) -> Array:
    return jnp.exp(-jnp.square(q.command[:, 2] - q.ang_vel[:, 2]) / config.tracking_sigma)


def _dof_pos_limits(q: Quantities, config: RewardsConfig, limit: Limits) -> Array:
    return (jnp.maximum(limit.lower - q.joint_pos, 0.0) + jnp.maximum(q.joint_pos - limit.upper, 0.0)).sum(-1)


def _feet_air_time(q: Quantities, config: RewardsConfig, limit: Limits) -> Array:
    """Air time minus the threshold, summed over the feet that land; 0 for planar commands up to 0.1 m/s."""
    excess = ((q.air_time - config.feet_air_time_threshold) * q.landed).sum(-1)
    return jnp.where(jnp.linalg.norm(q.command[:, :2], axis=-1) > 0.1, excess, 0.0)


def _feet_stumble(q: Quantities, config: RewardsConfig, limit: Limits) -> Array:
    """1 where the horizontal force on a foot is more than five times its vertical force."""
    horizontal = jnp.linalg.norm(q.foot_force[..., :2], axis=-1)
    return (horizontal > 5 * jnp.abs(q.foot_force[..., 2])).any(-1).astype(jnp.float32)


def _feet_contact_forces(q: Quantities, config: RewardsConfig, limit: Limits) -> Array:
    return jnp.maximum(jnp.linalg.norm(q.foot_force, axis=-1) - config.max_contact_force, 0.0).sum(-1)


def _stand_still(q: Quantities, config: RewardsConfig, limit: Limits) -> Array:
    still = jnp.linalg.norm(q.command[:, :2], axis=-1) < 0.1
    return jnp.where(still, jnp.abs(q.joint_pos - limit.default).sum(-1), 0.0)


def _sum_squares(x: Array) -> Array:
    return jnp.square(x).sum(-1)


TERMS: dict[str, Callable[[Quantities, RewardsConfig, Limits], Array]] = {
    "termination": lambda q, config, limit: q.terminated.astype(jnp.float32),
    "tracking_lin_vel": _tracking_lin_vel,
    "tracking_ang_vel": _tracking_ang_vel,
    "lin_vel_z": lambda q, config, limit: jnp.square(q.lin_vel[:, 2]),
    "ang_vel_xy": lambda q, config, limit: _sum_squares(q.ang_vel[:, :2]),
    "orientation": lambda q, config, limit: _sum_squares(q.gravity[:, :2]),
    "base_height": lambda q, config, limit: jnp.square(q.height - config.base_height_target),
    "torques": lambda q, config, limit: _sum_squares(q.torque),
    "dof_vel": lambda q, config, limit: _sum_squares(q.joint_vel),
    "dof_acc": lambda q, config, limit: _sum_squares(q.joint_acc),
    "dof_pos_limits": _dof_pos_limits,
    "dof_vel_limits": lambda q, config, limit: jnp.clip(jnp.abs(q.joint_vel) - limit.velocity, 0.0, 1.0).sum(-1),
    "torque_limits": lambda q, config, limit: jnp.maximum(jnp.abs(q.torque) - limit.torque, 0.0).sum(-1),
    "action_rate": lambda q, config, limit: _sum_squares(q.action - q.last_action),
    "feet_air_time": _feet_air_time,
    "collision": lambda q, config, limit: q.collisions.sum(-1).astype(jnp.float32),
    "feet_stumble": _feet_stumble,
    "feet_contact_forces": _feet_contact_forces,
    "stand_still": _stand_still,
}
FORCES = ("feet_stumble", "feet_contact_forces")  # terms that use the contact forces


def active(config: RewardsConfig) -> dict[str, float]:
    """Term -> weight, for the weights that are not 0."""
    return {name: scale for name, scale in config.scales.model_dump().items() if scale}


def total(config: RewardsConfig, limit: Limits, quantities: Quantities, dt: float) -> tuple[Array, dict[str, Array]]:
    """The reward ``[B]`` of a step, and its weighted terms ``reward_NAME``, ``[B]`` each.

    With ``only_positive_rewards`` the sum without the term ``termination`` is at least 0.

    Args:
        dt: duration of a step in seconds; weights are per second.
    """
    terms = {
        f"reward_{name}": (scale * dt * TERMS[name](quantities, config, limit)).astype(jnp.float32)
        for name, scale in active(config).items()
    }
    termination = terms.get("reward_termination", 0.0)
    reward = sum(terms.values(), jnp.zeros(quantities.height.shape)) - termination
    return (jnp.maximum(reward, 0.0) if config.only_positive_rewards else reward) + termination, terms
