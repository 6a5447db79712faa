"""MJCF files: our own quadruped, one by its path, or one of an installed package."""

from importlib import resources, util
from pathlib import Path

import mujoco


def read(path: str | None) -> mujoco.MjSpec:
    """The model of ``robot.path``.

    Args:
        path: a file; a folder with one model in it, such as one of MuJoCo Menagerie (scenes do not count);
            or ``PACKAGE:FILE`` in an installed package; None: our own quadruped.

    Raises:
        ValueError: one line that begins with the config's key: nothing there, several models, or not MJCF.
    """
    if path is None:
        return mujoco.MjSpec.from_string(resources.files(__package__).joinpath("quadruped.xml").read_text())
    file = _find(path)
    try:
        return mujoco.MjSpec.from_file(str(file))
    except ValueError as error:
        raise ValueError(f"robot.path: {file} is not MJCF: {' '.join(str(error).split())}") from None


def compiled(spec: mujoco.MjSpec, path: str | None) -> mujoco.MjModel:
    """The model of a specification. Raises ``ValueError``, one line, where it has faults."""
    try:
        return spec.compile()
    except ValueError as error:
        raise ValueError(f"robot.path: {path} does not compile: {' '.join(str(error).split())}") from None


def _find(path: str) -> Path:
    place = Path(path)
    if not _exists(place) and ":" in path:
        place = _in_package(*path.split(":", 1))
        if not _exists(place):
            raise ValueError(f"robot.path: {path}: there is no {place}")
    if place.is_file():
        return place
    if not path or not place.is_dir():
        raise ValueError(f"robot.path: {path or repr(path)}: no such file or folder, and no PACKAGE:FILE")
    models = sorted(file for file in place.glob("*.xml") if not file.name.startswith("scene"))
    if len(models) != 1:
        found = ", ".join(file.name for file in models) or "none"
        raise ValueError(f"robot.path: {path}: a folder must hold one model; it has {found}; name the file")
    return models[0]


def _exists(place: Path) -> bool:
    try:
        return place.exists()
    except OSError as error:  # such as a name that is too long
        raise ValueError(f"robot.path: it begins with {str(place)[:40]!r}: {error.strerror}") from None


def _in_package(package: str, file: str) -> Path:
    try:
        found = util.find_spec(package)
    except (ImportError, ValueError):  # a part of the name is lacking, or the name is none
        found = None
    if found is None or not found.submodule_search_locations:
        raise ValueError(f"robot.path: {package}:{file}: no package {package} is installed")
    return Path(next(iter(found.submodule_search_locations))) / file
