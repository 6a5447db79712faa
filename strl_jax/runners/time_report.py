"""Where the wall-clock of a run went."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager


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
