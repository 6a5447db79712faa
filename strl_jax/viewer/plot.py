"""Figure of one episode over time."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

AXES = ("vx, m/s", "vy, m/s", "yaw rate, rad/s")


def draw(path: Path, form: str, trace: Mapping[str, np.ndarray], dt: float, joints: Sequence[str], feet: Sequence[str]):
    """Draws an episode and saves the figure.

    Args:
        path: file of the figure.
        form: ``png``, ``pdf`` or ``svg``.
        trace: see ``Roll.trace``. For a legged robot the figure shows velocities, torques and contacts, for any
            other environment rewards and actions.
        dt: duration of a step, s.
        joints, feet: names of the joints and feet of a legged robot; empty for any other environment.

    Raises:
        OSError: writing fails.
    """
    from matplotlib.figure import Figure  # of the extra ``play``

    time = dt * np.arange(1, len(trace["reward"]) + 1)
    figure = Figure(figsize=(15, 12 if "command" in trace else 6), layout="constrained")
    if "command" in trace:
        _draw_robot(figure, time, trace, joints, feet)
    else:
        _draw_reward(figure, time, trace)
    figure.axes[-1].set_xlabel("time, s")
    figure.savefig(path, format=form, dpi=120)


def _draw_robot(figure, time, trace, joints, feet) -> None:
    """Commanded and measured velocities, torques and contacts, one below the other."""
    heights = [1, 1, 1, 1.6, 0.9]
    axes = figure.subplots(len(heights), 1, sharex=True, gridspec_kw={"height_ratios": heights})
    for index, (axis, name) in enumerate(zip(axes, AXES, strict=False)):
        axis.plot(time, trace["velocity"][:, index], lw=1.0, label="measured")
        axis.plot(time, trace["command"][:, index], "k--", lw=1.2, label="commanded")
        axis.set_ylabel(name)
        axis.grid(alpha=0.3)
    axes[0].legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False)
    for index, name in enumerate(joints):
        style = "-" if index < 10 else "--"  # the colours of matplotlib repeat after 10
        axes[3].plot(time, trace["torque"][:, index], style, lw=0.7, label=name)
    axes[3].set_ylabel("torque, Nm")
    axes[3].legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize="x-small")
    axes[3].grid(alpha=0.3)
    _draw_gait(axes[4], time, trace["contact"], feet)


def _draw_gait(axis, time, contact, feet) -> None:
    """Gait diagram: a bar for every stance phase, one row per foot."""
    step = time[0]  # the first step ends at dt
    for row, name in enumerate(feet):
        spans = [(time[begin] - step, (end - begin) * step) for begin, end in stances(contact[:, row])]
        axis.broken_barh(spans, (row - 0.35, 0.7), color=f"C{row}", label=name)
    axis.set_yticks(range(len(feet)), feet)
    axis.set_ylim(len(feet) - 0.5, -0.5)
    axis.set_ylabel("on the ground")


def stances(contact: np.ndarray) -> list[tuple[int, int]]:
    """Stance phases in ``contact bool[T]``: (first step, last step + 1) of each run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], contact.astype(int), [0]])))
    return [(int(begin), int(end)) for begin, end in edges.reshape(-1, 2)]


def _draw_reward(figure, time, trace) -> None:
    """Reward and actions, one below the other."""
    reward, action = figure.subplots(2, 1, sharex=True)
    reward.plot(time, trace["reward"], lw=1.0)
    reward.set_ylabel("reward")
    action.plot(time, trace["action"], lw=0.8, label=[str(i) for i in range(trace["action"].shape[1])])
    action.set_ylabel("action")
    action.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize="x-small")
    for axis in (reward, action):
        axis.grid(alpha=0.3)
