"""The training loop: dispatches iteration i, then reads the metrics of iteration i - 1."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax

from strl_jax.runners.callbacks import Callbacks
from strl_jax.runners.duties.clock import IterationClock
from strl_jax.runners.duties.evaluation import IntervalEvaluation
from strl_jax.runners.duties.logging import MetricLogging
from strl_jax.runners.duties.saving import IntervalSaving
from strl_jax.runners.duties.time_split import TimeSplit
from strl_jax.runners.stop import StopVote


@dataclass
class Pending:
    """An iteration that is dispatched and not yet logged.

    Attributes:
        result: its metrics and the time of its end, see ``on_host``.
        vote: result of ``StopVote.cast`` after its dispatch.
    """

    iteration: int
    result: Future
    vote: jax.Array | None


def on_host(metrics: Any) -> tuple[Any, float]:
    """Waits for the metrics. Returns their values, and ``time.perf_counter()`` of their arrival.

    It runs in a thread: the call of a long program blocks the loop's thread while it is being launched,
    so that thread would notice the end of the previous iteration too late.
    """
    return jax.device_get(metrics), time.perf_counter()


@dataclass
class Loop:
    """Advances the states, and calls each duty when it is due.

    Attributes:
        runner: holds the states ``train_state`` and ``rollout_state``; the newest ones at any time.
        data: constants that the algorithm's hooks read, on all devices.
        stop_request: returns the reason for this process to stop, or None.
        vote: agreement of all processes on the iteration to stop after.
        callbacks: of the user, see ``Callbacks``.
        stopped_by: reason of an early stop, or None.
    """

    runner: Any
    data: dict
    stop_request: Callable[[], str | None]
    vote: StopVote
    callbacks: Callbacks
    clock: IterationClock
    logging: MetricLogging
    evaluation: IntervalEvaluation
    saving: IntervalSaving
    time_split: TimeSplit
    stopped_by: str | None = None

    def run(self, step: Callable, first: int, last: int) -> None:
        """Trains from iteration ``first`` to ``last``, or until a stop is agreed.

        Args:
            step: ``(train, rollout, data) -> (train, rollout, metrics)``, compiled; the two states are donated.
        """
        waiting, runner = [], self.runner
        self.clock.restart()
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="read") as reader:
            for iteration in range(first, last + 1):
                self.stopped_by = self.vote.result(self.stop_request())
                if self.stopped_by:
                    break
                self.callbacks("before_play_steps")
                runner.train_state, runner.rollout_state, metrics = step(
                    runner.train_state, runner.rollout_state, self.data
                )
                vote = self.vote.cast(self.stop_request())
                waiting.append(Pending(iteration, reader.submit(on_host, metrics), vote))
                saves, splits = self.saving.is_due(iteration), self.time_split.is_due(iteration)
                pause = saves or splits or self.evaluation.is_due(iteration) or self.callbacks.needs_each_iteration
                while len(waiting) > (0 if pause else 1):
                    self._read(waiting.pop(0))
                if saves:
                    with self.clock.between_iterations("save"):
                        self.saving.save(iteration, runner.train_state, runner.rollout_state)
                if splits:
                    with self.clock.between_iterations("time split"):
                        self.time_split.measure(runner.train_state)
            for pending in waiting:
                self._read(pending)

    def _read(self, pending: Pending) -> None:
        """Waits for an iteration, evaluates after it if that is due, and logs it."""
        metrics, now = pending.result.result()
        seconds = self.clock.end_iteration(now)
        self.vote.read(pending.vote)
        values = self.logging.read(pending.iteration, metrics, seconds, self.time_split.divide(seconds))
        self.callbacks("after_train", values)
        evaluates = self.evaluation.is_due(pending.iteration)
        if evaluates:
            with self.clock.between_iterations("evaluation"):
                values |= self.evaluation.run(self.runner.train_state)
        self.logging.write(pending.iteration, values, always=evaluates)
