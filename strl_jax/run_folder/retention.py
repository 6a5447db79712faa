"""Which checkpoints stay on disk."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orbax.checkpoint.checkpoint_managers import PreservationPolicy

KEEP: dict[str, int | None] = {"last": 2, "numbered": None, "best": 1}


@dataclass
class KeepUpToNewest(PreservationPolicy):
    """Keeps the ``keep`` highest steps up to the one just saved.

    Higher ones were left by a run that has since gone back to an earlier
    checkpoint: kept, they would be taken for the newest.
    """

    keep: int

    def should_preserve(self, checkpoints: Sequence, *, context: Any) -> list[bool]:
        newest = checkpoints[-1].step  # Orbax appends the one that it has just saved
        kept = sorted(info.step for info in checkpoints if info.step <= newest)[-self.keep :]
        return [info.step in kept for info in checkpoints]
