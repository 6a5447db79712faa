"""Writers of scalars: JSON lines (always), TensorBoard, Weights & Biases, or a user's own class."""

import importlib
import inspect
import math
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tensorboardX import SummaryWriter
from tensorboardX.proto.summary_pb2 import Summary

from strl_jax.config.errors import ConfigError, raised
from strl_jax.config.import_path import import_callable
from strl_jax.config.sections import LOGGERS
from strl_jax.run_folder import metrics
from strl_jax.run_folder.run_dir import CONFIG, METRICS

KEY = "runner.logger"


class WriterError(RuntimeError):
    """A writer failed during a run; the message is one line."""


class Writer(Protocol):
    """Receives the scalars of each iteration.

    A user's class is created as ``Class(run_dir=..., config=..., start_iteration=...)``:
    the folder of the run, the resolved config as dicts, and the first iteration that
    will be written. After a resume this iteration can be smaller than the last one that
    was written before. What was written from ``start_iteration`` on is then invalid.
    """

    def write(self, iteration: int, scalars: Mapping[str, float]) -> None:
        """Stores ``scalars`` (name -> value, may be NaN) of ``iteration``."""

    def close(self) -> None:
        """Stores pending values. ``write`` is not called afterwards."""


class JsonlWriter:
    """RUN_DIR/metrics.jsonl: one object per line, ``{"iteration": i, NAME: value, ...}``; null if not finite."""

    def __init__(self, run_dir: Path | str, start_iteration: int, warn: Callable[[str], object] = warnings.warn):
        """Removes the lines of an earlier session from ``start_iteration`` on.

        Args:
            warn: called with a line if the file is damaged, or missing although iterations were logged before.
        """
        self._path = Path(run_dir).absolute() / METRICS
        if self._path.exists():
            for line in metrics.cut(self._path, start_iteration):
                warn(line)
        elif start_iteration > 1:
            warn(f"{self._path} does not exist: there are no metrics of the iterations before {start_iteration}")
        self._file = self._path.open("a", encoding="utf-8")

    def write(self, iteration: int, scalars: Mapping[str, float]) -> None:
        """Appends one line and flushes it; makes a new file if the file was deleted, but not the run folder."""
        if not os.fstat(self._file.fileno()).st_nlink and self._path.with_name(CONFIG).exists():
            self._file.close()
            self._file = self._path.open("a", encoding="utf-8")
        self._file.write(metrics.dump({"iteration": iteration, **scalars}))
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


class TensorBoardWriter:
    """TensorBoard event files in RUN_DIR, without scalars that are not finite."""

    def __init__(self, run_dir: Path | str, start_iteration: int):
        """Starts a new event file, which hides earlier events from ``start_iteration`` on."""
        # The default file name has a resolution of one second: a quick resume would overwrite the previous file.
        suffix = f".{os.getpid()}.{start_iteration}"
        self._writer = SummaryWriter(
            logdir=str(run_dir), purge_step=start_iteration, flush_secs=1, filename_suffix=suffix
        )

    def write(self, iteration: int, scalars: Mapping[str, float]) -> None:
        """Queues one event; a thread writes it within one or two seconds."""
        # add_scalar would replace the space in "Perf/collection time" by an underscore.
        values = [Summary.Value(tag=name, simple_value=value) for name, value in _finite(scalars).items()]
        self._writer.file_writer.add_summary(Summary(value=values), iteration, time.time())

    def close(self) -> None:
        """Writes queued events and closes the file."""
        self._writer.close()


class WandbWriter:
    """A Weights & Biases run. A resume continues it: its id is in RUN_DIR/wandb_id.txt.

    W&B accepts only increasing steps: iterations that it already has are not sent again.
    """

    def __init__(self, run_dir: Path | str, config: Mapping):
        """Starts or continues the run, named like the folder, in ``runner.wandb_project``; files are in RUN_DIR/wandb.

        Raises:
            ConfigError: the package is missing, or W&B refuses (no account, unknown project).
        """
        wandb = _import_wandb()
        id_file = Path(run_dir) / "wandb_id.txt"
        run_id = id_file.read_text().strip() if id_file.exists() else ""
        # Otherwise W&B would wrap stdout and break the progress bar.
        settings = wandb.Settings(console="off")
        try:
            self._run = wandb.init(
                project=config["runner"]["wandb_project"],
                name=Path(run_dir).name,
                config=dict(config),
                dir=str(run_dir),
                id=run_id or None,
                resume="allow",
                settings=settings,
            )
        except wandb.errors.Error as error:
            hint = "`wandb login` signs in, WANDB_MODE=offline records without an account"
            raise ConfigError(f"{KEY}: writer 'wandb' did not start: {error}; {hint}") from None
        id_file.write_text(self._run.id + "\n")
        self._next_step = self._run.step

    def write(self, iteration: int, scalars: Mapping[str, float]) -> None:
        """Sends one step, without scalars that are not finite."""
        if iteration >= self._next_step:
            self._run.log(_finite(scalars), step=iteration, commit=True)

    def close(self) -> None:
        """Sends pending steps and ends the run."""
        self._run.finish()


def check_writers(spec: str | Sequence[str]) -> tuple[str, ...]:
    """Names of the writers in ``spec`` without duplicates. Nothing is written.

    Args:
        spec: one or several of "tensorboard", "wandb", "none" and
            "package.module:Class". An empty list is "none": JSON lines only.

    Raises:
        ConfigError: unknown name, class that cannot be imported or called, missing
            package, or "none" together with another name.
    """
    names = tuple(dict.fromkeys([spec] if isinstance(spec, str) else spec))
    if "none" in names and len(names) > 1:
        raise ConfigError(f"{KEY}: writers are {', '.join(map(repr, names))}; 'none' cannot be combined with another")
    for name in names:
        if name == "wandb":
            _import_wandb()
        elif name not in LOGGERS:
            _import_class(name)
    return tuple(name for name in names if name != "none")


def make_writers(
    spec: str | Sequence[str],
    run_dir: Path | str,
    config: Mapping,
    start_iteration: int,
    warn: Callable[[str], object] = warnings.warn,
) -> list[Writer]:
    """The writers of a run: ``JsonlWriter`` first, then those of ``spec`` in order.

    Args:
        spec: see ``check_writers``.
        run_dir: folder of the run; created if it does not exist.
        config: resolved config as dicts, for W&B and a user's writer.
        start_iteration: first iteration that will be written; rows of an earlier session
            from this iteration on are removed.
        warn: see ``JsonlWriter``.

    Raises:
        ConfigError: as ``check_writers``, before anything is written, or a writer does not start.
    """
    kinds = check_writers(spec)
    Path(run_dir).mkdir(parents=True, exist_ok=True)
    writers: list[Writer] = [JsonlWriter(run_dir, start_iteration, warn)]
    try:
        for kind in kinds:
            writers.append(_build(kind, run_dir, config, start_iteration))
    except BaseException:
        for writer in writers:
            writer.close()
        raise
    return writers


def _build(kind: str, run_dir: Path | str, config: Mapping, start_iteration: int) -> Writer:
    if kind == "tensorboard":
        return TensorBoardWriter(run_dir, start_iteration)
    if kind == "wandb":
        return WandbWriter(run_dir, config)
    build = _import_class(kind)
    try:
        return build(run_dir=Path(run_dir), config=config, start_iteration=start_iteration)
    except Exception as error:
        raise ConfigError(f"{KEY}: writer {kind!r} did not start: {raised(error)}") from error


def _import_wandb():
    try:
        return importlib.import_module("wandb")
    except ImportError as error:
        hint = "pip install 'strl_jax[wandb]'"
        raise ConfigError(f"{KEY}: writer 'wandb' needs the package wandb ({error}): {hint}") from None


def _import_class(path: str) -> Callable[..., Writer]:
    """The class at "package.module:Class"; ``ConfigError`` if it is not a usable writer."""
    found = import_callable(path, f"{KEY}: writer", f"{', '.join(LOGGERS)} or package.module:Class")
    missing = [method for method in ("write", "close") if not callable(getattr(found, method, None))]
    if missing:
        raise ConfigError(f"{KEY}: writer {path!r} has no method {' and no '.join(missing)}")
    try:
        inspect.signature(found).bind(run_dir=None, config=None, start_iteration=None)
    except (TypeError, ValueError) as error:  # ValueError: a built-in class without a signature
        raise ConfigError(f"{KEY}: writer {path!r} must take run_dir, config and start_iteration: {error}") from None
    return found


def _finite(scalars: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in scalars.items() if math.isfinite(value)}
