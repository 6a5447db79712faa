"""Reads MJCF files: the package's quadruped, a path, or a file of an installed package."""

from importlib import resources, util
from pathlib import Path

import mujoco


def read(path: str | None) -> mujoco.MjSpec:
    """The model of ``robot.path``.

    Args:
        path: a file; a folder with one model, for example of MuJoCo Menagerie (``scene*.xml`` is ignored);
            ``PACKAGE:FILE`` in an installed package; or None: the package's quadruped.

    Raises:
        ValueError: the path does not exist, the folder has no model or several, or the file is not MJCF. One
            line that begins with the config's key.
    """
    if path is None:
        return mujoco.MjSpec.from_string(resources.files(__package__).joinpath("quadruped.xml").read_text())
    file = _find(path)
    try:
        return mujoco.MjSpec.from_file(str(file))
    except ValueError as error:
        raise ValueError(f"robot.path: {file} is not MJCF: {' '.join(str(error).split())}") from None


def compiled(spec: mujoco.MjSpec, path: str | None) -> mujoco.MjModel:
    """The compiled model of a specification. Raises ``ValueError``, one line, if it does not compile."""
    try:
        return spec.compile()
    except ValueError as error:
        raise ValueError(f"robot.path: {path} does not compile: {' '.join(str(error).split())}") from None


def _find(path: str) -> Path:
    location = Path(path)
    if not _exists(location) and ":" in path:
        location = _in_package(*path.split(":", 1))
        if not _exists(location):
            raise ValueError(f"robot.path: {path}: {location} does not exist")
    if location.is_file():
        return location
    if not path or not location.is_dir():
        raise ValueError(
            f"robot.path: {path or repr(path)} does not exist; it must be a file, a folder or PACKAGE:FILE"
        )
    models = sorted(file for file in location.glob("*.xml") if not file.name.startswith("scene"))
    if len(models) != 1:
        names = ", ".join(file.name for file in models) or "none"
        raise ValueError(f"robot.path: {path}: a folder must have one model; it has {names}; give the path of a file")
    return models[0]


def _exists(location: Path) -> bool:
    try:
        return location.exists()
    except OSError as error:  # for example: the name is too long
        raise ValueError(f"robot.path: {str(location)[:40]!r}...: {error.strerror}") from None


def _in_package(package: str, file: str) -> Path:
    try:
        spec = util.find_spec(package)
    except (ImportError, ValueError):  # a parent package does not exist, or the name is not valid
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"robot.path: {package}:{file}: no package {package} is installed")
    return Path(next(iter(spec.submodule_search_locations))) / file
