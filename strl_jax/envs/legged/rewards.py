"""Reward terms of legged_gym as pure functions of one step's quantities, each ``[B]`` before its weight."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from strl_jax.envs.legged.config import RewardsConfig
from strl_jax.types import Array


class Limits(NamedTuple):
    """Where a joint's penalties begin, ``[A]``, and where it stands at action 0."""

    lower: np.ndarray
    upper: np.ndarray
    velocity: np.ndarray
    torque: np.ndarray
    default: np.ndarray


class Quantities(NamedTuple):
    """What a step is judged by; velocities and gravity in the base's frame."""

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
    landed: Array  # bool[B, F], feet that touch the ground and did not before
    air_time: Array  # [B, F], seconds that a foot was in the air until this step
    foot_force: Array  # [B, F, 3], in the world
    collisions: Array  # bool[B, bodies]
    terminated: Array  # bool[B]


def limits(config: RewardsConfig, lower, upper, velocity, torque, default) -> Limits:
    """Penalties begin at a share of each limit; that of a range is taken about its middle."""
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


def _tracking_lin_vel(q: Quantities, s: RewardsConfig, limit: Limits) -> Array:
    return jnp.exp(-_sum_squares(q.command[:, :2] - q.lin_vel[:, :2]) / s.tracking_sigma)


def _tracking_ang_vel(q: Quantities, s: RewardsConfig, limit: Limits) -> Array:
    return jnp.exp(-jnp.square(q.command[:, 2] - q.ang_vel[:, 2]) / s.tracking_sigma)


def _base_height(q: Quantities, s: RewardsConfig, limit: Limits) -> Array:
    return jnp.square(q.height - s.base_height_target)


def _dof_pos_limits(q: Quantities, s: RewardsConfig, limit: Limits) -> Array:
    return (jnp.maximum(limit.lower - q.joint_pos, 0.0) + jnp.maximum(q.joint_pos - limit.upper, 0.0)).sum(-1)


def _dof_vel_limits(q: Quantities, s: RewardsConfig, limit: Limits) -> Array:
    return jnp.clip(jnp.abs(q.joint_vel) - limit.velocity, 0.0, 1.0).sum(-1)


def _torque_limits(q: Quantities, s: RewardsConfig, limit: Limits) -> Array:
    return jnp.maximum(jnp.abs(q.torque) - limit.torque, 0.0).sum(-1)


def _feet_air_time(q: Quantities, s: RewardsConfig, limit: Limits) -> Array:
    """By how much steps were longer than a time, at their end; none where the robot is to stand."""
    long = ((q.air_time - s.feet_air_time_threshold) * q.landed).sum(-1)
    return jnp.where(jnp.linalg.norm(q.command[:, :2], axis=-1) > 0.1, long, 0.0)


def _feet_stumble(q: Quantities, s: RewardsConfig, limit: Limits) -> Array:
    """1 where a foot is pushed from the side five times as hard as from below."""
    sideways = jnp.linalg.norm(q.foot_force[..., :2], axis=-1)
    return (sideways > 5 * jnp.abs(q.foot_force[..., 2])).any(-1).astype(jnp.float32)


def _feet_contact_forces(q: Quantities, s: RewardsConfig, limit: Limits) -> Array:
    return jnp.maximum(jnp.linalg.norm(q.foot_force, axis=-1) - s.max_contact_force, 0.0).sum(-1)


def _stand_still(q: Quantities, s: RewardsConfig, limit: Limits) -> Array:
    still = jnp.linalg.norm(q.command[:, :2], axis=-1) < 0.1
    return jnp.where(still, jnp.abs(q.joint_pos - limit.default).sum(-1), 0.0)


def _sum_squares(x: Array) -> Array:
    return jnp.square(x).sum(-1)


TERMS: dict[str, Callable[[Quantities, RewardsConfig, Limits], Array]] = {
    "termination": lambda q, s, limit: q.terminated.astype(jnp.float32),
    "tracking_lin_vel": _tracking_lin_vel,
    "tracking_ang_vel": _tracking_ang_vel,
    "lin_vel_z": lambda q, s, limit: jnp.square(q.lin_vel[:, 2]),
    "ang_vel_xy": lambda q, s, limit: _sum_squares(q.ang_vel[:, :2]),
    "orientation": lambda q, s, limit: _sum_squares(q.gravity[:, :2]),
    "base_height": _base_height,
    "torques": lambda q, s, limit: _sum_squares(q.torque),
    "dof_vel": lambda q, s, limit: _sum_squares(q.joint_vel),
    "dof_acc": lambda q, s, limit: _sum_squares(q.joint_acc),
    "dof_pos_limits": _dof_pos_limits,
    "dof_vel_limits": _dof_vel_limits,
    "torque_limits": _torque_limits,
    "action_rate": lambda q, s, limit: _sum_squares(q.action - q.last_action),
    "feet_air_time": _feet_air_time,
    "collision": lambda q, s, limit: q.collisions.sum(-1).astype(jnp.float32),
    "feet_stumble": _feet_stumble,
    "feet_contact_forces": _feet_contact_forces,
    "stand_still": _stand_still,
}
FORCES = ("feet_stumble", "feet_contact_forces")  # terms that need the contact forces


def active(config: RewardsConfig) -> dict[str, float]:
    """Weights that are not 0."""
    return {name: scale for name, scale in config.scales.model_dump().items() if scale}


def total(config: RewardsConfig, limit: Limits, quantities: Quantities, dt: float) -> tuple[Array, dict[str, Array]]:
    """The step's reward ``[B]``, and each weighted term ``reward_NAME`` of it."""
    terms = {
        f"reward_{name}": (scale * dt * TERMS[name](quantities, config, limit)).astype(jnp.float32)
        for name, scale in active(config).items()
    }
    end = terms.get("reward_termination", 0.0)
    reward = sum(terms.values(), jnp.zeros(quantities.height.shape)) - end
    return (jnp.maximum(reward, 0.0) if config.only_positive_rewards else reward) + end, terms
