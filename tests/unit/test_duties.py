"""Duties of a training loop, each without a loop."""

import math

import pytest

from strl_jax.config import Config
from strl_jax.runners.duties import evaluation, saving
from strl_jax.runners.duties.clock import IterationClock, is_due
from strl_jax.runners.duties.logging import SafeWriters
from strl_jax.runners.progress import Progress

INTERVALS = {"last_interval": 2, "save_interval": 3, "eval_interval": 2}


class Runner:
    """A runner that saves ``last`` and evaluates every 2 iterations, saves ``numbered`` every 3, and records saves."""

    def __init__(self, monkeypatch):
        self.saves, self.progress, self.checkpointer = [], Progress(), self
        self.config = Config(env={"name": "probe:value"}, runner=INTERVALS)
        for module in (saving, evaluation):
            monkeypatch.setattr(module, "save", lambda runner, kind: runner.record(kind))

    def record(self, kind):
        self.saves.append((kind, self.progress.iteration))

    def wait(self):
        self.saves.append("wait")


def test_intervals():
    assert [i for i in range(1, 13) if is_due(i, 4, 6)] == [4, 6, 8, 12]
    assert not any(is_due(i, 0) for i in range(1, 13))


def test_saving_at_intervals_and_at_the_end(monkeypatch):
    runner = Runner(monkeypatch)
    duty = saving.IntervalSaving(runner)
    for runner.progress.iteration in range(1, 8):
        if duty.is_due(runner.progress.iteration):
            duty.save(runner.progress.iteration)
    assert runner.saves == [("last", 2), ("numbered", 3), ("last", 4), ("last", 6), ("numbered", 6)]
    duty.finish()
    assert runner.saves[5:] == [("last", 7), ("numbered", 7), "wait"]


def test_without_a_run_folder_nothing_is_due(monkeypatch):
    runner = Runner(monkeypatch)
    runner.checkpointer = None
    duty = saving.IntervalSaving(runner)
    assert not duty.is_due(6)
    duty.finish()
    assert runner.saves == []


def test_only_a_better_score_is_the_best(monkeypatch):
    runner, scores = Runner(monkeypatch), iter([math.nan, 1.0, 1.0, math.nan, 2.0])
    monkeypatch.setattr(evaluation, "evaluate", lambda runner: {"Eval/mean_return": next(scores)})
    duty = evaluation.IntervalEvaluation(runner, 9)
    assert [i for i in range(1, 10) if duty.is_due(i)] == [2, 4, 6, 8, 9]
    for runner.progress.iteration in range(1, 6):
        duty.run()
    assert runner.saves == [("best", 2), ("best", 5)]
    assert runner.progress.best_score == 2.0


def test_the_first_error_of_a_writer_is_kept_and_the_others_write():
    class Recorder:
        def __init__(self, error=None):
            self.error, self.calls = error, []

        def write(self, iteration, values):
            self.calls.append(iteration)
            if self.error:
                raise self.error

        def close(self):
            self.calls.append("close")

    broken, good = Recorder(KeyError("tag")), Recorder()
    writers = SafeWriters([broken, good, Recorder(ValueError())])
    writers.write(1, {})
    writers.close()
    assert broken.calls == good.calls == [1, "close"]
    assert "runner.logger: Recorder failed: KeyError: 'tag'" in str(writers.error)
    assert isinstance(writers.error.__cause__, KeyError)


def test_time_between_iterations_belongs_to_no_iteration(monkeypatch):
    now = 100.0
    monkeypatch.setattr("time.perf_counter", lambda: now)
    progress = Progress(seconds=50.0)
    clock = IterationClock(progress)
    now = 103.0
    assert clock.end_iteration(now) == 3.0
    with clock.between_iterations("save"):
        now = 110.0
    assert clock.end_iteration(112.0) == 2.0
    assert progress.seconds == pytest.approx(62.0)  # 50 of earlier sessions + 12
    assert progress.report.state() == {"save": [7.0, 1]}
