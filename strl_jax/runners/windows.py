"""Means over the last episodes, as the log shows them."""

import math
from collections import deque
from collections.abc import Iterable


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
