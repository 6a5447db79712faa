"""Reading checkpoints of a run: which exist, which one to take, and its content."""

import contextlib
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import orbax.checkpoint as ocp

from strl_jax.run_folder.arrays import flatten, from_description, is_empty, template
from strl_jax.run_folder.errors import CheckpointError, DamagedCheckpointError, MissingCheckpointError
from strl_jax.run_folder.items import check_fits, check_readable, check_values, read_items, rebuild
from strl_jax.run_folder.manifest import read_manifest
from strl_jax.run_folder.retention import KEEP

KINDS = tuple(KEEP)  # in order of preference
T = TypeVar("T")


class CheckpointReader:
    """Reads the checkpoints of one run. It changes nothing on disk: the run may be training.

    Args:
        run_dir: run folder; it need not exist.
    """

    def __init__(self, run_dir: str | Path):
        self.run_dir = Path(run_dir).absolute()
        self.root = self.run_dir / "checkpoints"
        # Orbax logs each step and the errors of every thread; those that matter are raised.
        logging.getLogger("absl").setLevel(logging.CRITICAL)

    def is_fresh(self) -> bool:
        """Whether there is no checkpoint folder at all, complete or damaged.

        Raises:
            CheckpointError: there is a file where a folder of checkpoints must be.
        """
        for folder in (self.root, *(self.root / kind for kind in KINDS)):
            if os.path.lexists(folder) and not folder.is_dir():
                raise CheckpointError(f"{folder}: damaged: it is not a folder")
        return not any(self._on_disk(kind) for kind in KINDS)

    def iterations(self, kind: str) -> list[int]:
        """Iterations of the complete checkpoints of a kind, ascending."""
        complete = []
        for iteration in self._on_disk(kind):
            with contextlib.suppress(CheckpointError):
                self._manifest(kind, iteration)
                complete.append(iteration)
        return complete

    def latest(self, kind: str = "last") -> int | None:
        """Iteration of the newest complete checkpoint of a kind, or None."""
        return max(self.iterations(kind), default=None)

    def candidates(self, kinds: Sequence[str] = KINDS, iteration: int | None = None) -> list[tuple[str, int]]:
        """Kind and iteration of the checkpoints to try, in order of preference; some may be damaged.

        Args:
            kinds: in order of preference; within a kind, the newest is first.
            iteration: only this one; None: any.

        Raises:
            MissingCheckpointError: there is no such checkpoint.
            CheckpointError: there is no such folder, or a kind is unknown.
        """
        pairs = [(kind, i) for kind in kinds for i in reversed(self._on_disk(kind)) if iteration in (None, i)]
        if pairs:
            return pairs
        if not self.run_dir.is_dir():
            raise CheckpointError(f"{self.run_dir}: there is no such folder")
        wanted = f"{kinds[0]} checkpoint" if len(kinds) == 1 else "checkpoint"
        wanted += "" if iteration is None else f" of iteration {iteration}"
        numbers = {kind: ", ".join(map(str, self._on_disk(kind))) for kind in KINDS}
        existing = "; ".join(f"{kind} {text}" for kind, text in numbers.items() if text)
        raise MissingCheckpointError(f"{self.run_dir}: no {wanted}; existing checkpoints: {existing or 'none'}")

    def read_first_intact(
        self, candidates: Sequence[tuple[str, int]], read: Callable[[str, int], T]
    ) -> tuple[str, int, T]:
        """Reads the first intact checkpoint; warns of every damaged one before it.

        Args:
            candidates: result of ``candidates``.
            read: function of kind and iteration that reads a checkpoint.

        Returns:
            Kind, iteration, and the result of ``read``.

        Raises:
            DamagedCheckpointError: all are damaged; the message says what is wrong with the last one.
            MissingCheckpointError: the last one was deleted after ``candidates`` was called.
        """
        *others, last = candidates
        for kind, iteration in others:
            try:
                return kind, iteration, read(kind, iteration)
            except DamagedCheckpointError as error:
                warnings.warn(f"{error}; skipped", stacklevel=2)
            except MissingCheckpointError:
                pass
        try:
            return *last, read(*last)
        except DamagedCheckpointError as error:
            if not others:
                raise
            raise DamagedCheckpointError(
                f"{self.run_dir}: none of the {len(candidates)} checkpoints is readable; "
                f"the last: {str(error).removeprefix(f'{self.run_dir}/')}"
            ) from error

    @contextlib.contextmanager
    def naming_way_out(self, kind: str) -> Iterator[None]:
        """If ``kind`` is ``last``, and it is missing or damaged in the block: the error names a kind that is not."""
        try:
            yield
        except (MissingCheckpointError, DamagedCheckpointError) as error:
            others = [other for other in KINDS if other != "last" and self.latest(other) is not None]
            if kind != "last" or not others:
                raise
            way_out = f"--config FILE runner.init_from={self.run_dir} starts a new run with the {others[0]} weights"
            raise type(error)(f"{error}; {way_out}") from error

    def read_meta(self, kind: str, iteration: int) -> dict:
        """The ``meta`` of a checkpoint; raises ``MissingCheckpointError`` or ``DamagedCheckpointError``."""
        return self._manifest(kind, iteration)["meta"]

    def restore(self, kind: str, iteration: int, target: dict[str, Any], *, subset: bool = False) -> dict[str, Any]:
        """Reads some or all parts of a checkpoint.

        Args:
            target: part -> tree with the wanted types and static fields; leaves are
                ``jax.ShapeDtypeStruct`` or arrays. The arrays of the result have the target's shardings
                (without one: the first device). NumPy arrays and Python numbers stay what they are.
            subset: the saved part may have leaves that the target does not have.

        Returns:
            The same parts, with new arrays.

        Raises:
            MissingCheckpointError: there is no such checkpoint.
            DamagedCheckpointError: files are missing, cut short, unreadable or changed.
            UnfitCheckpointError: paths, shapes or dtypes differ from the target's.
            CheckpointError: the checkpoint does not have one of the parts.
        """
        path = self._folder(kind, iteration)
        saved = self._manifest(kind, iteration)["leaves"]
        wanted = {part: flatten(tree) for part, tree in target.items()}
        to_read = wanted
        if subset:  # the other leaves are read too and dropped: Orbax restores whole trees
            to_read = {
                part: {name: from_description(leaf) for name, leaf in saved.get(part, {}).items()} | tree
                for part, tree in wanted.items()
            }
        check_fits(path, saved, to_read)
        items = {}
        for part, tree in to_read.items():
            arrays = {name: template(leaf) for name, leaf in tree.items() if not is_empty(leaf)}
            if arrays:
                check_readable(path / part)
                items[part] = ocp.args.StandardRestore(arrays)
        restored = read_items(path, items) if items else {}
        check_values(path, saved, restored)
        return {part: rebuild(tree, wanted[part], restored.get(part), saved[part]) for part, tree in target.items()}

    def _on_disk(self, kind: str) -> list[int]:
        """Iterations of all checkpoint folders of a kind, damaged or not, ascending."""
        return sorted(int(path.name) for path in self._folder(kind).glob("*") if path.name.isdecimal())

    def _folder(self, kind: str, iteration: int | None = None) -> Path:
        """Folder of a checkpoint, or of all checkpoints of a kind."""
        if kind not in KINDS:
            raise CheckpointError(f"unknown kind of checkpoint {kind!r}; known: {', '.join(KINDS)}")
        return self.root / kind / ("" if iteration is None else str(iteration))

    def _manifest(self, kind: str, iteration: int) -> dict:
        path = self._folder(kind, iteration)
        if not os.path.lexists(path):
            existing = ", ".join(map(str, self._on_disk(kind))) or "none"
            raise MissingCheckpointError(f"{path}: no such checkpoint; there are: {existing}")
        return read_manifest(path)
