"""Logging of a run: metrics become scalars for the writers and the console, with warnings."""

import math
from collections.abc import Callable, Mapping, Sequence

from strl_jax.config.errors import raised
from strl_jax.runners.duties.clock import is_due
from strl_jax.runners.duties.origins import OriginReport
from strl_jax.runners.log import scalars
from strl_jax.runners.log.console import Console
from strl_jax.runners.log.writers import Writer, WriterError
from strl_jax.runners.progress import Progress
from strl_jax.types import Metrics


class SafeWriters:
    """The writers of a run. An error of one of them does not interrupt the others.

    Attributes:
        error: the first error, or None. The run is expected to stop and then to raise it.
    """

    def __init__(self, writers: Sequence[Writer]):
        self._writers = writers
        self.error: WriterError | None = None

    def write(self, iteration: int, values: Mapping[str, float]) -> None:
        """Writes the scalars of an iteration."""
        self._each(lambda writer: writer.write(iteration, values))

    def close(self) -> None:
        """Closes all writers."""
        self._each(lambda writer: writer.close())

    def _each(self, call: Callable[[Writer], None]) -> None:
        for writer in self._writers:
            try:
                call(writer)
            except Exception as error:
                failure = WriterError(f"runner.logger: {type(writer).__name__} failed: {raised(error)}")
                failure.__cause__ = error
                self.error = self.error or failure


class MetricLogging:
    """Counts iterations and episodes, and logs their scalars.

    Args:
        progress: counts and episode windows, updated here.
        steps_per_iteration: environment steps of an iteration, over all environments.
        episode_seconds: time limit of an episode, in seconds.
        interval: iterations between two rows of the writers; the console shows every iteration.
    """

    def __init__(
        self,
        progress: Progress,
        console: Console,
        writers: SafeWriters,
        *,
        steps_per_iteration: int,
        episode_seconds: float,
        interval: int,
    ):
        self._progress, self._console, self._writers = progress, console, writers
        self._steps, self._episode_seconds, self._interval = steps_per_iteration, episode_seconds, interval
        self._evaluation: dict[str, float] = {}
        self._origins = OriginReport(console.warn)
        self._warn_from = (1, steps_per_iteration)  # numbers of invalid steps that cause a warning, each once

    def read(self, iteration: int, metrics: Metrics, seconds: float, split: Mapping[str, float]) -> dict[str, float]:
        """Adds an iteration to the progress, and warns about new origins of values that are not finite.

        Args:
            metrics: of the train step, on the host.
            seconds: time of the iteration.
            split: ``Perf/*`` scalars of its parts.

        Returns:
            The scalars of the iteration.
        """
        progress = self._progress
        progress.iteration = iteration
        progress.env_steps += self._steps
        progress.rewards.extend(metrics.episode_reward)
        progress.lengths.extend(metrics.episode_length)
        values = scalars.from_metrics(metrics, self._episode_seconds)
        values |= {"Perf/iteration_time": seconds, "Perf/total_fps": self._steps / seconds, **split}
        memory = scalars.memory_bytes()
        if memory is not None:
            values["Perf/memory_bytes"] = memory
        values["Train/mean_reward"] = progress.rewards.mean()
        values["Train/mean_episode_length"] = progress.lengths.mean()
        values["Train/env_steps"] = float(progress.env_steps)
        values["Train/wall_clock"] = progress.seconds
        values["Perf/training_hours"] = progress.seconds / 3600.0
        return values | self._origins.read(iteration, metrics.origins)

    def write(self, iteration: int, values: Mapping[str, float], *, always: bool = False) -> None:
        """Warns, writes a row at the interval or ``always``, and updates the console."""
        self._warn_invalid(iteration, values["Train/invalid_steps"])
        skipped = values["Loss/skipped_updates"]
        if skipped:
            self._console.warn(
                f"iteration {iteration}: {skipped:.0f} updates were skipped: their gradient was not finite"
            )
        if self._evaluation:
            values, always, self._evaluation = self._evaluation | dict(values), True, {}
        if always or is_due(iteration, self._interval):
            self._writers.write(iteration, values)
        self._console.update(iteration, values)

    def add_evaluation(self, values: Mapping[str, float]) -> None:
        """Shows the evaluation of a loaded policy; its scalars are added to the next row, if that has no others."""
        self._evaluation = dict(values)
        mean, std = values["Eval/mean_return"], values["Eval/std_return"]
        self._console.note(f"evaluation of the loaded policy: return {mean:.5g} +- {std:.3g}")

    def _warn_invalid(self, iteration: int, steps: float) -> None:
        """Warns at the first iteration with invalid steps, and at the first in which all steps are invalid."""
        if steps < min(self._warn_from, default=math.inf):
            return
        self._warn_from = tuple(number for number in self._warn_from if number > steps)
        self._console.warn(
            f"iteration {iteration}: {steps:,.0f} of {self._steps:,} steps were invalid (NaN, infinity or values >= "
            f"1e9) and were cut{', so nothing was learned' if steps >= self._steps else ''}; later ones are counted "
            "in Train/invalid_steps"
        )
