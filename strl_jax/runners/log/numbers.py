"""Numbers as short text for the console."""

import math
from datetime import timedelta

MISSING = "-"


def number(value: float | None) -> str:
    """About three digits: 0.12345 -> "0.123", 2e7 -> "2.0e7"; "nan" and "inf" as they are."""
    if value is None:
        return MISSING
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    if size >= 1e6 or 0.0 < size < 1e-3:
        return _exponent(value)
    return f"{value:.1f}" if size >= 100.0 else f"{value:.3g}"


def episode_mean(value: float | None) -> str:
    """As ``number``, but "-" for NaN: no episode has ended yet."""
    return MISSING if value is None or math.isnan(value) else number(value)


def rate(value: float | None) -> str:
    """A learning rate: 0.001 -> "1.0e-3"."""
    return _exponent(value) if value is not None and math.isfinite(value) else number(value)


def count(value: float | None) -> str:
    """A count: 812 -> "812", 9600 -> "9.6k", 96000 -> "96k", 1200000 -> "1.20 M"."""
    if value is None or not math.isfinite(value):
        return number(value)
    for unit, size in ((" G", 1e9), (" M", 1e6)):
        if value >= 0.9995 * size:
            return f"{value / size:.2f}{unit}"
    if value < 999.5:
        return f"{value:.0f}"
    return f"{value / 1e3:.1f}k" if value < 9950.0 else f"{value / 1e3:.0f}k"


def memory(value: float | None) -> str:
    """Bytes in MiB or GiB."""
    if value is None or not math.isfinite(value):
        return number(value)
    return f"{value / 2**30:.2f} GiB" if value >= 2**30 else f"{value / 2**20:.0f} MiB"


def duration(seconds: float) -> str:
    """Hours, minutes, seconds: 72.4 -> "0:01:12"."""
    return str(timedelta(seconds=round(seconds)))


def _exponent(value: float) -> str:
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"
