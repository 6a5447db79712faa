"""Observation statistics in torch checkpoints: st_rl's and rsl_rl's ``EmpiricalNormalization``."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from strl_jax.observations import Segments
from strl_jax.torch_files.file import TorchFileError
from strl_jax.types import RunningStats

# group -> where a checkpoint keeps its statistics: in dicts of their own, or (newer rsl_rl) among the weights
DICTS = {
    "actor": ("obs_norm_state_dict",),
    "critic": ("critic_obs_norm_state_dict", "privileged_obs_norm_state_dict"),
}
PREFIXES = {"actor": "actor_obs_normalizer.", "critic": "critic_obs_normalizer."}


def split(checkpoint: Mapping[str, Any]) -> tuple[dict, dict[str, dict]]:
    """The weights alone, and group -> ``{"_mean": [1, D], "_var": [1, D], "count": []}`` where there is one.

    Args:
        checkpoint: with ``model_state_dict``.
    """
    weights, found = dict(checkpoint["model_state_dict"]), {}
    for group, keys in DICTS.items():
        for key in keys:
            if checkpoint.get(key):  # an Identity in the place of a normaliser has an empty dict
                found[group] = dict(checkpoint[key])
        prefix = PREFIXES[group]
        inner = {name: weights.pop(name) for name in list(weights) if name.startswith(prefix)}
        if inner:
            found[group] = {name.removeprefix(prefix): value for name, value in inner.items()}
    return weights, found


def import_statistics(
    found: Mapping[str, Mapping], groups: Mapping[str, Segments], count: float
) -> dict[str, dict[str, RunningStats]]:
    """Group -> component -> statistics, as numpy arrays.

    Args:
        found: what ``split`` gives.
        groups: layouts of the groups.
        count: samples seen, where the file does not say.

    Raises:
        TorchFileError: a line for every group that has none, and for every one of the
            wrong size or with values that are no statistics.
    """
    lines = [line for group, segments in groups.items() for line in _faults(group, found.get(group), segments)]
    if lines:
        raise TorchFileError("\n".join(lines))
    return {group: _by_component(found[group], segments, count) for group, segments in groups.items()}


def _by_component(found: Mapping, segments: Segments, count: float) -> dict[str, RunningStats]:
    def part(key: str, name: str, shape: tuple[int, ...]) -> np.ndarray:
        return found[key].reshape(-1)[segments.slice(name)].reshape(shape).astype(np.float32)

    seen = np.asarray(found.get("count", count), np.float32).reshape(())
    return {
        name: RunningStats(part("_mean", name, shape), part("_var", name, shape), seen)
        for name, shape in zip(segments.names, segments.shapes, strict=True)
    }


def _faults(group: str, found: Mapping | None, segments: Segments) -> list[str]:
    if found is None:
        return [f"statistics of the {group}'s observations: in the policy only, {segments.size} entries"]
    lines = []
    for key in ("_mean", "_var"):
        value, label = found.get(key), f"statistics of the {group}'s observations, {key}"
        if not isinstance(value, np.ndarray):
            lines.append(f"{label}: in the policy only, {segments.size} entries")
        elif value.size != segments.size:
            lines.append(f"{label}: {value.size} entries in the file, {segments.size} in the policy")
        elif not np.isfinite(value).all() or (key == "_var" and (value < 0).any()):
            lines.append(f"{label}: not finite, or negative, in the file")
    if np.size(found.get("count", 0)) != 1:
        lines.append(f"statistics of the {group}'s observations, count: {np.shape(found['count'])} is no number")
    return lines
