"""Where results go: checked before anything runs, and written whole or not at all."""

import importlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from strl_jax.config import ConfigError
from strl_jax.run_folder.atomic import replacement
from strl_jax.run_folder.run_dir import obstacle

SUFFIXES = {"--video": (".mp4",), "--html": (".html", ".htm"), "--plot": (".png", ".pdf", ".svg"), "--out": (".json",)}
PACKAGES = {"--video": ("av", "PIL"), "--plot": ("matplotlib",)}


def check(paths: Mapping[str, Path], run_dir: Path) -> None:
    """Whether each option's file can be written there, and what it takes is installed; none is the run's own.

    Raises:
        ConfigError: one line for each fault.
    """
    faults = [fault for option, path in paths.items() for fault in _faults(option, path, run_dir)]
    if faults:
        raise ConfigError(*faults)


def _faults(option: str, path: Path, run_dir: Path) -> list[str]:
    if path.suffix.lower() not in SUFFIXES[option]:
        return [f"{option}: {path} must end in {' or '.join(SUFFIXES[option])}"]
    what = obstacle(path, run_dir)
    if what is not None:
        return [f"{option}: {path} cannot be written: {what}"]
    if not os.access(path.parent, os.W_OK):
        return [f"{option}: {path} cannot be written: the folder {path.parent} is not to be written in"]
    for package in PACKAGES.get(option, ()):
        try:
            importlib.import_module(package)
        except ImportError:
            return [f"{option} needs the package {package}: pip install 'strl_jax[play]'"]
    return []


def write(path: Path, make: Callable[[Path], None]) -> None:
    """``make`` writes a file that then takes the place of ``path``, in one rename; if it fails ``path`` stays.

    Raises:
        OSError: the disk refuses.
    """
    with replacement(path) as temporary:
        make(temporary)
