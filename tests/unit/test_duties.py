"""Duties of a training loop, each without a loop."""

import math

import pytest

from strl_jax.runners.duties.clock import IterationClock, is_due
from strl_jax.runners.duties.evaluation import IntervalEvaluation
from strl_jax.runners.duties.logging import SafeWriters
from strl_jax.runners.duties.saving import IntervalSaving
from strl_jax.runners.progress import Progress


class Saver:
    """Records the kind and the iteration of each save."""

    def __init__(self):
        self.saves, self.checkpointer = [], self

    def save(self, kind, progress, train, rollout=None):
        self.saves.append((kind, progress.iteration))

    def wait(self):
        self.saves.append("wait")


def test_intervals():
    assert [i for i in range(1, 13) if is_due(i, 4, 6)] == [4, 6, 8, 12]
    assert not any(is_due(i, 0) for i in range(1, 13))


def test_saving_at_intervals_and_at_the_end():
    saver, progress = Saver(), Progress()
    saving = IntervalSaving(saver, progress, last_interval=2, numbered_interval=3)
    for progress.iteration in range(1, 8):
        if saving.is_due(progress.iteration):
            saving.save(progress.iteration, "train", "rollout")
    assert saver.saves == [("last", 2), ("numbered", 3), ("last", 4), ("numbered", 6), ("last", 6)]
    saving.finish("train", "rollout")
    assert saver.saves[5:] == [("numbered", 7), ("last", 7), "wait"]


def test_no_numbered_checkpoint_but_the_last():
    saver, progress = Saver(), Progress()
    saving = IntervalSaving(saver, progress, last_interval=2, numbered_interval=0)
    for progress.iteration in range(1, 5):
        if saving.is_due(progress.iteration):
            saving.save(progress.iteration, "train", "rollout")
    saving.finish("train", "rollout")
    assert saver.saves == [("last", 2), ("last", 4), ("numbered", 4), ("last", 4), "wait"]


def test_without_a_saver_nothing_is_due():
    saving = IntervalSaving(None, Progress(), 1, 1)
    assert not saving.is_due(1)
    saving.finish("train", "rollout")


def test_only_a_better_score_is_the_best():
    scores, saved, progress = iter([math.nan, 1.0, 1.0, math.nan, 2.0]), [], Progress()
    duty = IntervalEvaluation(lambda _: {"Eval/mean_return": next(scores)}, progress, 2, 9, saved.append)
    assert [i for i in range(1, 10) if duty.is_due(i)] == [2, 4, 6, 8, 9]
    for train in "abcde":
        duty.run(train)
    assert saved == ["b", "e"]
    assert progress.best_score == 2.0


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
