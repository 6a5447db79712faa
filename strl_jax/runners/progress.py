"""What a run knows of itself on the host: counts, windows, best score. Saved with every checkpoint."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field


class EpisodeWindow:
    """The last ``length`` values of one quantity, one value per finished episode."""

    def __init__(self, length: int = 100):
        """An empty window.

        Raises:
            ValueError: ``length`` under 1.
        """
        if length < 1:
            raise ValueError(f"window length is {length}; it must be at least 1")
        self._values: deque[float] = deque(maxlen=length)

    @classmethod
    def from_state(cls, state: Iterable[float], length: int = 100) -> "EpisodeWindow":
        """The window that ``state()`` described; the newest ``length`` values are kept."""
        window = cls(length)
        window.extend(state)
        return window

    def extend(self, values: Iterable[float]) -> None:
        """Add values, oldest first. NaN stands for "no episode ended" and is left out."""
        self._values.extend(value for value in map(float, values) if not math.isnan(value))

    def __len__(self) -> int:
        return len(self._values)

    def mean(self) -> float:
        """Mean of the window; NaN while it is empty."""
        return sum(self._values) / len(self._values) if self._values else math.nan

    def state(self) -> list[float]:
        """The values, oldest first, for a checkpoint."""
        return list(self._values)


class TimeReport:
    """Seconds and counts per named section. Sections must not contain each other, or the total counts twice."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter):
        """An empty report; ``clock`` returns seconds."""
        self._clock = clock
        self._seconds: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    @classmethod
    def from_state(cls, state: Mapping[str, Sequence[float]], clock: Callable[[], float] = time.perf_counter):
        """The report that ``state()`` described; later sections add to it."""
        report = cls(clock)
        for name, (seconds, count) in state.items():
            report._seconds[name] = float(seconds)
            report._counts[name] = int(count)
        return report

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Time what stands inside ``with``, also when it raises."""
        start = self._clock()
        try:
            yield
        finally:
            self.add(name, self._clock() - start)

    def add(self, name: str, seconds: float) -> None:
        """Add one measurement of ``seconds`` to the section ``name``.

        Raises:
            ValueError: ``seconds`` negative or NaN.
        """
        if not seconds >= 0.0:
            raise ValueError(f"time of section {name!r} is {seconds}; it must be 0 or more seconds")
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds
        self._counts[name] = self._counts.get(name, 0) + 1

    def state(self) -> dict[str, list[float]]:
        """Section -> [seconds, count], plain numbers for a checkpoint."""
        return {name: [seconds, self._counts[name]] for name, seconds in self._seconds.items()}

    def lines(self) -> list[str]:
        """An aligned table, largest section first: name, seconds, share of the total, count; the total is last."""
        total = sum(self._seconds.values())
        names = sorted(self._seconds, key=self._seconds.get, reverse=True)
        rows = [("section", "seconds", "share", "count")]
        rows += [_row(name, self._seconds[name], total, self._counts[name]) for name in names]
        rows.append(_row("total", total, total, ""))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return [_align(row, widths) for row in rows]


def _row(name: str, seconds: float, total: float, count: int | str) -> tuple[str, str, str, str]:
    share = seconds / total if total > 0.0 else 0.0
    return name, f"{seconds:.2f}", f"{100.0 * share:.1f} %", str(count)


def _align(row: Sequence[str], widths: Sequence[int]) -> str:
    """Name to the left, numbers to the right."""
    cells = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
    return "  ".join(cells).rstrip()


@dataclass
class Progress:
    """Host state of a run.

    Attributes:
        iteration: finished iterations.
        env_steps: environment steps of all environments.
        seconds: wall-clock of all sessions of the run.
        best_score: best mean evaluation return, None before the first.
        rewards, lengths: returns and lengths of the last 100 finished episodes.
        evaluation: scalars of the last evaluation.
        report: where the time went.
    """

    iteration: int = 0
    env_steps: int = 0
    seconds: float = 0.0
    best_score: float | None = None
    rewards: EpisodeWindow = field(default_factory=EpisodeWindow)
    lengths: EpisodeWindow = field(default_factory=EpisodeWindow)
    evaluation: dict[str, float] = field(default_factory=dict)
    report: TimeReport = field(default_factory=TimeReport)

    @property
    def velocity_rmsd(self) -> float:
        """Velocity RMSD of the last evaluation in m/s, NaN without one."""
        return self.evaluation.get("Eval/metric/tracking_error", math.nan)

    @property
    def cost_of_transport(self) -> float:
        """Cost of transport of the last evaluation, NaN without one."""
        return self.evaluation.get("Eval/metric/CoT", math.nan)

    def state(self) -> dict:
        """As JSON."""
        return {
            "iteration": self.iteration,
            "env_steps": self.env_steps,
            "seconds": self.seconds,
            "best_score": self.best_score,
            "rewards": self.rewards.state(),
            "lengths": self.lengths.state(),
            "evaluation": self.evaluation,
            "report": self.report.state(),
        }

    @classmethod
    def from_state(cls, state: dict) -> "Progress":
        """Inverse of ``state``."""
        return cls(
            **(
                state
                | {
                    "rewards": EpisodeWindow.from_state(state["rewards"]),
                    "lengths": EpisodeWindow.from_state(state["lengths"]),
                    "report": TimeReport.from_state(state["report"]),
                }
            )
        )
