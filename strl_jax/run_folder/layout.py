"""Observation layout and versions, which a checkpoint stores, and how they differ from the current ones."""

import importlib.metadata
import platform
from functools import cache

import jax

from strl_jax.algorithms.base import Algorithm
from strl_jax.observations import Segments
from strl_jax.run_folder.errors import CheckpointError, compare

PACKAGES = ("strl_jax", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "brax", "mujoco", "mujoco-mjx")


def layout(algorithm: Algorithm) -> dict:
    """Observation groups and action size, for JSON.

    Returns:
        ``{"groups": {group: {component: shape}}, "action_size": A}``, components in order.
    """
    groups = {
        group: {name: list(shape) for name, shape in zip(segments.names, segments.shapes, strict=True)}
        for group, segments in algorithm.groups.items()
    }
    return {"groups": groups, "action_size": algorithm.policy.action_size}


def groups_of(layout: dict) -> dict[str, Segments]:
    """The observation groups in a result of ``layout``, which may have been read from JSON."""
    return {
        group: Segments(tuple(components), tuple(map(tuple, components.values())))
        for group, components in layout["groups"].items()
    }


def show_components(segments: Segments) -> str:
    """Components with their shapes, for a message."""
    return ", ".join(f"{name} {shape}" for name, shape in zip(segments.names, segments.shapes, strict=True))


def check_layout(saved: dict, current: dict) -> None:
    """Raises ``CheckpointError`` if two results of ``layout`` differ, with a line for every component."""
    before, now = _by_title(saved), _by_title(current)
    if before == now:  # or only the order differs
        before, now = (
            {f"observation group {group!r}, order": ", ".join(names) for group, names in side["groups"].items()}
            for side in (saved, current)
        )
    lines = compare(before, now, "absent")
    if lines:
        raise CheckpointError("\n".join(lines))


def _by_title(layout: dict) -> dict[str, str]:
    """Shapes of components and the action size, by the names that messages show."""
    shapes = {
        f"observation group {group!r}, component {name!r}": f"shape {tuple(shape)}"
        for group, components in layout["groups"].items()
        for name, shape in components.items()
    }
    return shapes | {"action size": str(layout["action_size"])}


def versions() -> dict[str, str | int | None]:
    """Versions of Python and of the packages used in training (None: not installed), and the device."""
    devices = jax.devices()
    return {
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
        "platform": devices[0].platform,
        "device_kind": devices[0].device_kind,
        "device_count": len(devices),
    }


def differences(meta: dict, shards: int) -> list[str]:
    """Reasons why a resumed run may not be bit for bit equal to an uninterrupted one, one line for each.

    Args:
        meta: of the checkpoint; its ``versions`` and ``shards`` are compared with the current ones.
        shards: number of shards now.
    """
    lines = []
    if meta["shards"] != shards:
        lines.append(f"saved on {meta['shards']} shards, resumed on {shards}: not reproducible bit for bit")
    now = versions()
    for name in dict.fromkeys([*meta["versions"], *now]):
        before, after = meta["versions"].get(name), now.get(name)
        if before != after and name != "device_count":  # the number of shards is reported above
            lines.append(f"saved with {name} {before}, resumed with {after}: the last bits may differ")
    return lines


@cache  # it reads the whole metadata of the package
def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
