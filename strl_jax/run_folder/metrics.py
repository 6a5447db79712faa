"""The metrics of a run on disk: the last iteration in them, and what that proves about lost checkpoints."""

import json
import math
from pathlib import Path

from strl_jax.run_folder import run_dir
from strl_jax.run_folder.errors import CheckpointError


def check_none_lost(path: Path) -> None:
    """Whether the run in ``path``, which has no checkpoint, may start from its beginning and write its metrics anew.

    Raises:
        CheckpointError: it had one.
    """
    reached = last_saved_iteration(path)
    if reached is not None:
        raise CheckpointError(
            f"{path / 'checkpoints'}: no checkpoint is left of the run, which got to iteration {reached} "
            f"(metrics.jsonl) and had saved; nothing was changed; --config {path / run_dir.CONFIG} starts a new run"
        )


def last_saved_iteration(path: Path) -> int | None:
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
    reached = last_iteration(path)
    return reached if reached > sorted(due)[1] else None


def last_iteration(folder: Path | str) -> int:
    """The last iteration in RUN_DIR/metrics.jsonl; 0 if there is none. A line cut short by a kill does not count."""
    path = Path(folder) / run_dir.METRICS
    if not path.is_file():
        return 0
    with path.open(encoding="utf-8", errors="replace") as file:
        return max((number for number in map(iteration_of, file) if number < math.inf), default=0)


def iteration_of(line: str) -> float:
    """Iteration of a line; infinity if the line is damaged."""
    try:
        return int(json.loads(line)["iteration"])
    except (ValueError, KeyError, TypeError):
        return math.inf
