"""What a checkpoint says about the run that wrote it: observation layout and versions."""

import importlib.metadata
import platform

import jax

from strl_jax.algorithms.base import Algorithm
from strl_jax.run_folder.errors import CheckpointError

PACKAGES = (
    "strl_jax",
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "orbax-checkpoint",
    "numpy",
    "brax",
    "mujoco",
    "mujoco-mjx",
)


def layout(algorithm: Algorithm) -> dict:
    """Observation groups and action size, JSON-able.

    Returns:
        ``{"groups": {group: {component: shape}}, "action_size": A}``, components in order.
    """
    groups = {
        group: {name: list(shape) for name, shape in zip(segments.names, segments.shapes, strict=True)}
        for group, segments in algorithm.groups.items()
    }
    return {"groups": groups, "action_size": algorithm.policy.action_size}


def check_layout(saved: dict, current: dict) -> None:
    """Compares two results of ``layout``.

    Raises:
        CheckpointError: they differ; a line for every difference, with group,
            component and both shapes.
    """
    lines = []
    for group in dict.fromkeys([*saved["groups"], *current["groups"]]):
        lines += _compare_group(group, saved["groups"].get(group), current["groups"].get(group))
    if saved["action_size"] != current["action_size"]:
        lines.append(f"action size: {saved['action_size']} in the checkpoint, {current['action_size']} now")
    if lines:
        raise CheckpointError("\n".join(lines))


def versions() -> dict[str, str | int | None]:
    """Versions of Python and of every package that training rests on (None if not installed), and the device."""
    devices = jax.devices()
    return {
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
        "platform": devices[0].platform,
        "device_kind": devices[0].device_kind,
        "device_count": len(devices),
    }


def differences(meta: dict, shards: int) -> list[str]:
    """What keeps a resumed run from being bit for bit the run that was not stopped; a line each.

    Args:
        meta: of the checkpoint; its ``versions`` and ``shards`` are read.
        shards: number of shards now.
    """
    lines = []
    if meta["shards"] != shards:
        lines.append(f"saved on {meta['shards']} shards, goes on with {shards}: not bit for bit the same run")
    now = versions()
    for name in dict.fromkeys([*meta["versions"], *now]):
        before, after = meta["versions"].get(name), now.get(name)
        if before != after and name != "device_count":  # shards tell it
            lines.append(f"saved with {name} {before}, goes on with {after}: may differ in the last bits")
    return lines


def _compare_group(group: str, saved: dict | None, current: dict | None) -> list[str]:
    if saved is None or current is None:
        where = "now" if saved is None else "in the checkpoint"
        return [f"observation group {group!r}: only {where}"]
    lines = []
    for name in dict.fromkeys([*saved, *current]):
        before, after = _shape(saved.get(name)), _shape(current.get(name))
        if before != after:
            lines.append(f"observation group {group!r}, component {name!r}: {before} in the checkpoint, {after} now")
    if not lines and list(saved) != list(current):
        before, after = (", ".join(f"{name} {_shape(part[name])}" for name in part) for part in (saved, current))
        lines.append(f"observation group {group!r}, order: {before} in the checkpoint, {after} now")
    return lines


def _shape(shape: list[int] | tuple[int, ...] | None) -> str:
    return "absent" if shape is None else f"shape {tuple(shape)}"


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
