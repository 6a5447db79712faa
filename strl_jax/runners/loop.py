"""The host's loop: dispatches iteration i, then reads the metrics of i - 1."""

import functools
import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax

from strl_jax.config import ConfigError, to_dict
from strl_jax.config.errors import raised
from strl_jax.runners.log import scalars
from strl_jax.runners.log.console import Console
from strl_jax.runners.log.git_state import store_code_state
from strl_jax.runners.log.writers import Writer, WriterError, make_writers
from strl_jax.runners.programs import time_update
from strl_jax.runners.stop import StopFlag, StopVote

TIME_SPLIT_AT = 3  # iterations of a session before the update is timed on its own


@dataclass
class Pending:
    """An iteration whose metrics have not been logged.

    Attributes:
        arrived: its metrics, and when it had ended; see ``on_host``.
        asked: of ``StopVote``: some process was asked to stop.
    """

    iteration: int
    arrived: Future
    asked: jax.Array | None


def on_host(metrics: Any) -> tuple[Any, float]:
    """Waits for the metrics; their values, and ``time.perf_counter()`` when they were there.

    Called in a thread of its own: a call of a long program keeps the loop's thread until most of it is
    launched, so there the end of the iteration before would be seen too late.
    """
    return jax.device_get(metrics), time.perf_counter()


class Loop:
    """One call of ``OnPolicyRunner.learn``.

    Args:
        runner: the runner; its states are advanced in place.
        iterations: how many to add.
        random_lengths: start the first episodes of a new run at random ages.
        trial: an Optuna trial or None.
    """

    PRUNER = "Optuna's pruner"

    def __init__(self, runner, iterations: int, random_lengths: bool, trial):
        self.runner, self.random_lengths, self.trial = runner, random_lengths, trial
        self.vote = StopVote(runner.mesh)
        self.first = runner.progress.iteration
        self.last = self._budget(self.first + iterations)
        self.writers = []
        self.learning_seconds: float | None = None
        self.started = self.ended = time.perf_counter()
        self.earlier_seconds = runner.progress.seconds
        self.leader = jax.process_index() == 0
        self.fault: WriterError | None = None  # the first of a writer
        self.pruned = False
        self.untold = (1, runner.steps_per_iteration)  # numbers of invalid steps of an iteration that are told once

    def _budget(self, wanted: int) -> int:
        limit = self.runner.config.runner.max_env_steps
        if limit is None:
            return wanted
        left = max(0, limit - self.runner.progress.env_steps)
        return min(wanted, self.first + -(-left // self.runner.steps_per_iteration))  # rounded up, in whole numbers

    def run(self) -> None:
        """Trains until the iterations are done, a signal asks to stop or a writer fails, then saves.

        Raises:
            ConfigError: a writer does not start; nothing was trained.
            CheckpointError: a checkpoint cannot be written.
            WriterError: a writer failed; the run is saved.
            optuna.TrialPruned: the trial is to be given up; the run is saved.
        """
        runner = self.runner
        with StopFlag() as stop, Console(self.last, self.first, quiet=not self.leader) as self.console:
            if runner.log_dir is not None and self.leader:
                store_code_state(runner.log_dir, runner.repositories, warn=self.console.warn)
                self.writers = self._make_writers()
            self.console.note("compiling")  # in silence, for minutes if a robot meets two cores
            try:
                self._iterate(stop)
            finally:
                for writer in self.writers:
                    self._guarded(writer, writer.close)
        if self.fault is not None:
            raise self.fault
        if self.pruned:
            import optuna  # the trial is its own, so it is there

            raise optuna.TrialPruned(f"pruned at iteration {runner.progress.iteration}")

    def _guarded(self, writer: Writer, call: Callable[[], None]) -> None:
        """What a writer raises waits for the end of the run, which comes soon."""
        try:
            call()
        except Exception as error:
            told = WriterError(f"runner.logger: {type(writer).__name__} failed: {raised(error)}")
            told.__cause__ = error
            self.fault = self.fault or told

    def _make_writers(self) -> list:
        runner, config = self.runner, self.runner.config.runner
        try:
            return make_writers(
                config.logger,
                runner.log_dir,
                to_dict(runner.config),
                self.first + 1,
                project=config.wandb_project,
                name=runner.log_dir.name,
            )
        except ValueError as error:
            raise ConfigError(f"runner.logger: {error}") from None

    def _compile(self):
        """The train step; the states of a new run are made meanwhile, and the evaluation starts to compile."""
        runner = self.runner
        if self.last > self.first:
            runner.programs.request("step")
            if runner.train_state is None:
                runner.programs.request("init", random_lengths=self.random_lengths)
            if runner.config.runner.eval_interval:
                runner.programs.request("evaluate")
        with runner.progress.report.section("compile"):
            if runner.train_state is None:
                for line in runner.start_states(self.random_lengths):
                    self.console.warn(line)
            return runner.programs.get("step") if self.last > self.first else None

    def _iterate(self, stop: StopFlag) -> None:
        runner, config = self.runner, self.runner.config.runner
        step = self._compile()
        runner.stopped_by = None
        unread: list[Pending] = []
        self.ended = time.perf_counter()
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="read") as reader:
            for iteration in range(self.first + 1, self.last + 1):
                runner.stopped_by = self.vote.result(self._asked(stop))
                if runner.stopped_by:
                    break
                runner.train_state, runner.rollout_state, metrics = step(
                    runner.train_state, runner.rollout_state, runner.data
                )
                current = Pending(iteration, reader.submit(on_host, metrics), self.vote.cast(self._asked(stop)))
                saves = self._due(iteration, config.last_interval, config.save_interval)
                splits = self._may_split(iteration)
                pause = self._evaluates(iteration) or saves or splits
                self._read([*unread, current] if pause else unread)
                unread = [] if pause else [current]
                if pause:
                    self._save(iteration)
                if splits:
                    self._split_time()
            self._read(unread)
        self._finish()

    def _asked(self, stop: StopFlag) -> str | None:
        """What asks to stop here."""
        if self.fault is not None:
            return "a writer that failed"
        return self.PRUNER if self.pruned else stop.name

    def _read(self, unread: list[Pending]) -> None:
        """Waits for iterations, and logs each with the time since the end of the one before."""
        for pending in unread:
            metrics, now = pending.arrived.result()
            elapsed, self.ended = now - self.ended, now
            self.vote.read(pending.asked)
            self._log(pending, metrics, elapsed)

    def _log(self, pending: Pending, metrics: dict, seconds: float) -> None:
        runner, progress = self.runner, self.runner.progress
        progress.iteration = pending.iteration
        progress.env_steps += runner.steps_per_iteration
        progress.seconds = self.earlier_seconds + self.ended - self.started
        progress.rewards.extend(scalars.finite(metrics["episode_reward"]))
        progress.lengths.extend(scalars.finite(metrics["episode_length"]))
        values = scalars.from_metrics(metrics, runner.env.episode_length * runner.env.env.dt)
        values |= self._times(seconds)
        values["Train/mean_reward"] = progress.rewards.mean()
        values["Train/mean_episode_length"] = progress.lengths.mean()
        values["Train/env_steps"] = float(progress.env_steps)
        values["Train/wall_clock"] = progress.seconds
        evaluated = self._evaluates(pending.iteration)
        if evaluated:
            with self._aside("evaluation"):
                values |= runner.evaluation()
                self._judge(values["Eval/mean_return"])
        self._warn_invalid(pending.iteration, values["Train/invalid_steps"])
        if values["Loss/skipped_updates"]:
            self.console.warn(
                f"iteration {pending.iteration}: {values['Loss/skipped_updates']:.0f} updates had a gradient that "
                "was not finite and were skipped"
            )
        if evaluated or self._due(pending.iteration, runner.config.runner.log_interval):
            for writer in self.writers:
                self._guarded(writer, functools.partial(writer.write, pending.iteration, values))
        self.console.update(pending.iteration, values)

    def _warn_invalid(self, iteration: int, steps: float) -> None:
        """Tells of the first iteration with steps that were cut, and of the first in which all were."""
        every = self.runner.steps_per_iteration
        if steps < min(self.untold, default=math.inf):
            return
        self.untold = tuple(number for number in self.untold if number > steps)
        self.console.warn(
            f"iteration {iteration}: {steps:,.0f} of {every:,} steps had NaN, infinity or 1e9 and more and were cut"
            f"{', so nothing was learnt' if steps >= every else ''}; others are in Train/invalid_steps"
        )

    def _times(self, seconds: float) -> dict[str, float]:
        runner = self.runner
        values = {"Perf/iteration_time": seconds, "Perf/total_fps": runner.steps_per_iteration / seconds}
        if self.learning_seconds is not None:
            learning = min(self.learning_seconds, seconds)
            values["Perf/learning_time"] = learning
            values["Perf/collection time"] = seconds - learning
            runner.progress.report.add("learning", learning)
            runner.progress.report.add("collection", seconds - learning)
        else:
            runner.progress.report.add("iterations", seconds)
        memory = scalars.memory_bytes()
        if memory is not None:
            values["Perf/memory_bytes"] = memory
        return values

    def _judge(self, score: float) -> None:
        runner, progress = self.runner, self.runner.progress
        if self.trial is not None:
            self.trial.report(runner.metrics_velrmsd, progress.iteration)
            self.pruned = self.trial.should_prune()
        if math.isnan(score) or (progress.best_score is not None and score <= progress.best_score):
            return
        progress.best_score = score
        if runner.checkpointer is not None:
            runner.save("best")

    def _save(self, iteration: int) -> None:
        runner, config = self.runner, self.runner.config.runner
        if runner.checkpointer is None:
            return
        with self._aside("save"):
            if self._due(iteration, config.last_interval):
                runner.save("last")
            if self._due(iteration, config.save_interval):
                runner.save("numbered")

    def _may_split(self, iteration: int) -> bool:
        """Whether the update can be timed now: it is compiled beside the training.

        Several processes must do this in the same iteration, so they wait for the compiler.
        """
        runner, since = self.runner, iteration - self.first
        if not runner.config.runner.time_split or self.learning_seconds is not None or since < TIME_SPLIT_AT:
            return False
        runner.programs.request("update")
        return runner.programs.idle() or jax.process_count() > 1

    def _split_time(self) -> None:
        """Times the update once; the fused program cannot tell its parts."""
        runner = self.runner
        with self._aside("time split"):
            self.learning_seconds = time_update(runner.programs, runner.train_state, runner.data)

    @contextmanager
    def _aside(self, name: str):
        """Time that belongs to no iteration; every one that was started must have ended."""
        with self.runner.progress.report.section(name):
            yield
        self.ended = time.perf_counter()

    def _finish(self) -> None:
        runner = self.runner
        untrained = runner.progress.iteration == self.first > 0  # what was resumed from is there and stays
        if runner.checkpointer is None or untrained:
            return
        with runner.progress.report.section("save"):
            runner.save("last")
            runner.save("numbered")
            runner.checkpointer.wait()

    def _evaluates(self, iteration: int) -> bool:
        """At every interval, and at the end."""
        interval = self.runner.config.runner.eval_interval
        return bool(interval) and (iteration == self.last or self._due(iteration, interval))

    @staticmethod
    def _due(iteration: int, *intervals: int) -> bool:
        """Whether one of the intervals ends here; 0 never does."""
        return any(interval and iteration % interval == 0 for interval in intervals)
