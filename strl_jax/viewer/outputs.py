"""Output files of ``play``: checks before the run, and writing without partial files."""

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
    """Checks that every output file can be written and that the packages for it are installed.

    Args:
        paths: option -> file.
        run_dir: run folder, whose own files must not be overwritten.

    Raises:
        ConfigError: one line per fault.
    """
    faults = [fault for option, path in paths.items() for fault in _faults(option, path, run_dir)]
    if faults:
        raise ConfigError(*faults)


def _faults(option: str, path: Path, run_dir: Path) -> list[str]:
    if path.suffix.lower() not in SUFFIXES[option]:
        return [f"{option}: {path} must end in {' or '.join(SUFFIXES[option])}"]
    reason = obstacle(path, run_dir)
    if reason is not None:
        return [f"{option}: {path} cannot be written: {reason}"]
    if not os.access(path.parent, os.W_OK):
        return [f"{option}: {path} cannot be written: no permission to write in the folder {path.parent}"]
    for package in PACKAGES.get(option, ()):
        try:
            importlib.import_module(package)
        except ImportError:
            return [f"{option} needs the package {package}: pip install 'strl_jax[play]'"]
    return []


def write(path: Path, make: Callable[[Path], None]) -> None:
    """Calls ``make`` with a temporary file, renames it to ``path`` and prints ``path``.

    If ``make`` fails, ``path`` is unchanged.

    Raises:
        OSError: writing fails.
    """
    with replacement(path) as temporary:
        make(temporary)
    print(path)
