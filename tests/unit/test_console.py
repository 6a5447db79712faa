import io
import math
import os
import pty
import re

import pytest

from strl_jax.runners.log.console import Console

SCALARS = {
    "Loss/surrogate_loss": -0.01,
    "Loss/value_loss": 0.12,
    "Loss/entropy": -1.2,
    "Loss/learning_rate": 1e-3,
    "Policy/mean_noise_std": 0.98,
    "Perf/total_fps": 96_000.0,
    "Perf/collection time": 0.75,
    "Perf/memory_bytes": 3.0 * 2**30,
    "Train/mean_reward": 812.34,
    "Train/mean_episode_length": 812.0,
    "Train/env_steps": 1_200_000.0,
    "Episode_Reward/reward_forward": 3.25,
}


class FakeClock:
    def __init__(self):
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def plain(total: int, clock: FakeClock, start: int = 0) -> tuple[Console, io.StringIO]:
    stream = io.StringIO()
    return Console(total, start, stream, clock), stream


def on_terminal(monkeypatch, width: int, height: int, use) -> str:
    """Everything that a terminal of that size receives while ``use(console)`` runs."""
    for name, value in {"TERM": "xterm", "COLUMNS": str(width), "LINES": str(height)}.items():
        monkeypatch.setenv(name, value)
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as stream, Console(300, 0, stream) as console:
        use(console)
    chunks = []
    try:
        while chunk := os.read(leader, 4096):
            chunks.append(chunk)
    except OSError:  # how Linux reports that the other end is closed
        pass
    os.close(leader)
    return b"".join(chunks).decode()


def shown(received: str) -> list[str]:
    """The text of the last drawing, line by line."""
    last = received.rpartition("\x1b[2K")[2]  # all lines of the previous drawing are erased first
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r", "", last).splitlines()


def test_plain_line(clock):
    console, stream = plain(300, clock)
    console.update(1, {})
    clock.now = 8.0
    console.update(5, SCALARS)
    # eta: 8 s for 4 iterations, 295 to go: 590 s
    assert stream.getvalue().splitlines()[1] == (
        "it 5/300 | 1.20 M steps | 96k steps/s | reward 812.3 | length 812.0 | "
        "surrogate -0.01 value 0.12 entropy -1.2 | lr 1.0e-3 | std 0.98 | eta 0:09:50"
    )


def test_plain_lines_do_not_flood(clock):
    console, stream = plain(100, clock)
    with console:
        for iteration in range(1, 101):
            clock.now = 0.5 * iteration
            console.update(iteration, {"Eval/mean_return": 7.0} if iteration == 51 else {})
    shown = [int(re.match(r"it (\d+)/100", line)[1]) for line in stream.getvalue().splitlines()]
    # Every 4th from the first to 49; 51 evaluates; every 4th from there to 99; the last.
    assert shown == [*range(1, 50, 4), 51, *range(55, 100, 4), 100]


def test_the_last_line_comes_at_once(clock):
    console, stream = plain(2, clock)
    console.update(1, {})
    console.update(2, {})
    assert [line.split(" |")[0] for line in stream.getvalue().splitlines()] == ["it 1/2", "it 2/2"]


def test_an_interrupted_run_still_prints_its_last_line(clock):
    console, stream = plain(100, clock)
    with console:
        for iteration in (1, 2, 3):
            console.update(iteration, {})
    assert [line.split(" |")[0] for line in stream.getvalue().splitlines()] == ["it 1/100", "it 3/100"]


def test_evaluation_is_in_the_plain_line(clock):
    console, stream = plain(10, clock)
    console.update(1, {"Eval/mean_return": 923.44, "Eval/std_return": 12.0})
    assert "| eval mean return 923.4 std return 12 |" in stream.getvalue()


def test_notes_and_warnings(clock):
    console, stream = plain(10, clock)
    console.note("saved [last]")
    console.warn("3 environments were reset")
    assert stream.getvalue() == "saved [last]\nwarning: 3 environments were reset\n"


def test_quiet_prints_nothing(clock):
    stream = FakeTerminal()
    with Console(10, 0, stream, clock, quiet=True) as console:
        console.note("a")
        console.warn("b")
        console.update(10, SCALARS)
    assert stream.getvalue() == ""


def test_missing_and_unusable_values_do_not_raise(clock):
    console, stream = plain(2, clock)
    console.update(1, {})
    bad = dict.fromkeys(SCALARS, math.nan) | {"Loss/kl": math.inf, "Perf/total_fps": None}
    console.update(2, bad)
    first, second = stream.getvalue().splitlines()
    assert first == "it 1/2 | - steps | - steps/s | reward - | length - | lr - | std - | eta -"
    # No episode has ended yet: nothing to see. A loss that is not a number is shown.
    assert "reward - | length - |" in second
    assert "value nan" in second
    assert "kl inf" in second


@pytest.mark.parametrize(
    ("steps", "shown"),
    [(812, "812"), (999.7, "1.0k"), (9600, "9.6k"), (9999, "10k"), (999_900, "1.00 M"), (2.5e9, "2.50 G")],
)
def test_counts(steps, shown, clock):
    console, stream = plain(10, clock)
    console.update(1, {"Train/env_steps": steps})
    assert f"| {shown} steps |" in stream.getvalue()


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0, "0"), (-4.56e-5, "-4.6e-5"), (0.12345, "0.123"), (12345.678, "12345.7"), (2e7, "2.0e7")]
)
def test_numbers(value, shown, clock):
    console, stream = plain(10, clock)
    console.update(1, {"Loss/value_loss": value})
    assert f"| value {shown} |" in stream.getvalue()


def test_eta_goes_by_the_pace_after_a_resume(clock):
    console, stream = plain(110, clock, start=100)
    clock.now = 60.0  # the first iteration compiles
    console.update(101, {})
    clock.now = 64.0
    console.update(103, {})
    # 4 s for 2 iterations, 7 to go: 14 s
    assert stream.getvalue().splitlines()[-1].endswith("eta 0:00:14")


def test_a_terminal_gets_all_numbers(monkeypatch):
    def use(console):
        console.update(30, SCALARS | {"Eval/mean_return": 923.4})
        console.update(31, SCALARS)

    text = "\n".join(shown(on_terminal(monkeypatch, 80, 24, use)))
    for pattern in (
        r"31/300 .* elapsed 0:00:00 +eta",
        r"steps/s +96k +steps +1\.20 M",
        r"mean reward +812\.3 +episode length +812\.0",
        r"surrogate +-0\.01 +value +0\.12",
        r"learning rate +1\.0e-3",
        r"noise std +0\.98",
        r"evaluated at +30",
        r"eval mean return +923\.4",
        r"memory +3\.00 GiB",
        r"reward forward +3\.25",
    ):
        assert re.search(pattern, text), pattern


@pytest.mark.parametrize(("width", "height"), [(40, 5), (20, 2), (80, 1)])
def test_a_small_terminal(width, height, monkeypatch):
    def use(console):
        console.update(31, SCALARS | {f"Episode_Reward/reward_{number}": math.nan for number in range(60)})

    lines = shown(on_terminal(monkeypatch, width, height, use))
    assert lines[0].startswith("31/300")
    assert max(map(len, lines)) <= width


def test_a_pipe_gets_plain_lines_even_if_colour_is_forced(clock, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    console, stream = plain(1, clock)
    with console:
        console.update(1, SCALARS)
    assert "\x1b" not in stream.getvalue()
    assert stream.getvalue().startswith("it 1/1 |")


def test_a_dumb_terminal_gets_plain_lines(clock, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    stream = FakeTerminal()
    with Console(1, 0, stream, clock) as console:
        console.update(1, SCALARS)
    assert stream.getvalue().startswith("it 1/1 |")


def test_notes_stay_above_the_bar(monkeypatch):
    def use(console):
        console.update(1, SCALARS)
        console.note("saved [last] in a folder")
        console.update(2, SCALARS)

    before, after = on_terminal(monkeypatch, 80, 24, use).split("saved [last] in a folder")
    # The bar is drawn again under the note, and once more at the end.
    assert re.findall(r"\d+(?=/300)", after)[1:] == ["2"]
    # The cursor is shown again at once, so that a killed process does not leave it hidden.
    assert before.index("\x1b[?25l") < before.index("\x1b[?25h")


def test_a_metric_without_a_value_is_a_dash(clock):
    """The cost of transport of a robot that stands; a return that is not a number is shown."""
    console, stream = plain(1, clock)
    console.update(1, {"Eval/metric/CoT": math.nan, "Eval/metric/yaw_error": 0.5, "Eval/mean_return": math.nan})
    assert "eval metric/CoT - metric/yaw error 0.5 mean return nan" in stream.getvalue()
