"""Observation statistics in torch checkpoints: st_rl's and rsl_rl's ``EmpiricalNormalization``."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from strl_jax.observations import Segments
from strl_jax.torch_files.file import TorchFileError
from strl_jax.types import RunningStats

# Keys and prefixes of the statistics of a group: a checkpoint has a separate dict, or (newer rsl_rl) stores
# them among the weights.
DICTS = {
    "actor": ("obs_norm_state_dict",),
    "critic": ("critic_obs_norm_state_dict", "privileged_obs_norm_state_dict"),
}
PREFIXES = {"actor": "actor_obs_normalizer.", "critic": "critic_obs_normalizer."}


def split(checkpoint: Mapping[str, Any]) -> tuple[dict, dict[str, dict]]:
    """The weights without statistics, and the statistics of the groups that have some.

    Args:
        checkpoint: a dict with ``model_state_dict``.

    Returns:
        Torch name -> weight, and group -> ``{"_mean": [1, D], "_var": [1, D], "count": []}``.
    """
    weights, statistics = dict(checkpoint["model_state_dict"]), {}
    for group, keys in DICTS.items():
        for key in keys:
            if checkpoint.get(key):  # without normalisation the dict is empty: that of torch.nn.Identity
                statistics[group] = dict(checkpoint[key])
        prefix = PREFIXES[group]
        inner = {name: weights.pop(name) for name in list(weights) if name.startswith(prefix)}
        if inner:
            statistics[group] = {name.removeprefix(prefix): value for name, value in inner.items()}
    return weights, statistics


def import_statistics(
    statistics: Mapping[str, Mapping], groups: Mapping[str, Segments], count: float
) -> dict[str, dict[str, RunningStats]]:
    """Group -> component -> statistics, as numpy arrays.

    Args:
        statistics: the statistics that ``split`` returns.
        groups: layouts of the groups.
        count: number of samples; used if the file does not contain it.

    Raises:
        TorchFileError: one line for every group without statistics, and for statistics of
            the wrong size or with invalid values.
    """
    lines = [line for group, segments in groups.items() for line in _faults(group, statistics.get(group), segments)]
    if lines:
        raise TorchFileError("\n".join(lines))
    return {group: _by_component(statistics[group], segments, count) for group, segments in groups.items()}


def _by_component(statistics: Mapping, segments: Segments, count: float) -> dict[str, RunningStats]:
    def part(key: str, name: str, shape: tuple[int, ...]) -> np.ndarray:
        return statistics[key].reshape(-1)[segments.slice(name)].reshape(shape).astype(np.float32)

    samples = np.asarray(statistics.get("count", count), np.float32).reshape(())
    return {
        name: RunningStats(part("_mean", name, shape), part("_var", name, shape), samples)
        for name, shape in zip(segments.names, segments.shapes, strict=True)
    }


def _faults(group: str, statistics: Mapping | None, segments: Segments) -> list[str]:
    title, lines = f"statistics of the {group}'s observations", []
    if statistics is None:
        return [f"{title}: in the policy only, {segments.size} entries"]
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
