"""``metrics.jsonl``: reading with damaged lines, removal of later lines, and what it proves about lost checkpoints."""

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strl_jax.run_folder import run_dir
from strl_jax.run_folder.atomic import replaced
from strl_jax.run_folder.errors import CheckpointError, first_few

START = re.compile(r'\{"iteration"')  # start of each line that the writer writes


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
    with log.open("rb") as file:
        last = max((record["iteration"] for line in file for record in records(line)), default=0)
    return last if last > saves[1] else None


def records(line: bytes) -> list[dict[str, Any]]:
    """The valid records in one line of metrics.jsonl: one, or for a damaged line those that can still be read.

    A record is a JSON object with an integer ``iteration``. Two records in one line are both
    read, also if the first is cut short. NaN and Infinity, which are not JSON, are read as None.
    """
    intact = _intact(line)
    return [intact] if intact is not None else list(_recovered(line))


def cut(path: Path, start_iteration: int) -> list[str]:
    """Removes the records from ``start_iteration`` on, and repairs or removes damaged lines.

    If the process dies before the end, the file is unchanged. Damage of the last line is not
    reported if the line has no end: a killed run leaves such a line and trains that iteration again.

    Returns:
        A line for the user about the damaged lines, or no line.

    Raises:
        OSError: the file cannot be read or replaced.
    """
    damaged = []
    with path.open("rb") as source, replaced(path) as target:
        for number, line in enumerate(source, 1):
            intact = _intact(line)
            if intact is not None:
                if intact["iteration"] < start_iteration:
                    target.write(line.rstrip(b"\r\n").decode() + "\n")
                continue
            recovered = list(_recovered(line))
            target.writelines(dump(record) for record in recovered if record["iteration"] < start_iteration)
            if line.endswith(b"\n") or recovered:
                count = f"{len(recovered)} record{'s' * (len(recovered) > 1)} kept" if recovered else "removed"
                damaged.append(f"line {number} ({count})")
    return [f"{path}: damaged: {first_few(damaged, ', ')}"] if damaged else []


def dump(record: dict[str, Any]) -> str:
    """A record as a line; numbers that are not finite become null."""
    values = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in record.items()
    }
    return json.dumps(values, allow_nan=False) + "\n"


def _intact(line: bytes) -> dict[str, Any] | None:
    """The record of a line that is as it was written, otherwise None."""
    try:
        value = json.loads(line.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return value if _is_record(value) else None


def _recovered(line: bytes) -> Iterator[dict[str, Any]]:
    """The records that can be read in a damaged line."""
    text, end = line.decode(errors="replace"), 0
    decoder = json.JSONDecoder(parse_constant=lambda name: None)
    for start in (match.start() for match in START.finditer(text)):
        if start < end:  # inside the previous record
            continue
        try:
            value, stop = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        if _is_record(value) and "\N{REPLACEMENT CHARACTER}" not in text[start:stop]:
            end = stop
            yield value


def _is_record(value: Any) -> bool:
    return isinstance(value, dict) and type(value.get("iteration")) is int and value["iteration"] >= 0


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
