"""Checkpoints of a run: written in the background, whole or not at all (Orbax).

    RUN_DIR/checkpoints/last/ITERATION/      the newest two, everything needed to go on
    RUN_DIR/checkpoints/numbered/ITERATION/  all
    RUN_DIR/checkpoints/best/ITERATION/      the newest one

Each holds one Orbax item for every part of the state (``train``, ``rollout``),
a flat dict of arrays by path, and ``record``: the caller's meta and the shape,
dtype, PRNG implementation and checksum of every leaf. Types and static fields are not
saved; they come from the target of a restore.
"""

import logging
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import orbax.checkpoint as ocp

from strl_jax.run_folder import manifest
from strl_jax.run_folder.arrays import abstract, checksum, describe, described, encode, flatten, is_empty
from strl_jax.run_folder.errors import CheckpointError, DamagedCheckpointError, MissingCheckpointError
from strl_jax.run_folder.items import (
    RECORD,
    check_readable,
    check_same,
    check_values,
    first_line,
    read_items,
    read_json,
    rebuild,
)
from strl_jax.run_folder.retention import KEEP, KeepUpToNewest

KINDS = ("best", "last", "numbered")  # in the order in which they are taken
T = TypeVar("T")


class Checkpointer:
    """Writes and reads the checkpoints of one run.

    Every process of a multi-process run makes one for the same shared folder and
    calls ``save``, ``restore``, ``wait`` and ``close`` in the same order. Nothing
    is created or cleaned up before the first ``save``: reading the folder of a
    running training is safe.
    """

    def __init__(self, run_dir: Path):
        """Args: run_dir: folder of the run; need not exist yet."""
        self.run_dir = Path(run_dir).absolute()
        self._root = self.run_dir / "checkpoints"
        self._managers: dict[str, ocp.CheckpointManager] = {}
        self._current: dict[str, set[int]] = {kind: set() for kind in KEEP}  # written or read by this object
        # Orbax reports each of its steps there, and each error in every thread; what matters of them is raised.
        logging.getLogger("absl").setLevel(logging.CRITICAL)

    def save(self, kind: str, iteration: int, state: dict[str, Any], meta: dict) -> None:
        """Starts writing a checkpoint; returns once the state is copied, so that it may be donated.

        Does nothing if this object has already written or restored that iteration
        of that kind; one left there by somebody else is replaced. Waits for the
        save before, of any kind, to end.

        Args:
            kind: ``last``, ``numbered`` or ``best``.
            state: part -> tree of arrays and numbers; parts can be restored alone.
            meta: JSON-able; floats come back bit for bit.

        Raises:
            CheckpointError: unknown kind, meta or state that cannot be written, or
                the disk refused this save or the one before.
        """
        iteration = int(iteration)
        self._check_kind(kind)
        self.wait()
        if iteration in self._current[kind]:
            return
        flat = {part: flatten(tree) for part, tree in state.items()}
        leaves = {part: {k: describe(v) for k, v in tree.items()} for part, tree in flat.items()}
        items = {}
        for part, tree in flat.items():
            arrays = {path: encode(leaf) for path, leaf in tree.items() if not is_empty(leaf)}
            for path, value in arrays.items():
                leaves[part][path]["crc32"] = checksum(value)
            if arrays:
                items[part] = ocp.args.StandardSave(arrays)
        items[RECORD] = ocp.args.JsonSave(manifest.make(meta, leaves))
        self._guarded(kind, lambda: self._start(kind, iteration, items))
        self._remember(kind, iteration)

    def wait(self) -> None:
        """Returns when everything saved is on disk.

        Raises:
            CheckpointError: writing failed; what was there before stays, and the
                next ``save`` starts afresh.
        """
        for kind, manager in list(self._managers.items()):
            self._guarded(kind, manager.wait_until_finished)

    def close(self) -> None:
        """Waits, then ends the background threads. Call it before the program ends."""
        self.wait()
        while self._managers:
            self._managers.popitem()[1].close()

    def is_fresh(self) -> bool:
        """Whether nothing was ever saved here: no folder of any iteration and kind, damaged ones included.

        Raises:
            CheckpointError: a file stands where a folder belongs.
        """
        for folder in (self._root, *(self._root / kind for kind in KEEP)):
            if os.path.lexists(folder) and not folder.is_dir():
                raise CheckpointError(f"{folder}: damaged: it is no folder")
        return not any(self.found(kind) for kind in KEEP)

    def iterations(self, kind: str) -> list[int]:
        """Iterations with a complete checkpoint, ascending."""
        return [iteration for iteration in self.found(kind) if self._is_complete(kind, iteration)]

    def found(self, kind: str) -> list[int]:
        """Iterations with a folder, damaged ones too, ascending."""
        self._check_kind(kind)
        directory = self._root / kind
        return sorted(int(path.name) for path in directory.glob("*") if path.name.isdecimal())

    def latest(self, kind: str = "last") -> int | None:
        """The newest complete iteration, or None."""
        return max(self.iterations(kind), default=None)

    def read_meta(self, kind: str, iteration: int) -> dict:
        """The ``meta`` of a checkpoint.

        Raises:
            CheckpointError: there is no such checkpoint, or it is damaged.
        """
        return self._record(kind, iteration)["meta"]

    def restore(self, kind: str, iteration: int, target: dict[str, Any], *, subset: bool = False) -> dict[str, Any]:
        """Reads a checkpoint, or some parts of it.

        Args:
            target: part -> tree with the types and static fields wanted; leaves are
                ``jax.ShapeDtypeStruct`` or arrays. Arrays come back with the
                target's shardings (without one: on the first device), NumPy arrays
                and Python numbers as such.

            subset: a saved part may hold leaves that the target does not want.

        Returns:
            The same parts, with new arrays.

        Raises:
            DamagedCheckpointError: files are missing, short, unreadable or not what was written.
            UnfitCheckpointError: its leaves differ from the target's; names the first few with both shapes.
            CheckpointError: there is no such checkpoint.
        """
        self.wait()
        path = self._path(kind, iteration)
        saved = self._record(kind, iteration)["leaves"]
        wanted = {part: flatten(tree) for part, tree in target.items()}
        read = wanted
        if subset:  # read along and dropped: Orbax restores whole trees
            rest = {part: {name: described(about) for name, about in saved.get(part, {}).items()} for part in wanted}
            read = {part: rest[part] | tree for part, tree in wanted.items()}
        check_same(path, saved, read)
        items = {}
        for part, tree in read.items():
            arrays = {name: abstract(leaf) for name, leaf in tree.items() if not is_empty(leaf)}
            if arrays:
                check_readable(path / part)
                items[part] = ocp.args.StandardRestore(arrays)
        restored = read_items(path, items) if items else {}
        check_values(path, saved, restored)
        self._remember(kind, int(iteration))
        return {part: rebuild(tree, wanted[part], restored.get(part), saved[part]) for part, tree in target.items()}

    def choose(self, kinds: Sequence[str] = KINDS, iteration: int | None = None) -> list[tuple[str, int]]:
        """Kind and iteration of every checkpoint that is meant, damaged ones too; the first is to be taken.

        Args:
            kinds: in order of preference.
            iteration: None: any, the newest of each kind first.

        Raises:
            CheckpointError: there is none, or an unknown kind.
        """
        chosen = [(k, number) for k in kinds for number in reversed(self.found(k)) if iteration in (None, number)]
        if chosen:
            return chosen
        if not self.run_dir.is_dir():
            raise CheckpointError(f"{self.run_dir}: there is no such folder")
        what = f"{kinds[0]} checkpoint" if len(kinds) == 1 else "checkpoint"
        of = "" if iteration is None else f" of iteration {iteration}"
        there = {kind: ", ".join(map(str, self.found(kind))) for kind in KINDS}
        has = "; ".join(f"{kind} {numbers}" for kind, numbers in there.items() if numbers)
        raise CheckpointError(f"{self.run_dir}: no {what}{of}; there is {has or 'none at all'}")

    def read_first(self, chosen: Sequence[tuple[str, int]], read: Callable[[str, int], T]) -> tuple[str, int, T]:
        """The first of the checkpoints that ``choose`` gave that is whole; warns of each damaged one before it.

        Args:
            read: reads the checkpoint of a kind and an iteration.

        Returns:
            Kind, iteration, and what ``read`` gives.

        Raises:
            DamagedCheckpointError: all are damaged; says so, and what is wrong with the last of them.
            MissingCheckpointError: the last of them has been deleted meanwhile.
        """
        for number, (kind, iteration) in enumerate(chosen, start=1):
            try:
                return kind, iteration, read(kind, iteration)
            except DamagedCheckpointError as error:
                if len(chosen) == 1:
                    raise
                if number == len(chosen):
                    last = str(error).removeprefix(f"{self.run_dir}/")
                    raise DamagedCheckpointError(
                        f"{self.run_dir}: none of the {number} checkpoints is readable; the last: {last}"
                    ) from error
                warnings.warn(f"{error}; passed over", stacklevel=2)
            except MissingCheckpointError:
                if number == len(chosen):
                    raise
        raise ValueError("no checkpoint is chosen")

    def _start(self, kind: str, iteration: int, items: Mapping) -> None:
        if kind not in self._managers:
            self._managers[kind] = self._manager(kind)
        manager = self._managers[kind]
        if iteration in manager.all_steps():
            manager.delete(iteration)
        manager.save(iteration, args=ocp.args.Composite(**items), force=True)

    def _manager(self, kind: str) -> ocp.CheckpointManager:
        keep = KEEP[kind]
        options = ocp.CheckpointManagerOptions(
            cleanup_tmp_directories=True,  # left by a run that was killed while it saved
            save_root_metadata=False,
            lightweight_initialize=True,
            # Made in the background, a folder that cannot be made shows as a time-out minutes later.
            async_options=ocp.AsyncOptions(create_directories_asynchronously=False),
            preservation_policy=KeepUpToNewest(keep) if keep else None,
        )
        return ocp.CheckpointManager(self._root / kind, options=options)

    def _guarded(self, kind: str, function: Callable[[], Any]) -> None:
        try:
            function()
        except Exception as error:  # Orbax and TensorStore raise anything, bare Exception included
            self._managers.pop(kind, None)  # it would raise the same error for ever
            self._current[kind].clear()
            raise CheckpointError(f"{self._root / kind}: saving failed: {first_line(error)}") from error

    def _remember(self, kind: str, iteration: int) -> None:
        # Kept in memory, not looked up: processes must decide alike, and a shared disk may lag.
        known = sorted(i for i in self._current[kind] | {iteration} if KEEP[kind] is None or i <= iteration)
        self._current[kind] = set(known[-KEEP[kind] :] if KEEP[kind] else known)

    def _check_kind(self, kind: str) -> None:
        if kind not in KEEP:
            raise CheckpointError(f"unknown kind of checkpoint {kind!r}; known: {', '.join(KEEP)}")

    def _path(self, kind: str, iteration: int) -> Path:
        self._check_kind(kind)
        return self._root / kind / str(iteration)

    def _is_complete(self, kind: str, iteration: int) -> bool:
        try:
            self._record(kind, iteration)
        except CheckpointError:
            return False
        return True

    def _record(self, kind: str, iteration: int) -> dict:
        path = self._path(kind, iteration)
        if not os.path.lexists(path):
            has = ", ".join(map(str, self.found(kind))) or "none"
            raise MissingCheckpointError(f"{path}: no such checkpoint; there are: {has}")
        if not path.is_dir():
            raise DamagedCheckpointError(f"{path}: damaged: it is no folder")
        record = read_json(path, f"{RECORD}/metadata")
        try:
            manifest.check(record)
        except ValueError as error:
            raise DamagedCheckpointError(f"{path}: damaged: {RECORD}/metadata: {error}") from error
        parts = [part for part, leaves in record["leaves"].items() if not all(0 in v["shape"] for v in leaves.values())]
        for needed in ["commit_success.txt", *(f"{part}/manifest.ocdbt" for part in parts)]:
            if not (path / needed).is_file():
                raise DamagedCheckpointError(f"{path}: damaged: {needed} is missing")
        return record
