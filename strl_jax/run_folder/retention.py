"""Number of checkpoints of each kind that stay on disk."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orbax.checkpoint.checkpoint_managers import PreservationPolicy

KEEP: dict[str, int | None] = {"best": 1, "last": 2, "numbered": None}  # None: all


@dataclass
class KeepUpToNewest(PreservationPolicy):
    """Keeps the iteration just saved and the highest ones below it, ``keep`` in all; deletes the others.

    Iterations above it were saved before the run was resumed from an earlier checkpoint. A reader
    would take them for the newest.
    """

    keep: int

    def should_preserve(self, checkpoints: Sequence, *, context: Any) -> list[bool]:
        """For each checkpoint, in order of saving, whether it stays."""
        newest = checkpoints[-1].step  # Orbax appends the checkpoint that it has just saved
        kept = sorted(info.step for info in checkpoints if info.step <= newest)[-self.keep :]
        return [info.step in kept for info in checkpoints]
