"""Whether a run without checkpoints was stopped before its first one, or has lost them since."""

import json
from pathlib import Path

from strl_jax.runners import run_dir, writers
from strl_jax.runners.checkpoint import CheckpointError


def check_none_lost(path: Path) -> None:
    """Whether the run in ``path``, which has no checkpoint, may start from its beginning and write its metrics anew.

    Raises:
        CheckpointError: it had one.
    """
    reached = passed(path)
    if reached is not None:
        raise CheckpointError(
            f"{path / 'checkpoints'}: no checkpoint is left of the run, which got to iteration {reached} "
            f"(metrics.jsonl) and had saved; nothing was changed; --config {path / run_dir.CONFIG} starts a new run"
        )


def passed(path: Path) -> int | None:
    """The last iteration in the metrics of the run in ``path``, if a checkpoint of it was complete by then.

    A save goes on behind the training, and the next one waits for it: an iteration after the second
    save that was due proves the first. A best one proves nothing, as no score may have been a number.

    Returns:
        None: the run may never have had a checkpoint.
    """
    try:  # the intervals that it was written with, not what an override or a hand has made of them since
        runner = json.loads((path / run_dir.JSON).read_text())["runner"]
        due = [times * runner[name] for name in ("last_interval", "save_interval") for times in (1, 2)]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    reached = writers.last_iteration(path)
    return reached if reached > sorted(due)[1] else None
