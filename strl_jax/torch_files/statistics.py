"""Observation statistics in torch checkpoints: st_rl's and rsl_rl's ``EmpiricalNormalization``."""

from collections.abc import Mapping

import numpy as np

from strl_jax.observations import Segments
from strl_jax.torch_files.file import TorchFileError
from strl_jax.types import RunningStats

FOREVER = np.finfo(np.float32).max  # a count of samples after which no statistics change


def import_statistics(
    statistics: Mapping[str, Mapping], groups: Mapping[str, Segments], count: float, eps: float
) -> tuple[dict[str, dict[str, RunningStats]], list[str]]:
    """Group -> component -> statistics, as numpy arrays, and a line for each group without statistics in the file.

    rsl_rl 3 and newer normalise the observations of actor and critic separately. A group that the file does
    not normalise gets mean 0 and standard deviation 1 - eps, which change nothing, and keeps them.

    Args:
        statistics: those of a ``layouts.Model``.
        groups: layouts of the groups.
        count: number of samples; used if the file does not contain it.
        eps: added to the standard deviation when observations are normalised.

    Raises:
        TorchFileError: one line for statistics of the wrong size or with invalid values, and for an eps of 1 or more
            where statistics are absent.
    """
    given = {group: segments for group, segments in groups.items() if group in statistics}
    absent = [group for group in groups if group not in given]
    lines = [line for group, segments in given.items() for line in _faults(_title(group), statistics[group], segments)]
    if eps >= 1:
        lines += [f"{_title(group)}: not in the file; algorithm.normalization_eps must be below 1" for group in absent]
    if lines:
        raise TorchFileError("\n".join(lines))
    imported = {
        group: _by_component(statistics[group], segments, count) if group in given else _unchanged(segments, eps)
        for group, segments in groups.items()
    }
    why = "not in the file, so they are not normalised: mean 0, standard deviation 1, constant"
    return imported, [f"{_title(group)}: {why}" for group in groups if group not in given]


def import_one(title: str, statistics: Mapping, shape: tuple[int, ...]) -> RunningStats:
    """Statistics of one quantity; ``title`` names it in messages. Without a count, the count is 0.

    Raises:
        TorchFileError: as ``import_statistics``.
    """
    segments = Segments(("all",), (shape,))
    lines = _faults(title, statistics, segments)
    if lines:
        raise TorchFileError("\n".join(lines))
    return _by_component(statistics, segments, 0.0)["all"]


def _by_component(statistics: Mapping, segments: Segments, count: float) -> dict[str, RunningStats]:
    def part(key: str, name: str, shape: tuple[int, ...]) -> np.ndarray:
        return statistics[key].reshape(-1)[segments.slice(name)].reshape(shape).astype(np.float32)

    samples = np.asarray(statistics.get("count", count), np.float32).reshape(())
    return {
        name: RunningStats(part("_mean", name, shape), part("_var", name, shape), samples)
        for name, shape in zip(segments.names, segments.shapes, strict=True)
    }


def _unchanged(segments: Segments, eps: float) -> dict[str, RunningStats]:
    """Statistics with which (x - mean) / (std + eps) is x."""
    return {
        name: RunningStats(np.zeros(shape, np.float32), np.full(shape, (1 - eps) ** 2, np.float32), FOREVER)
        for name, shape in zip(segments.names, segments.shapes, strict=True)
    }


def _title(group: str) -> str:
    return f"statistics of the {group}'s observations"


def _faults(title: str, statistics: Mapping, segments: Segments) -> list[str]:
    lines = []
    for key in ("_mean", "_var"):
        value, label = statistics.get(key), f"{title}, {key}"
        if not isinstance(value, np.ndarray):
            lines.append(f"{label}: in the policy only, {segments.size} entries")
        elif value.size != segments.size:
            lines.append(f"{label}: {value.size} entries in the file, {segments.size} in the policy")
        elif not np.isfinite(value).all() or (key == "_var" and (value < 0).any()):
            lines.append(f"{label}: not finite, or negative, in the file")
    if np.size(statistics.get("count", 0)) != 1:
        lines.append(f"{title}, count: it must be one number, not an array of shape {np.shape(statistics['count'])}")
    return lines
