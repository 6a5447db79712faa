"""Arguments of functions that a config names: what each may be, and what is wrong with those given."""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

LARGEST = 10**9  # iterations and twice their periods are int32


class Allowed(NamedTuple):
    """What an argument may be: in words that fit behind "it must be", and whether a value is that."""

    words: str
    fits: Callable[[Any], bool]


class Fault(NamedTuple):
    """What is wrong with one argument.

    Attributes:
        key: the argument.
        value: what was given; None where nothing was.
        what: ``unknown``, ``missing`` or ``wrong``.
        allowed: the arguments that there are, else what this one must be.
    """

    key: str
    value: Any
    what: str
    allowed: str

    def __str__(self) -> str:
        if self.what == "unknown":
            return f"unknown argument {self.key!r}; it takes {self.allowed}"
        value = "null" if self.value is None else repr(self.value)  # as in YAML
        found = "is missing" if self.what == "missing" else f"{value} is not allowed"
        return f"{self.key} {found}; it must be {self.allowed}"


def parameters(function: Callable, skip: int = 0) -> dict[str, inspect.Parameter]:
    """The parameters of a function by name, without the first ``skip``."""
    return dict(list(inspect.signature(function).parameters.items())[skip:])


def faults(
    known: Mapping[str, inspect.Parameter], allowed: Mapping[str, Allowed], given: Mapping[str, Any]
) -> Iterator[Fault]:
    """What is wrong with the arguments ``given`` to a function with the parameters ``known``, each argument alone.

    Parameters that ``allowed`` does not know are not taken. None is right where it is the default.
    """
    known = {key: parameter for key, parameter in known.items() if key in allowed}
    for key, value in given.items():
        if key not in known:
            yield Fault(key, value, "unknown", ", ".join(known))
        elif not (allowed[key].fits(value) or (value is None and known[key].default is None)):
            yield Fault(key, value, "wrong", allowed[key].words)
    for key, parameter in known.items():
        if key not in given and parameter.default is inspect.Parameter.empty:
            yield Fault(key, None, "missing", allowed[key].words)


def is_number(value: Any) -> bool:
    """Whether it is an integer or a finite float, and no bool."""
    return type(value) in (int, float) and -math.inf < value < math.inf


def within(least: float, most: float) -> Allowed:
    """A number from ``least`` to ``most``."""
    return Allowed(f"a number from {least:g} to {most:g}", lambda value: is_number(value) and least <= value <= most)


def above_0(most: float) -> Allowed:
    """A number above 0, up to ``most``."""
    return Allowed(f"a number above 0, up to {most:g}", lambda value: is_number(value) and 0 < value <= most)


def count(least: int = 1) -> Allowed:
    """An integer from ``least`` to ``LARGEST``."""
    words = f"an integer from {least} to {LARGEST}"
    return Allowed(words, lambda value: type(value) is int and least <= value <= LARGEST)


FRACTION = within(0, 1)
FACTOR = above_0(1000)
POWER = within(1e-3, 1e3)  # beyond it float32 knows but 0 and 1
RATE = within(0, 1e3)  # of learning: beyond it no step is finite
