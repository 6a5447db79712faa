import math

import pytest

from strl_jax.runners.progress import TimeReport


class FakeClock:
    def __init__(self):
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> FakeClock:
    clock = FakeClock()
    monkeypatch.setattr("time.perf_counter", clock)
    return clock


def test_sections_accumulate_seconds_and_counts(clock):
    report = TimeReport()
    for seconds in (1.5, 2.0):
        with report.section("collect"):
            clock.now += seconds
    report.add("compile", 30.0)
    # 1.5 + 2.0 in two visits
    assert report.state() == {"collect": [3.5, 2], "compile": [30.0, 1]}


def test_a_section_that_raises_is_counted(clock):
    report = TimeReport()

    def save_on_full_disk():
        with report.section("save"):
            clock.now += 4.0
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        save_on_full_disk()
    assert report.state() == {"save": [4.0, 1]}


def test_lines_are_aligned_largest_first_and_total_last():
    report = TimeReport()
    report.add("save", 10.0)
    report.add("iterations", 29.0)
    report.add("iterations", 1.0)
    # 30 + 10 = 40 s: 75 % and 25 %
    lines = report.lines()
    assert [line.split() for line in lines] == [
        ["section", "seconds", "share", "count"],
        ["iterations", "30.00", "75.0", "%", "2"],
        ["save", "10.00", "25.0", "%", "1"],
        ["total", "40.00", "100.0", "%"],
    ]
    assert [line.index(".") for line in lines[1:]] == [lines[1].index(".")] * 3


def test_an_empty_report_has_a_total_of_zero():
    assert TimeReport().lines()[-1].split() == ["total", "0.00", "0.0", "%"]


def test_totals_continue_after_a_resume():
    report = TimeReport()
    report.add("save", 10.0)
    restored = TimeReport(report.state())
    restored.add("save", 2.0)
    assert restored.state() == {"save": [12.0, 2]}


@pytest.mark.parametrize("seconds", [-1.0, math.nan])
def test_impossible_times_are_refused(seconds):
    with pytest.raises(ValueError, match=r"time of section 'save' is .*; it must be 0 or more seconds"):
        TimeReport().add("save", seconds)
