"""Folder of compiled kernels, beside XLA's compilation cache."""

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import jax


def folder() -> Path:
    """The folder; without a compilation cache one for this process."""
    base = jax.config.jax_compilation_cache_dir
    path = Path(base).absolute() / "kernels" if base else Path(tempfile.gettempdir()) / f"strl_jax-{os.getpid()}"
    path.mkdir(parents=True, exist_ok=True)
    return path


def digest(*parts: str) -> str:
    """A name that differs for different texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def stored(name: str, build: Callable[[Path], None]) -> Path:
    """The file ``name``; ``build(path)`` writes it if it does not exist.

    Several processes can build it at the same time: each writes a file of its own, which is renamed when complete.
    """
    target = folder() / name
    if not target.exists():
        partial = target.with_name(f".{os.getpid()}-{name}")
        try:
            build(partial)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
    return target
