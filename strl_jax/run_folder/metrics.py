"""Iterations in ``metrics.jsonl``, and what they prove about lost checkpoints."""

import json
import math
from pathlib import Path

from strl_jax.run_folder import run_dir
from strl_jax.run_folder.errors import CheckpointError


def check_none_lost(path: Path) -> None:
    """For a run folder without checkpoints: raises ``CheckpointError`` if its metrics prove that it had some."""
    iteration = last_saved_iteration(path)
    if iteration is not None:
        raise CheckpointError(
            f"{path / 'checkpoints'}: all checkpoints are missing, but {run_dir.METRICS} has iteration {iteration}, "
            f"which is after the first save; no file was changed; --config {path / run_dir.CONFIG} starts a new run"
        )


def last_saved_iteration(path: Path) -> int | None:
    """The last iteration in the metrics of a run, if a checkpoint must have been complete before it.

    A checkpoint is written in the background, and the next save waits for it: an iteration after
    the second save proves that the first is complete. ``best`` checkpoints do not count: without
    a valid score there is none. The intervals are those of ``config.json``, with which the run
    was trained, not those of later overrides.

    Returns:
        None: the run may never have had a checkpoint.
    """
    try:
        runner = run_dir.read_json(path)["runner"]
        intervals = [runner[name] for name in ("last_interval", "save_interval") if runner[name] != 0]
        saves = sorted(count * interval for interval in intervals for count in (1, 2))
    except (ValueError, KeyError, TypeError):
        return None
    log = path / run_dir.METRICS
    if not log.is_file():
        return None
    with log.open(encoding="utf-8", errors="replace") as file:
        last = max((number for number in map(iteration_of, file) if number < math.inf), default=0)
    return last if last > saves[1] else None


def iteration_of(line: str) -> float:
    """Iteration of a line of metrics.jsonl; infinity if the line is damaged, like the last one of a killed run."""
    try:
        return int(json.loads(line)["iteration"])
    except (ValueError, KeyError, TypeError):
        return math.inf
