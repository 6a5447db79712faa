import math

import pytest

from strl_jax.runners.progress import EpisodeWindow


def test_mean_of_an_empty_window_is_nan():
    assert math.isnan(EpisodeWindow().mean())


def test_only_the_newest_values_count():
    window = EpisodeWindow(length=3)
    window.extend([1.0, 2.0])
    window.extend([3.0, 10.0])
    # (2 + 3 + 10) / 3
    assert window.mean() == 5.0
    assert window.state() == [2.0, 3.0, 10.0]


def test_default_window_is_100_episodes():
    window = EpisodeWindow()
    window.extend(range(150))
    # mean of 50 ... 149
    assert window.mean() == 99.5


def test_nan_is_left_out():
    window = EpisodeWindow(length=2)
    window.extend([4.0, math.nan, 6.0, math.nan])
    assert window.state() == [4.0, 6.0]


def test_a_restored_window_goes_on_as_the_first_one():
    window = EpisodeWindow(length=3)
    window.extend([0.1, 0.2, 0.3])
    restored = EpisodeWindow.from_state(window.state(), length=3)
    for each in (window, restored):
        each.extend([0.7])
    assert restored.state() == window.state() == [0.2, 0.3, 0.7]
    assert restored.mean() == window.mean()


def test_from_state_keeps_the_newest_that_fit():
    assert EpisodeWindow.from_state([1.0, 2.0, 3.0], length=2).state() == [2.0, 3.0]


def test_length_under_one_is_refused():
    with pytest.raises(ValueError, match="window length is 0; it must be at least 1"):
        EpisodeWindow(length=0)
