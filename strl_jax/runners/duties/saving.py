"""Saving: the contents of a checkpoint, and the intervals."""

from collections.abc import Callable, Mapping
from typing import Any

from strl_jax.algorithms.base import Algorithm
from strl_jax.config import Config, to_dict
from strl_jax.run_folder import layout
from strl_jax.run_folder.checkpoints import Checkpointer
from strl_jax.run_folder.claim import FolderClaim
from strl_jax.runners.duties.clock import is_due
from strl_jax.runners.progress import Progress
from strl_jax.types import RolloutState, TrainState


class Saver:
    """Saves checkpoints of one run.

    Args:
        checkpointer: of the run folder.
        claim: on the run folder.
        shards: number of devices.
        references: sources of the data that the algorithm's hooks read.
        callbacks: called with the name of a callback's method and the kind of the checkpoint.
    """

    def __init__(
        self,
        checkpointer: Checkpointer,
        claim: FolderClaim,
        algorithm: Algorithm,
        config: Config,
        shards: int,
        references: Mapping,
        callbacks: Callable[[str, str], None],
    ):
        self.checkpointer, self._claim = checkpointer, claim
        self._algorithm, self._config, self._shards, self._references = algorithm, config, shards, references
        self._callbacks = callbacks

    def save(
        self, kind: str, progress: Progress, train: TrainState, rollout: RolloutState | None = None, infos: Any = None
    ) -> None:
        """Starts to save a checkpoint.

        Args:
            kind: ``last`` (both states, for resuming), ``numbered`` or ``best`` (the train state only).
            infos: the user's values for JSON, with which a checkpoint of this iteration is replaced; None: none.

        Raises:
            ConfigError: another program is training in the run folder.
            CheckpointError: it cannot be written.
        """
        self._claim.take()
        self._claim.check()
        self._callbacks("on_save_checkpoint_start", kind)
        state = {"train": train}
        if kind == "last":
            state["rollout"] = rollout
        meta = {
            "progress": progress.state(),
            "config": to_dict(self._config),
            "layout": layout.layout(self._algorithm),
            "versions": layout.versions(),
            "shards": self._shards,
            "data": self._references,
        }
        if infos is not None:
            meta["infos"] = infos
        self.checkpointer.save(kind, progress.iteration, state, meta, again=infos is not None)
        self._callbacks("on_save_checkpoint_end", kind)


class IntervalSaving:
    """Saves ``numbered`` and ``last`` checkpoints at their intervals and after the training.

    ``numbered`` is first: each save waits for the previous one, so after a kill between the two the run
    continues from an earlier ``last`` and saves both again. In the other order, the resumed run would start
    after the iteration of the missing ``numbered`` checkpoint.

    Args:
        saver: None saves nothing.
        last_interval, numbered_interval: iterations between two saves; 0: only after the training.
    """

    def __init__(self, saver: Saver | None, progress: Progress, last_interval: int, numbered_interval: int):
        self._saver, self._progress = saver, progress
        self._intervals = {"numbered": numbered_interval, "last": last_interval}

    def is_due(self, iteration: int) -> bool:
        """Whether a checkpoint is saved after this iteration."""
        return self._saver is not None and is_due(iteration, *self._intervals.values())

    def save(self, iteration: int, train: TrainState, rollout: RolloutState) -> None:
        """Saves the checkpoints that are due after this iteration."""
        for kind, interval in self._intervals.items():
            if is_due(iteration, interval):
                self._saver.save(kind, self._progress, train, rollout)

    def finish(self, train: TrainState, rollout: RolloutState) -> None:
        """Saves both checkpoints and waits until they are written.

        Raises:
            CheckpointError: one cannot be written.
        """
        if self._saver is None:
            return
        with self._progress.report.section("save"):
            for kind in self._intervals:
                self._saver.save(kind, self._progress, train, rollout)
            self._saver.checkpointer.wait()
