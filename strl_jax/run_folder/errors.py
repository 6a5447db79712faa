"""Errors of checkpoints, and the lines in their messages."""

from collections.abc import Mapping, Sequence
from pathlib import Path

SHOWN = 5  # entries of a list that a message names


def first_few(lines: Sequence[str], separator: str = "; ") -> str:
    """The first ``SHOWN`` lines in one line, and the number of the others."""
    more = f"{separator}and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
    return separator.join(lines[:SHOWN]) + more


def compare(
    before: Mapping, now: Mapping, absent: str | None = None, text: str = "{} in the checkpoint, {} now"
) -> list[str]:
    """A line for every key whose values differ.

    Args:
        absent: shown for a value that only the other mapping has; None: no line for such keys.
        text: form of a line after its key.
    """
    keys = [key for key in dict.fromkeys([*now, *before]) if absent is not None or (key in before and key in now)]
    pairs = {key: (before.get(key, absent), now.get(key, absent)) for key in keys}
    return [f"{key}: {text.format(*pair)}" for key, pair in pairs.items() if pair[0] != pair[1]]


class CheckpointError(ValueError):
    """A checkpoint cannot be written, read or used. The message is one line."""


class DamagedCheckpointError(CheckpointError):
    """Files of a checkpoint are missing, cut short, unreadable or changed."""


class MissingCheckpointError(CheckpointError):
    """The checkpoint does not exist, or no longer: a training run deletes its older ones."""


class UnfitCheckpointError(CheckpointError):
    """Paths, shapes or dtypes of a checkpoint differ from the target's; ``lines`` has one line for each."""

    def __init__(self, path: Path, lines: Sequence[str]):
        super().__init__(f"{path}: does not fit: {first_few(lines)}")
        self.lines = tuple(lines)
