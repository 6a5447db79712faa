"""What a person sees of a running training: a live screen, or plain lines where there is no terminal."""

import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import TextIO

from rich.console import Console as Terminal
from rich.console import ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

PLAIN_INTERVAL = 2.0  # seconds between plain lines
CELL_WIDTH = 38  # characters of one "label value" pair on the live screen
MISSING = "-"

Cell = tuple[str, str]


class Console:
    """Progress of a run, as a context manager.

    On a terminal: a bar and a table that are redrawn in place. Elsewhere: one
    line per update, at most one every two seconds; the first one, the last one
    and those with evaluation results are always printed. Names that are missing
    and values that are not finite are shown as such; nothing raises for them.
    """

    def __init__(
        self,
        total_iterations: int,
        start_iteration: int,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        quiet: bool = False,
    ):
        """Nothing is printed before the first update.

        Args:
            total_iterations: number of iterations of the whole run, those before a resume included.
            start_iteration: iterations done before this process.
            stream: where to print, stdout by default.
            clock: seconds; replaced in tests.
            quiet: print nothing at all, for all processes but one.
        """
        self._stream = stream if stream is not None else sys.stdout
        self._clock = clock
        self._screen = _Screen(total_iterations, start_iteration, clock)
        self._terminal = Terminal(file=self._stream)
        self._quiet = quiet
        self._live = None if quiet else _live(self._terminal, self._screen)
        self._printed_at = -math.inf
        self._held_back: str | None = None

    def __enter__(self) -> "Console":
        if self._live is not None:
            self._live.start()
            # rich hides the cursor; a killed process would leave it hidden.
            self._terminal.show_cursor(True)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.stop()
        elif self._held_back is not None:
            self._print(self._held_back)
            self._held_back = None

    def update(self, iteration: int, scalars: Mapping[str, float]) -> None:
        """Show the ``scalars`` of ``iteration``, counted from 1: the number of iterations done."""
        self._screen.update(iteration, scalars)
        if self._live is not None:
            return
        line = _plain_line(self._screen, scalars)
        last = self._screen.done >= self._screen.total
        evaluated = any(name.startswith("Eval/") for name in scalars)
        if last or evaluated or self._clock() - self._printed_at >= PLAIN_INTERVAL:
            self._print(line)
            self._printed_at, self._held_back = self._clock(), None
        else:
            self._held_back = line

    def note(self, line: str) -> None:
        """Print a line that stays, above the live screen."""
        self._print(line)

    def warn(self, line: str) -> None:
        """As ``note``, marked as a warning."""
        self._print(f"warning: {line}", style="yellow")

    def _print(self, line: str, style: str = "") -> None:
        if self._quiet:
            return
        if self._live is not None:
            self._terminal.print(Text(line, style=style), soft_wrap=True)
        else:
            print(line, file=self._stream, flush=True)


class _Screen:
    """The latest numbers, drawn anew at each refresh so that it follows the terminal's size."""

    def __init__(self, total: int, start: int, clock: Callable[[], float]):
        self.total, self.done = total, start
        self._clock = clock
        self._begin = clock()
        self._marks: deque[tuple[float, int]] = deque(maxlen=100)  # (seconds, iterations done)
        self._scalars: dict[str, float] = {}
        self._evaluation: list[Cell] = []

    def update(self, done: int, scalars: Mapping[str, float]) -> None:
        """Take in the numbers of one iteration; the last evaluation stays until the next."""
        evaluation = _evaluation(scalars)
        if evaluation:
            self._evaluation = [("evaluated at", str(done)), *_group(evaluation, "Eval/", "eval ")]
        self.done, self._scalars = done, dict(scalars)
        self._marks.append((self._clock(), done))

    def eta(self) -> str:
        """Time left by the pace of the last 100 iterations; the first one compiles and does not count."""
        if len(self._marks) < 2 or self._marks[-1][1] <= self._marks[0][1]:
            return MISSING
        (first, before), (last, after) = self._marks[0], self._marks[-1]
        return _duration((last - first) / (after - before) * max(0, self.total - after))

    def __rich_console__(self, terminal: Terminal, options: ConsoleOptions) -> RenderResult:
        yield self._bar()
        columns = max(1, options.max_width // CELL_WIDTH)
        # One row for the bar and one that the cursor stands on.
        rows = max(0, options.size.height - 2)
        yield _table(_cells(self._scalars, self._evaluation), rows, columns)

    def _bar(self) -> Table:
        bar = Table.grid(padding=(0, 1), expand=True)
        for ratio in (None, 1, None, None):
            bar.add_column(ratio=ratio, no_wrap=True)
        elapsed = f"elapsed {_duration(self._clock() - self._begin)}"
        progress = ProgressBar(total=max(1, self.total), completed=min(self.done, self.total))
        bar.add_row(f"{self.done}/{self.total}", progress, elapsed, f"eta {self.eta()}")
        return bar


def _live(terminal: Terminal, screen: _Screen) -> Live | None:
    """The live display, or None where ``terminal`` cannot redraw."""
    # rich alone would also draw into a pipe when FORCE_COLOR is set.
    isatty = getattr(terminal.file, "isatty", None)
    if isatty is None or not isatty() or not terminal.is_terminal or terminal.is_dumb_terminal:
        return None
    return Live(screen, console=terminal, refresh_per_second=4, vertical_overflow="crop")


def _cells(scalars: Mapping[str, float], evaluation: list[Cell]) -> list[Cell]:
    """Label and value of everything on the live screen, the most wanted first."""
    cells = [
        ("steps/s", _count(_get(scalars, "Perf/total_fps"))),
        ("steps", _count(_get(scalars, "Train/env_steps"))),
        ("mean reward", _known(_get(scalars, "Train/mean_reward"))),
        ("episode length", _known(_get(scalars, "Train/mean_episode_length"))),
        *_losses(scalars),
        ("learning rate", _rate(_get(scalars, "Loss/learning_rate"))),
        ("noise std", _number(_get(scalars, "Policy/mean_noise_std"))),
        *evaluation,
        ("memory", _memory(_get(scalars, "Perf/memory_bytes"))),
        ("reward a step", _known(_get(scalars, "Train/mean_reward_each_timestep"))),
        ("iteration s", _number(_get(scalars, "Perf/iteration_time"))),
        ("collection s", _number(_get(scalars, "Perf/collection time"))),
        ("learning s", _number(_get(scalars, "Perf/learning_time"))),
        *_group(scalars, "Episode_Reward/", "reward "),
    ]
    return [cell for cell in cells if cell[1] != MISSING or cell[0] in ("mean reward", "episode length")]


def _table(cells: list[Cell], rows: int, columns: int) -> Table:
    """The cells that fit, filled row by row; the last place says how many do not."""
    places = rows * columns
    if len(cells) > places:
        left_out = len(cells) - places + 1
        cells = [*cells[: max(0, places - 1)], (f"({left_out} more)", "")][:places]
    table = Table.grid(padding=(0, 1))
    for _ in range(columns):
        table.add_column(min_width=20, no_wrap=True, overflow="ellipsis", style="dim")
        table.add_column(min_width=CELL_WIDTH - 24, no_wrap=True, overflow="ellipsis")
    for start in range(0, len(cells), columns):
        table.add_row(*(Text(text) for cell in cells[start : start + columns] for text in cell))
    return table


def _plain_line(screen: _Screen, scalars: Mapping[str, float]) -> str:
    evaluation = _join(_group(_evaluation(scalars), "Eval/", ""))
    parts = [
        f"it {screen.done}/{screen.total}",
        f"{_count(_get(scalars, 'Train/env_steps'))} steps",
        f"{_count(_get(scalars, 'Perf/total_fps'))} steps/s",
        f"reward {_known(_get(scalars, 'Train/mean_reward'))}",
        f"length {_known(_get(scalars, 'Train/mean_episode_length'))}",
        _join(_losses(scalars)),
        f"lr {_rate(_get(scalars, 'Loss/learning_rate'))}",
        f"std {_number(_get(scalars, 'Policy/mean_noise_std'))}",
        f"eval {evaluation}" if evaluation else "",
        f"eta {screen.eta()}",
    ]
    return " | ".join(part for part in parts if part)


def _evaluation(scalars: Mapping[str, float]) -> dict[str, float]:
    """An evaluation's numbers without the terms of the reward, of which a robot has a screenful."""
    return {
        name: value
        for name, value in scalars.items()
        if name.startswith("Eval/") and not name.startswith("Eval/metric/reward_")
    }


def _join(cells: Iterable[Cell]) -> str:
    return " ".join(f"{label} {value}" for label, value in cells)


def _losses(scalars: Mapping[str, float]) -> list[Cell]:
    """Every Loss/* but the learning rate, without the word loss: "value_loss" -> "value"."""
    losses = {name: value for name, value in scalars.items() if name != "Loss/learning_rate"}
    return [(label.removesuffix(" loss"), value) for label, value in _group(losses, "Loss/", "")]


def _group(scalars: Mapping[str, float], section: str, prefix: str) -> list[Cell]:
    """All of one section; a name that already begins with ``prefix`` does not get it twice."""
    labels = {name: name.removeprefix(section).replace("_", " ") for name in scalars if name.startswith(section)}
    return [(prefix + label.removeprefix(prefix), _number(_get(scalars, name))) for name, label in labels.items()]


def _get(scalars: Mapping[str, float], name: str) -> float | None:
    """The value as a float, None where there is none."""
    try:
        return float(scalars[name])
    except (KeyError, TypeError, ValueError):
        return None


def _number(value: float | None) -> str:
    """Three digits or so; not finite values as they are."""
    if value is None:
        return MISSING
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    if size >= 1e6 or 0.0 < size < 1e-3:
        return _exponent(value)
    return f"{value:.1f}" if size >= 100.0 else f"{value:.3g}"


def _known(value: float | None) -> str:
    """As ``_number``, but NaN is nothing to see: no episode has ended yet."""
    return MISSING if value is None or math.isnan(value) else _number(value)


def _rate(value: float | None) -> str:
    """A learning rate: 0.001 -> "1.0e-3"."""
    return _exponent(value) if value is not None and math.isfinite(value) else _number(value)


def _exponent(value: float) -> str:
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def _count(value: float | None) -> str:
    """A count: 812 -> "812", 9600 -> "9.6k", 96000 -> "96k", 1200000 -> "1.20 M"."""
    if value is None or not math.isfinite(value):
        return _number(value)
    for unit, size in ((" G", 1e9), (" M", 1e6)):
        if value >= 0.9995 * size:
            return f"{value / size:.2f}{unit}"
    if value < 999.5:
        return f"{value:.0f}"
    return f"{value / 1e3:.1f}k" if value < 9950.0 else f"{value / 1e3:.0f}k"


def _memory(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return _number(value)
    return f"{value / 2**30:.2f} GiB" if value >= 2**30 else f"{value / 2**20:.0f} MiB"


def _duration(seconds: float) -> str:
    """Hours, minutes, seconds: 72.4 -> "0:01:12"."""
    return str(timedelta(seconds=round(seconds)))
