"""What can be wrong with a checkpoint."""

from collections.abc import Sequence
from pathlib import Path

SHOWN = 5  # differing leaves that an error names


def first_few(lines: Sequence[str]) -> str:
    """Lines as one, of many the first ``SHOWN`` and how many more there are."""
    more = f"; and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
    return "; ".join(lines[:SHOWN]) + more


class CheckpointError(ValueError):
    """A checkpoint that cannot be written, read or used, in one clear line."""


class DamagedCheckpointError(CheckpointError):
    """A checkpoint with missing, short, unreadable or changed files."""


class MissingCheckpointError(CheckpointError):
    """A checkpoint that is not there, or no more: a training that goes on deletes its older ones."""


class UnfitCheckpointError(CheckpointError):
    """A checkpoint whose leaves are others than those wanted; ``lines`` tell each."""

    def __init__(self, path: Path, lines: Sequence[str]):
        super().__init__(f"{path}: does not fit: {first_few(lines)}")
        self.lines = tuple(lines)
