"""The training loop: dispatches iteration i, then reads the metrics of iteration i - 1."""

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax

from strl_jax.runners.duties.clock import IterationClock
from strl_jax.runners.duties.evaluation import IntervalEvaluation
from strl_jax.runners.duties.logging import MetricLogging
from strl_jax.runners.duties.saving import IntervalSaving
from strl_jax.runners.duties.time_split import TimeSplit
from strl_jax.runners.stop import StopVote


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
        runner: an ``OnPolicyRunner``; it has the newest states at any time, and the reason of an early stop.
        stop_request: returns the reason for this process to stop, or None.
        vote: agreement of all processes on the iteration to stop after.
    """

    runner: Any
    stop_request: Callable[[], str | None]
    vote: StopVote
    clock: IterationClock
    logging: MetricLogging
    evaluation: IntervalEvaluation
    saving: IntervalSaving
    time_split: TimeSplit

    def run(self, step: Callable, first: int, last: int) -> None:
        """Trains from iteration ``first`` to ``last``, or until a stop is agreed.

        Args:
            step: ``(train, rollout, data) -> (train, rollout, metrics)``, compiled; it takes over the states' buffers.
        """
        runner = self.runner
        runner.stopped_by = None
        waiting: deque[Callable[[], None]] = deque()  # reads of iterations that are dispatched and not yet logged
        self.clock.restart()
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="read") as reader:
            for iteration in range(first, last + 1):
                runner.stopped_by = self.vote.result(self.stop_request())
                if runner.stopped_by:
                    break
                runner.train_state, runner.rollout_state, metrics = step(
                    runner.train_state, runner.rollout_state, runner.data
                )
                vote = self.vote.cast(self.stop_request())
                waiting.append(partial(self._read, iteration, reader.submit(on_host, metrics), vote))
                saves, splits = self.saving.is_due(iteration), self.time_split.is_due(iteration)
                pause = self.evaluation.is_due(iteration) or saves or splits
                while len(waiting) > (0 if pause else 1):
                    waiting.popleft()()
                if saves:
                    with self.clock.between_iterations("save"):
                        self.saving.save(iteration)
                if splits:
                    with self.clock.between_iterations("time split"):
                        self.time_split.measure()
            for read in waiting:
                read()

    def _read(self, iteration: int, result: Future, vote: jax.Array | None) -> None:
        """Waits for an iteration, evaluates after it if that is due, and logs it.

        Args:
            result: its metrics and the time of its end, see ``on_host``.
            vote: result of ``StopVote.cast`` after its dispatch.
        """
        metrics, now = result.result()
        seconds = self.clock.end_iteration(now)
        self.vote.read(vote)
        values = self.logging.read(iteration, metrics, seconds, self.time_split.divide(seconds))
        evaluates = self.evaluation.is_due(iteration)
        if evaluates:
            with self.clock.between_iterations("evaluation"):
                values |= self.evaluation.run()
        self.logging.write(iteration, values, always=evaluates)
