"""Run folders: names, creation, the config in them, and the lock."""

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
from strl_jax.run_folder.errors import first_few

CONFIG = "config.yaml"
JSON = "config.json"
LOCK = ".lock"
METRICS = "metrics.jsonl"


def name(config: Config) -> Path:
    """LOG_ROOT/EXPERIMENT/DATE_TIME[_RUN_NAME], with the current local time."""
    when = time.strftime("%Y-%m-%d_%H-%M-%S")
    suffix = f"_{config.runner.run_name}" if config.runner.run_name else ""
    return Path(config.runner.log_root) / config.runner.experiment_name / (when + suffix)


def units(env) -> dict:
    """Units of an environment's actions and velocities, with the keys of legged_gym's ``config.json``.

    An environment may have ``action_scale`` (one number, or one for each action) and
    ``lin_vel_scale``; the default of both is 1.
    """
    action, lin_vel = (np.asarray(getattr(env, name, 1.0), float) for name in ("action_scale", "lin_vel_scale"))
    return {
        "control": {"action_scale": action.tolist()},
        "normalization": {"obs_scales": {"lin_vel": lin_vel.tolist()}},
    }


def create(path: Path, config: Config, extra: Mapping | None = None) -> Path:
    """Creates a run folder with the run's config in one rename, so that no incomplete folder exists.

    Args:
        path: folder to create; if it exists, the new name ends in ``_2``, ``_3`` and so on.
        extra: more sections for ``config.json``, such as ``units``.

    Returns:
        The folder.

    Raises:
        ConfigError: the folder cannot be created.
    """
    path = path.resolve()
    advice = "; runner.log_root or --log-dir can name another folder"
    with prepared(path, f"run folder {path}", config, extra, advice) as folder:
        (folder / LOCK).touch()
        return _rename(folder, path)


@contextlib.contextmanager
def prepared(path: Path, title: str, config: Config, extra: Mapping | None = None, advice: str = "") -> Iterator[Path]:
    """A temporary folder next to ``path`` with the run's config, which the block renames to ``path``.

    Args:
        title: beginning of the error line.
        extra: see ``create``.
        advice: end of the error line.

    Raises:
        ConfigError: the folder cannot be created, written or renamed.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".new-", ignore_cleanup_errors=True) as temporary:
            folder = Path(temporary) / "run"
            write_config(folder, config, extra)
            yield folder
    except OSError as error:
        raise ConfigError(f"{title}: cannot be created: {error.strerror}{advice}") from None


def _rename(source: Path, target: Path) -> Path:
    for number in range(1, 10_000):
        candidate = target if number == 1 else target.with_name(f"{target.name}_{number}")
        with contextlib.suppress(FileExistsError):
            if not candidate.exists():
                return source.rename(candidate)
    raise FileExistsError(17, "too many runs of this name")


def check(path: Path) -> None:
    """Raises ``ConfigError`` if ``path`` is not a run folder."""
    for name in (CONFIG, JSON):  # a folder of configs may have the first, but not the second
        if not (path / name).is_file():
            raise ConfigError(f"{path} is not a run folder: it has no {name}")


def read_json(path: Path) -> dict:
    """Content of ``config.json`` in a run folder; raises ``ConfigError`` if it cannot be read."""
    file = path / JSON
    if not path.is_dir():
        raise ConfigError(f"{path}: there is no such folder")
    try:
        content = json.loads(file.read_text())
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{file}: not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{file}: it must hold a JSON object")
    return content


def read_config(path: Path, overrides: Sequence[str] = ()) -> tuple[Config, list[str]]:
    """The config of a run with overrides, and a warning for each key that has no effect.

    Raises:
        ConfigError: ``path`` is not a run folder, its config is incomplete or invalid, or an override is invalid.
    """
    check(path)
    _check_complete(path)
    return config_module.load(path / CONFIG, overrides)


def _check_complete(path: Path) -> None:
    """Checks that ``config.yaml`` has the keys of ``config.json``; defaults would replace missing ones."""
    try:
        content = read_json(path)
        written = {name: content[name] for name in Config.model_fields if name in content}
        known = config_module.to_dict(config_module.from_dict(written)[0])
    except (ValueError, TypeError):  # damaged or of another version: no comparison is possible
        return
    read, missing = yaml_file.read(path / CONFIG), []
    for name, value in written.items():
        if read.get(name) is None and (isinstance(value, dict) or name not in read):
            missing.append(name)
        elif isinstance(value, dict) and isinstance(read[name], dict):
            missing += [f"{name}.{key}" for key in value if key in known[name] and key not in read[name]]
    if missing:
        raise ConfigError(f"{path / CONFIG}: incomplete: copy {first_few(missing, ', ')} from {JSON}")


def obstacle(file: Path, path: Path) -> str | None:
    """Reason why a result about the run in ``path`` cannot be written to ``file``, or None."""
    if file.is_dir():
        return "it is a folder"
    if not file.parent.is_dir():
        return f"there is no folder {file.parent}"
    file, path = file.resolve(), path.resolve()
    of_run = file.name in (CONFIG, JSON, LOCK, METRICS) or file.name.startswith("events.out.tfevents")
    if (file.parent == path and of_run) or any(file.is_relative_to(path / name) for name in ("checkpoints", "git")):
        return "it is a file of the run"
    return None


def write_config(path: Path, config: Config, extra: Mapping | None = None) -> None:
    """Writes ``config.yaml`` and ``config.json`` (see ``create``), each atomically and only if its text changes."""
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
    """Locks a run folder against other training processes, until the block or the process ends.

    The file ``.lock`` is locked, and the folder itself, for the case that somebody deletes the file.

    Raises:
        ConfigError: another process is training in it, or the folder cannot be written.
    """
    with contextlib.ExitStack() as files:
        try:
            lock = files.enter_context((path / LOCK).open("a")).fileno()
            folder = os.open(path, os.O_RDONLY)
            files.callback(os.close, folder)
        except OSError as error:
            raise ConfigError(f"run folder {path}: cannot be written: {error.strerror}") from None
        for descriptor in (lock, folder):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(f"run folder {path}: another process is training in it") from None
            except OSError:  # some network file systems do not support locks
                pass
        yield
