"""The mean over the last episodes."""

import math

from strl_jax.runners.progress import EpisodeWindow


def test_mean_of_an_empty_window_is_nan():
    assert math.isnan(EpisodeWindow().mean())


def test_only_the_newest_100_values_count():
    window = EpisodeWindow()
    window.extend(range(60))
    window.extend(range(60, 150))
    # mean of 50 ... 149
    assert window.mean() == 99.5
    assert window.state() == list(range(50, 150))
    assert len(window) == 100


def test_nan_is_skipped():
    window = EpisodeWindow()
    window.extend([4.0, math.nan, 6.0, math.nan])
    assert window.state() == [4.0, 6.0]


def test_a_restored_window_continues_like_the_first_one():
    window = EpisodeWindow(range(100))
    restored = EpisodeWindow(window.state())
    for each in (window, restored):
        each.extend([0.7])
    assert restored.state() == window.state() == [*range(1, 100), 0.7]
    assert restored.mean() == window.mean()
