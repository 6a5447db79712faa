"""Checkpoints of a run, written in the background and complete or absent (Orbax).

    RUN_DIR/checkpoints/best/ITERATION/      the newest one
    RUN_DIR/checkpoints/last/ITERATION/      the newest two, with everything that a resumed run needs
    RUN_DIR/checkpoints/numbered/ITERATION/  all

Each has one Orbax item for every part of the state (``train``, ``rollout``), which is a
flat dict of arrays by path, and the manifest. Types and static fields are not saved: a
restore takes them from its target.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp

from strl_jax.run_folder import manifest
from strl_jax.run_folder.arrays import checksum, describe, encode, flatten, is_empty
from strl_jax.run_folder.errors import CheckpointError
from strl_jax.run_folder.items import first_line
from strl_jax.run_folder.reader import KINDS, CheckpointReader
from strl_jax.run_folder.retention import KEEP, KeepUpToNewest


class Checkpointer(CheckpointReader):
    """Writes and reads the checkpoints of one run.

    Every process of a multi-process run makes one for the same shared folder and calls
    ``save``, ``restore``, ``wait`` and ``close`` in the same order. Before the first
    ``save``, nothing on disk is created or deleted.
    """

    def __init__(self, run_dir: str | Path):
        super().__init__(run_dir)
        self._managers: dict[str, ocp.CheckpointManager] = {}
        self._current: dict[str, set[int]] = {kind: set() for kind in KINDS}  # saved or restored by this object

    def save(self, kind: str, iteration: int, state: dict[str, Any], meta: dict, *, again: bool = False) -> None:
        """Starts to write a checkpoint; returns when the state is copied, so that the caller may donate it.

        Waits for the previous save. Does nothing if this object has already saved or restored that
        iteration of that kind. A checkpoint of the same iteration from an earlier session is replaced.

        Args:
            kind: ``best``, ``last`` or ``numbered``.
            state: part -> tree of arrays and numbers.
            meta: for JSON; floats are restored exactly.
            again: replace a checkpoint that this object has saved or restored.

        Raises:
            CheckpointError: the kind is unknown, meta or state cannot be written, or
                this save or the previous one failed.
        """
        iteration = int(iteration)
        self._folder(kind)
        self.wait()
        if iteration in self._current[kind] and not again:
            return
        flat = {part: flatten(tree) for part, tree in state.items()}
        leaves = {part: {path: describe(leaf) for path, leaf in tree.items()} for part, tree in flat.items()}
        items = {}
        for part, tree in flat.items():
            arrays = {path: encode(leaf) for path, leaf in tree.items() if not is_empty(leaf)}
            for path, value in arrays.items():
                leaves[part][path]["crc32"] = checksum(value)
            if arrays:
                items[part] = ocp.args.StandardSave(arrays)
        items[manifest.ITEM] = ocp.args.JsonSave(manifest.make_manifest(meta, leaves))
        self._guarded(kind, lambda: self._start(kind, iteration, items))
        self._remember(kind, iteration)

    def restore(self, kind: str, iteration: int, target: dict[str, Any], *, subset: bool = False) -> dict[str, Any]:
        """``CheckpointReader.restore``, after ``wait``."""
        self.wait()
        restored = super().restore(kind, iteration, target, subset=subset)
        self._remember(kind, int(iteration))
        return restored

    def wait(self) -> None:
        """Returns when everything saved is on disk.

        Raises:
            CheckpointError: writing failed; earlier checkpoints are intact, and ``save`` may be called again.
        """
        for kind, manager in list(self._managers.items()):
            self._guarded(kind, manager.wait_until_finished)

    def close(self) -> None:
        """``wait``, then ends the background threads; must be called before the program ends."""
        self.wait()
        while self._managers:
            self._managers.popitem()[1].close()

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
            cleanup_tmp_directories=True,  # of a run that was killed during a save
            save_root_metadata=False,
            lightweight_initialize=True,
            # In the background, a folder that cannot be created shows as a time-out minutes later.
            async_options=ocp.AsyncOptions(create_directories_asynchronously=False),
            preservation_policy=KeepUpToNewest(keep) if keep else None,
        )
        return ocp.CheckpointManager(self._folder(kind), options=options)

    def _guarded(self, kind: str, function: Callable[[], Any]) -> None:
        """Calls a function of a manager; raises its errors as ``CheckpointError``."""
        try:
            function()
        except Exception as error:  # Orbax and TensorStore raise all types, bare Exception included
            self._managers.pop(kind, None)  # it would raise the same error in every later call
            self._current[kind].clear()
            raise CheckpointError(f"{self._folder(kind)}: saving failed: {first_line(error)}") from error

    def _remember(self, kind: str, iteration: int) -> None:
        # In memory, not read from disk: all processes must decide alike, and a shared disk may lag.
        keep = KEEP[kind]
        known = self._current[kind] | {iteration}
        self._current[kind] = known if keep is None else set(sorted(i for i in known if i <= iteration)[-keep:])
