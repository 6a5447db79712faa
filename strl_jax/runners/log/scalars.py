"""Scalars of one iteration, with the names that st_rl logs."""

from collections.abc import Mapping

import jax

from strl_jax.types import Metrics


def from_metrics(metrics: Metrics, episode_seconds: float) -> dict[str, float]:
    """Scalars of a train step's metrics.

    Args:
        metrics: from ``train_step.make_train_step``'s program.
        episode_seconds: time limit of an episode in seconds. Reward terms are divided
            by it, as in legged_gym.
    """
    update = metrics.update
    scalars = {f"Loss/{name}": float(value) for name, value in update.items() if name != "skipped"}
    scalars |= {name: float(value) for name, value in metrics.hooks.items()}
    scalars["Loss/skipped_updates"] = float(update["skipped"])
    scalars["Policy/mean_noise_std"] = float(metrics.mean_std)
    scalars["Train/mean_reward_each_timestep"] = float(metrics.mean_reward_each_timestep)
    scalars["Train/finished_episodes"] = float(metrics.finished)
    scalars["Train/invalid_steps"] = float(metrics.invalid)
    episodes, steps = float(metrics.finished), float(metrics.finished_steps)
    if episodes:
        for name, total in metrics.episode_metrics.items():
            if name.startswith("reward"):
                scalars[f"Episode_Reward/{name}"] = float(total) / episodes / episode_seconds
            else:
                scalars[f"Episode/{name}"] = float(total) / steps
    return scalars


def from_evaluation(result: Mapping) -> dict[str, float]:
    """``Eval/*`` scalars of an evaluation."""
    return {f"Eval/{name}": float(value) for name, value in result.items()}


def evaluation_names(result: Mapping) -> list[str]:
    """Names of the ``Eval/*`` scalars of an evaluation, or of the shapes of its results."""
    return [f"Eval/{name}" for name in result]


def memory_bytes() -> float | None:
    """Peak memory of the local devices (the largest), None if the backend does not report it."""
    peaks = [(device.memory_stats() or {}).get("peak_bytes_in_use") for device in jax.local_devices()]
    known = [peak for peak in peaks if peak is not None]
    return float(max(known)) if known else None
