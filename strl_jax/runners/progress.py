"""Progress of a run on the host: counts, episode windows, best score, time report. Part of every checkpoint."""

import math
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

from strl_jax.run_folder.errors import CheckpointError

FORMAT = 1  # of ``Progress.state``; a record without a number has format 1


class EpisodeWindow:
    """The last 100 values of one quantity, one value per finished episode."""

    def __init__(self, values: Iterable[float] = ()):
        self._values: deque[float] = deque(maxlen=100)
        self.extend(values)

    def extend(self, values: Iterable[float]) -> None:
        """Adds values, oldest first. NaN means that no episode ended, and is skipped."""
        self._values.extend(value for value in map(float, values) if not math.isnan(value))

    def __len__(self) -> int:
        return len(self._values)

    def mean(self) -> float:
        """Mean of the window, NaN if it is empty."""
        return sum(self._values) / len(self._values) if self._values else math.nan

    def state(self) -> list[float]:
        """The values, oldest first, for a checkpoint."""
        return list(self._values)


class TimeReport:
    """Seconds and counts by section. Sections must not be nested: the total would count their time twice.

    Args:
        state: seconds and count of each section of an earlier report, see ``state``.
    """

    def __init__(self, state: Mapping[str, Sequence[float]] | None = None):
        self._sections = {name: (float(seconds), int(count)) for name, (seconds, count) in (state or {}).items()}

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Measures the body of the ``with`` statement, also if it raises."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add(name, time.perf_counter() - start)

    def add(self, name: str, seconds: float) -> None:
        """Adds one measurement to the section ``name``.

        Raises:
            ValueError: ``seconds`` is negative or NaN.
        """
        if not seconds >= 0.0:
            raise ValueError(f"time of section {name!r} is {seconds}; it must be 0 or more seconds")
        before, count = self._sections.get(name, (0.0, 0))
        self._sections[name] = (before + seconds, count + 1)

    def state(self) -> dict[str, list[float]]:
        """Section -> [seconds, count], for a checkpoint."""
        return {name: list(section) for name, section in self._sections.items()}

    def lines(self) -> list[str]:
        """A table: name, seconds, share of the total and count of each section, largest first, then the total."""
        total = sum(seconds for seconds, _ in self._sections.values())
        rows = sorted(((name, *section) for name, section in self._sections.items()), key=lambda row: -row[1])
        rows.append(("total", total, ""))
        width = max(len(name) for name in ("section", *self._sections))
        lines = [f"{'section':{width}}  {'seconds':>10}  {'share':>7}  {'count':>7}"]
        for name, seconds, count in rows:
            share = seconds / total if total > 0.0 else 0.0
            lines.append(f"{name:{width}}  {seconds:10.2f}  {100.0 * share:5.1f} %  {count:>7}".rstrip())
        return lines


@dataclass
class Progress:
    """Host state of a run.

    Attributes:
        iteration: finished iterations.
        env_steps: steps of all environments together.
        seconds: wall-clock time of all sessions of the run.
        best_score: best score of an evaluation, None before the first.
        best_by: name and direction of this score, see ``runner.best_metric``.
        rewards, lengths: returns and lengths of the last 100 finished episodes.
        evaluation: scalars of the last evaluation.
        report: seconds by section.
    """

    iteration: int = 0
    env_steps: int = 0
    seconds: float = 0.0
    best_score: float | None = None
    best_by: str = "Eval/mean_return max"
    rewards: EpisodeWindow = field(default_factory=EpisodeWindow)
    lengths: EpisodeWindow = field(default_factory=EpisodeWindow)
    evaluation: dict[str, float] = field(default_factory=dict)
    report: TimeReport = field(default_factory=TimeReport)

    def state(self) -> dict:
        """The progress as JSON, for a checkpoint."""
        return (
            {"format": FORMAT}
            | vars(self)
            | {name: getattr(self, name).state() for name in ("rewards", "lengths", "report")}
        )

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Progress":
        """Inverse of ``state``.

        Raises:
            CheckpointError: the record has another format.
        """
        values, number = dict(state), state.get("format", 1)
        values.pop("format", None)
        unknown = [name for name in values if name not in {field.name for field in fields(cls)}]
        if number != FORMAT or unknown:
            entries = f" with the unknown entries {', '.join(unknown)}" if unknown else ""
            raise CheckpointError(
                f"its progress record has format {number}{entries}; this version of strl_jax reads format {FORMAT}; "
                "use the version that wrote it"
            )
        windows = {name: EpisodeWindow(state[name]) for name in ("rewards", "lengths")}
        return cls(**(values | windows | {"report": TimeReport(state["report"])}))
