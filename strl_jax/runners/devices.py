"""The argument ``device`` of st_rl's methods, as a JAX device."""

import contextlib
import re
from typing import Any

import jax
from jax.sharding import Mesh

from strl_jax.config import ConfigError
from strl_jax.run_folder.errors import first_few
from strl_jax.sharding import make_mesh


def find_device(device: Any) -> jax.Device:
    """The JAX device that a method's argument ``device`` names.

    Args:
        device: a kind of device (``cpu``, ``cuda``, ``gpu``, ``tpu``), which is its first device here, or a kind and
            a number like ``cuda:1``; also a ``torch.device`` or a ``jax.Device``.

    Raises:
        ConfigError: there is no such device.
    """
    if isinstance(device, jax.Device):
        return device
    if isinstance(device, Mesh):
        raise ConfigError("device: a Mesh is not a device; pass it by its keyword: mesh=...")
    form = re.fullmatch(r"([a-z]+)(?::(\d+))?", str(device).lower())
    there = _devices(form[1]) if form else []
    index = int(form[2] or 0) if form else 0
    if index < len(there):
        return there[index]
    names = [f"{one.platform}:{i}" for group in (_devices(None), _devices("cpu")) for i, one in enumerate(group)]
    existing = first_few(list(dict.fromkeys(names)), ", ")
    raise ConfigError(f"device: {device!r} is not available; existing devices: {existing}")


def mesh_on(device: Any = None) -> Mesh:
    """A mesh of one device, see ``find_device``; None: of all devices of all processes.

    Raises:
        ConfigError: there is no such device, or there are several processes.
    """
    if device is None:
        return make_mesh()
    if jax.process_count() > 1:
        raise ConfigError("device: not allowed with several processes, which train on all devices; leave it out")
    return make_mesh([find_device(device)])


def _devices(kind: str | None) -> list[jax.Device]:
    """The devices of a kind in this process; None: of JAX's default kind."""
    with contextlib.suppress(RuntimeError):
        return jax.local_devices(backend=kind)
    return []
