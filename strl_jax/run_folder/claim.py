"""The right to write into a run folder: one program at a time, and no second run."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from strl_jax.config import Config, ConfigError
from strl_jax.run_folder import run_dir
from strl_jax.run_folder.errors import CheckpointError
from strl_jax.run_folder.reader import CheckpointReader


class FolderClaim:
    """The claim of one runner on a run folder. Reading needs none.

    Args:
        reader: of the run folder, which need not exist.
        locks: False on all processes of a run except one, which locks and writes for all.

    Attributes:
        owns: the folder contains no other run: it has no ``last`` checkpoint, or that was loaded.
    """

    def __init__(self, reader: CheckpointReader, locks: bool):
        self._reader, self._locks, self._lock = reader, locks, ExitStack()
        self._started = False
        self._folder: tuple[int, int] | None = None  # device and inode, after ``take``
        self.look()
        self.owns = self._newest is None

    def look(self) -> None:
        """Must be called before the run in the folder is read."""
        self._newest = self._reader.latest("last")

    def continues(self, loaded: bool) -> None:
        """Notes whether the run folder may be continued: its last checkpoint was loaded, or it has none."""
        self.owns = loaded or self._reader.latest("last") is None

    def start(self, config: Config, extra: Mapping) -> None:
        """``take`` for a training, and writes the config into the folder, see ``run_dir.write_config``.

        Raises:
            ConfigError: as ``take``, or the folder contains another run.
        """
        path = self._reader.run_dir
        if not self.owns:
            raise ConfigError(
                f"{path} contains a run at iteration {self._reader.latest('last')}: "
                "load its last checkpoint to continue, or use another folder"
            )
        self.take()
        if self._locks:
            run_dir.write_config(path, config, extra)
            self._started = True

    def take(self) -> None:
        """Creates and locks the folder, until ``release`` or the end of the process.

        Raises:
            ConfigError: another program is training in the folder, or has since the last ``look``; or
                the folder cannot be written.
        """
        path = self._reader.run_dir
        if self._folder is not None or not self._locks:
            return
        _create(path)
        self._lock.enter_context(run_dir.locked(path))
        newest = self._reader.latest("last")
        if newest != self._newest:
            self._lock.close()
            raise ConfigError(
                f"run folder {path}: another program has trained in it up to iteration {newest} since it was opened; "
                "load it to continue, or use another folder"
            )
        self._folder = _identity(path)

    def check(self) -> None:
        """Checks before a write that the folder is still the one that was locked.

        Raises:
            CheckpointError: it was deleted or moved. What is written would make an incomplete folder.
        """
        path = self._reader.run_dir
        if self._folder is None:
            return
        if _identity(path) != self._folder or (self._started and not (path / run_dir.CONFIG).is_file()):
            raise CheckpointError(f"run folder {path}: it was deleted or moved; nothing can be saved")

    def release(self) -> None:
        """Unlocks the folder; ``take`` can lock it again, unless another program has trained in it."""
        if self._folder is not None:
            self.look()
        self._lock.close()
        self._folder = None


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of a folder, None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _create(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"run folder {path}: cannot be created: {error.strerror}") from None
