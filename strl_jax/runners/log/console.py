"""Console output of a training: a progress bar with numbers, or plain lines without a terminal."""

import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TextIO

from rich.columns import Columns
from rich.console import Console as Terminal
from rich.console import RenderableType
from rich.progress import BarColumn, Progress, TimeElapsedColumn
from rich.text import Text

from strl_jax.runners.log.numbers import MISSING, count, duration, episode_mean, memory, number, rate
from strl_jax.runners.log.streams import LastingStream

PLAIN_INTERVAL = 2.0  # seconds between two plain lines

Cell = tuple[str, str]  # label, value


class Console:
    """Progress of a run, as a context manager.

    On a terminal: a progress bar and the latest numbers, redrawn in place. Without a
    terminal: one line per update, at most one every two seconds; the first line, the
    last line and lines with evaluation results are always printed. Values that are
    missing or not finite are shown as such, without an error.

    Args:
        total_iterations: iterations of the whole run, including those before a resume.
        start_iteration: iterations done before this process.
        stream: output, default stdout.
        clock: returns seconds; tests replace it.
        quiet: print nothing; for all processes except one.
    """

    def __init__(
        self,
        total_iterations: int,
        start_iteration: int,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        quiet: bool = False,
    ):
        output = stream if stream is not None else sys.stdout
        self._stream = output if output is None else LastingStream(output, "stdout")
        self._total, self._clock, self._quiet = total_iterations, clock, quiet
        terminal = Terminal(file=self._stream)
        redraws = not quiet and _can_redraw(terminal)
        self._display = _Display(terminal, total_iterations, start_iteration, clock) if redraws else None
        self._times: deque[tuple[float, int]] = deque(maxlen=100)  # (seconds, iterations done)
        self._evaluation: list[Cell] = []
        self._printed_at = -math.inf
        self._held_back: str | None = None

    def __enter__(self) -> "Console":
        if self._display is not None:
            self._display.start()
            self._display.console.show_cursor(True)  # rich hides it, and a killed process cannot show it again
        return self

    def __exit__(self, *exception: object) -> None:
        if self._display is not None:
            self._display.stop()
        elif self._held_back is not None:
            self.note(self._held_back)

    def update(self, iteration: int, scalars: Mapping[str, float]) -> None:
        """Shows the ``scalars`` of ``iteration``, which is the number of iterations done."""
        self._times.append((self._clock(), iteration))
        evaluation = _evaluation(scalars)
        if self._display is None:
            self._update_plain(iteration, scalars, evaluation)
            return
        if evaluation:
            named = ((f"eval {label}", value) for label, value in evaluation)
            self._evaluation = [("evaluated at", str(iteration)), *named]
        self._display.cells = _cells(scalars, self._evaluation)
        self._display.update(self._display.task_ids[0], completed=iteration, eta=self._eta())

    def note(self, line: str, style: str = "") -> None:
        """Prints a line that stays, above the progress bar; ``style`` is one of rich."""
        if self._quiet:
            return
        if self._display is not None:
            self._display.console.print(Text(line, style=style), soft_wrap=True)
        else:
            print(line, file=self._stream, flush=True)

    def warn(self, line: str) -> None:
        """Prints a line that stays, marked as a warning."""
        self.note(f"warning: {line}", style="yellow")

    def _update_plain(self, iteration: int, scalars: Mapping[str, float], evaluation: list[Cell]) -> None:
        line = f"it {iteration}/{self._total} | {_plain(scalars, evaluation)} | eta {self._eta()}"
        if iteration >= self._total or evaluation or self._clock() - self._printed_at >= PLAIN_INTERVAL:
            self.note(line)
            self._printed_at, self._held_back = self._clock(), None
        else:
            self._held_back = line

    def _eta(self) -> str:
        """Remaining time at the pace of the last 100 iterations, without the first one of the process."""
        if len(self._times) < 2 or self._times[-1][1] <= self._times[0][1]:
            return MISSING
        (first, before), (last, after) = self._times[0], self._times[-1]
        return duration((last - first) / (after - before) * max(0, self._total - after))


class _Display(Progress):
    """A progress bar with ``cells`` below it."""

    def __init__(self, terminal: Terminal, total: int, done: int, clock: Callable[[], float]):
        self.cells: list[Cell] = []
        columns = ("{task.completed}/{task.total}", BarColumn(bar_width=None), "elapsed", TimeElapsedColumn())
        options = {"console": terminal, "refresh_per_second": 4, "expand": True, "get_time": clock}
        super().__init__(*columns, "eta {task.fields[eta]}", **options)
        self.add_task("", total=total, completed=done, eta=MISSING)

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        cells = (Text.assemble((f"{label:20.20} ", "dim"), f"{value:16.16}") for label, value in self.cells)
        yield Columns(cells, equal=True)


def _can_redraw(terminal: Terminal) -> bool:
    """False for a pipe (also where FORCE_COLOR is set, unlike rich) and for a dumb terminal."""
    isatty = getattr(terminal.file, "isatty", None)
    return isatty is not None and isatty() and terminal.is_terminal and not terminal.is_dumb_terminal


def _cells(scalars: Mapping[str, float], evaluation: list[Cell]) -> list[Cell]:
    """Label and value of everything below the bar, the most important first."""
    cells = [
        ("steps/s", count(scalars.get("Perf/total_fps"))),
        ("steps", count(scalars.get("Train/env_steps"))),
        ("mean reward", episode_mean(scalars.get("Train/mean_reward"))),
        ("episode length", episode_mean(scalars.get("Train/mean_episode_length"))),
        *_losses(scalars),
        ("learning rate", rate(scalars.get("Loss/learning_rate"))),
        ("noise std", number(scalars.get("Policy/mean_noise_std"))),
        *evaluation,
        ("memory", memory(scalars.get("Perf/memory_bytes"))),
        ("reward per step", episode_mean(scalars.get("Train/mean_reward_each_timestep"))),
        ("iteration s", number(scalars.get("Perf/iteration_time"))),
        ("collection s", number(scalars.get("Perf/collection time"))),
        ("learning s", number(scalars.get("Perf/learning_time"))),
        *_group(scalars, "Episode_Reward/"),
    ]
    return [cell for cell in cells if cell[1] != MISSING or cell[0] in ("mean reward", "episode length")]


def _plain(scalars: Mapping[str, float], evaluation: list[Cell]) -> str:
    parts = [
        f"{count(scalars.get('Train/env_steps'))} steps",
        f"{count(scalars.get('Perf/total_fps'))} steps/s",
        f"reward {episode_mean(scalars.get('Train/mean_reward'))}",
        f"length {episode_mean(scalars.get('Train/mean_episode_length'))}",
        _join(_losses(scalars)),
        f"lr {rate(scalars.get('Loss/learning_rate'))}",
        f"std {number(scalars.get('Policy/mean_noise_std'))}",
        f"eval {_join(evaluation)}" if evaluation else "",
    ]
    return " | ".join(part for part in parts if part)


def _evaluation(scalars: Mapping[str, float]) -> list[Cell]:
    """Results of an evaluation without the reward terms: a robot has too many of them for a line."""
    return _group({name: x for name, x in scalars.items() if not name.startswith("Eval/metric/reward_")}, "Eval/")


def _join(cells: Iterable[Cell]) -> str:
    return " ".join(f"{label} {value}" for label, value in cells)


def _losses(scalars: Mapping[str, float]) -> list[Cell]:
    """Every ``Loss/*`` except the learning rate, without the word loss: "value_loss" -> "value"."""
    losses = {name: value for name, value in scalars.items() if name != "Loss/learning_rate"}
    return [(label.removesuffix(" loss"), value) for label, value in _group(losses, "Loss/")]


def _group(scalars: Mapping[str, float], section: str) -> list[Cell]:
    """All scalars of one section; "-" for a metric of an evaluation without a value, as the CoT of a standing robot."""
    labels = {name: name.removeprefix(section).replace("_", " ") for name in scalars if name.startswith(section)}
    shown = {name: episode_mean if name.startswith("Eval/metric/") else number for name in labels}
    return [(label, shown[name](scalars[name])) for name, label in labels.items()]
