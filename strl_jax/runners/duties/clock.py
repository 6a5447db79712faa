"""Time accounting of a training loop."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from strl_jax.runners.progress import Progress


def is_due(iteration: int, *intervals: int) -> bool:
    """Whether one of the ``intervals`` ends at ``iteration``; an interval of 0 never ends."""
    return any(interval and iteration % interval == 0 for interval in intervals)


class IterationClock:
    """Measures each iteration, the whole session, and the work between iterations.

    Args:
        progress: gets the wall-clock seconds and the named sections of its time report.
    """

    def __init__(self, progress: Progress):
        self._progress, self._earlier = progress, progress.seconds
        self._started = self._ended = time.perf_counter()

    def restart(self) -> None:
        """The next iteration is measured from now."""
        self._ended = time.perf_counter()

    def end_iteration(self, now: float) -> float:
        """Seconds of the iteration that ended at ``now``, a value of ``time.perf_counter()``."""
        elapsed, self._ended = now - self._ended, now
        self._progress.seconds = self._earlier + now - self._started
        return elapsed

    @contextmanager
    def between_iterations(self, section: str) -> Iterator[None]:
        """Time that belongs to no iteration. All dispatched iterations must have ended."""
        with self._progress.report.section(section):
            yield
        self.restart()
