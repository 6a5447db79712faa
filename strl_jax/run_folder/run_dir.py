"""Run folders: made whole or not at all, and read again for a resume."""

import contextlib
import fcntl
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from strl_jax import config as config_module
from strl_jax.config import Config, ConfigError, yaml_file
from strl_jax.run_folder.atomic import replaced
from strl_jax.run_folder.errors import SHOWN

CONFIG = "config.yaml"
JSON = "config.json"
LOCK = ".lock"
METRICS = "metrics.jsonl"


def name(config: Config, stamp: float | None = None) -> Path:
    """LOG_ROOT/EXPERIMENT/DATE_TIME[_RUN_NAME]."""
    when = time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(stamp))
    suffix = f"_{config.runner.run_name}" if config.runner.run_name else ""
    return Path(config.runner.log_root) / config.runner.experiment_name / (when + suffix)


def units(env) -> dict:
    """The units of an environment's actions and velocities, as legged_gym's ``config.json`` has them.

    An environment may have ``action_scale`` (one number or one for each action) and
    ``lin_vel_scale``; without them they are 1.
    """
    action, lin_vel = (np.asarray(getattr(env, name, 1.0), float) for name in ("action_scale", "lin_vel_scale"))
    return {
        "control": {"action_scale": action.tolist()},
        "normalization": {"obs_scales": {"lin_vel": lin_vel.tolist()}},
    }


def create(path: Path, config: Config, extra: Mapping | None = None) -> Path:
    """Makes the folder ``path`` with the run's config in it, in one rename.

    A path that is taken gets a number behind it. ``extra`` goes into ``config.json`` only.

    Raises:
        ConfigError: the folder cannot be made there.
    """
    path = path.resolve()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".new-", ignore_cleanup_errors=True) as temporary:
            inner = Path(temporary) / "run"
            write_config(inner, config, extra)
            (inner / LOCK).touch()
            return _rename(inner, path)
    except OSError as error:
        raise ConfigError(
            f"run folder {path}: cannot be made: {error.strerror}; runner.log_root or --log-dir names another place"
        ) from None


def _rename(source: Path, target: Path) -> Path:
    for number in range(1, 10_000):
        candidate = target if number == 1 else target.with_name(f"{target.name}_{number}")
        if candidate.exists():
            continue
        try:
            os.rename(source, candidate)
        except FileExistsError:
            continue
        return candidate
    raise FileExistsError(17, "too many runs of this name")


def check(path: Path) -> None:
    """Whether ``path`` is a run folder.

    Raises:
        ConfigError: it is not.
    """
    for needed in (CONFIG, JSON):  # the second one tells a run folder from a folder of configs
        if not (path / needed).is_file():
            raise ConfigError(f"{path} is no run folder: it has no {needed}")


def read_config(path: Path, overrides: Sequence[str] = ()) -> tuple[Config, list[str]]:
    """The config of the run in ``path`` with overrides, and a line for each key that means nothing here.

    Raises:
        ConfigError: no run there, its config was cut short, or bad overrides.
    """
    check(path)
    _check_whole(path)
    return config_module.load(path / CONFIG, overrides)


def _check_whole(path: Path) -> None:
    """Whether ``config.yaml`` has the keys of ``config.json``: what was cut off would be read as defaults."""
    try:
        read = json.loads((path / JSON).read_text())
        complete = {name: read[name] for name in Config.model_fields if name in read}
        known = config_module.to_dict(config_module.from_dict(complete)[0])
    except (OSError, ValueError, TypeError):  # damaged or of another version, it tells nothing; a resume replaces it
        return
    found, lacks = yaml_file.read(path / CONFIG), []
    for name, value in complete.items():
        if found.get(name) is None and (isinstance(value, dict) or name not in found):
            lacks.append(name)
        elif isinstance(value, dict) and isinstance(found[name], dict):
            lacks += [f"{name}.{key}" for key in value if key in known[name] and key not in found[name]]
    if lacks:
        more = f" and {len(lacks) - SHOWN} more" if len(lacks) > SHOWN else ""
        raise ConfigError(
            f"{path / CONFIG}: cut short: it lacks {', '.join(lacks[:SHOWN])}{more}; take what is missing from {JSON}"
        )


def obstacle(file: Path, path: Path) -> str | None:
    """Why a result about the run in ``path`` cannot be written to ``file``, or None."""
    if file.is_dir():
        return "it is a folder"
    if not file.parent.is_dir():
        return f"there is no folder {file.parent}"
    return "it is the run's own" if _is_own(file.resolve(), path.resolve()) else None


def _is_own(file: Path, path: Path) -> bool:
    """Whether a file with that name is or could be one that the run writes."""
    own = (CONFIG, JSON, LOCK, METRICS)
    written = file.parent == path and (file.name in own or file.name.startswith("events.out.tfevents"))
    return written or any(file.is_relative_to(path / folder) for folder in ("checkpoints", "git"))


def write_config(path: Path, config: Config, extra: Mapping | None = None) -> None:
    """Makes the run folder's config that of the run as it goes on; each file is replaced in one rename."""
    path.mkdir(parents=True, exist_ok=True)
    everything = config_module.to_dict(config) | dict(extra or {})
    texts = {CONFIG: config_module.to_yaml(config), JSON: json.dumps(everything, indent=1)}
    for name, text in texts.items():
        if (path / name).is_file() and (path / name).read_bytes() == text.encode():
            continue
        with replaced(path / name) as file:
            file.write(text)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keeps other processes from training in the run folder ``path``; a killed process frees it too.

    Raises:
        ConfigError: another process trains in it, or the folder cannot be written.
    """
    try:
        file = (path / LOCK).open("a")
    except OSError as error:
        raise ConfigError(f"run folder {path}: cannot be written: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"run folder {path}: another process is training in it") from None
        except OSError:  # some network file systems have no locks
            pass
        yield


def inside(path: Path, line: str) -> str:
    """A line about the run folder ``path`` without its name, for where that stands already."""
    return line.removeprefix(f"{path.absolute()}: ").removeprefix(f"{path.absolute()}/")
