"""One line for everything that can be wrong in a config."""

import difflib
import json
import os
import re
import traceback
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from strl_jax.config.values import find_model, plain

MAX_LINES = 10
PATTERNS = {  # in words
    r"^[^/\x00]*$": "a string without a /",
    r"^[^./\x00][^/\x00]*$": "a name without a / that does not begin with a dot",
    r"^\d+$": "digits",
}
HERE = os.path.dirname(os.path.dirname(__file__)) + os.sep  # the package


class ConfigError(ValueError):
    """A config that cannot be used.

    Attributes:
        lines: one for each fault, at most ``MAX_LINES``; the message is these lines.
    """

    def __init__(self, *lines: str):
        if len(lines) > MAX_LINES:
            lines = (*lines[: MAX_LINES - 1], f"... and {len(lines) - MAX_LINES + 1} more")
        self.lines = tuple(" ".join(line.split()) for line in lines)
        super().__init__("\n".join(self.lines))


class Problem(NamedTuple):
    """A fault at a place of the config; no path where the text names the place itself."""

    path: tuple
    text: str


def dotted(path: Sequence) -> str:
    """``("a", "b", 0)`` to ``a.b.0``."""
    return ".".join(str(part) for part in path)


def show(value: Any) -> str:
    """A value as it stands in a message, shortened; null, true and false as in YAML."""
    text = json.dumps(value) if value is None or isinstance(value, bool) else repr(plain(value))
    if len(text) <= 80:
        return text
    end = text[-1] if text[-1] in "'\"])}" else ""  # what is opened is closed
    return text[: 77 - len(end)] + "..." + end


def raised(error: BaseException) -> str:
    """An exception of somebody else's code: type, first line of the message, and where it came from in that code."""
    message = next(iter(str(error).splitlines()), "")
    message = message if len(message) <= 300 else message[:297] + "..."
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_library(frame.filename)]
    return f"{text} ({own[-1].filename}:{own[-1].lineno})" if own else text


def _is_library(filename: str) -> bool:
    """Frames of this package, of JAX and of the import system, which hold no fault."""
    return filename.startswith(("<frozen", HERE)) or f"{os.sep}jax{os.sep}" in filename or "importlib" in filename


def nearest(name: Any, choices: Iterable[str]) -> str | None:
    """The choice that is most like ``name``, in any case of letters; None if none is."""
    by_lower = {choice.lower(): choice for choice in choices}
    lower = str(name).lower()
    found = difflib.get_close_matches(lower, list(by_lower), n=1)
    found += [choice for choice in by_lower if lower and choice.startswith(lower)]
    return by_lower[found[0]] if found else None


def hint(name: Any, choices: Iterable[str]) -> str:
    """``; nearest is NAME``, or nothing."""
    found = nearest(name, choices)
    return f"; nearest is {found}" if found else ""


def not_one_of(name: Any, choices: Sequence[str]) -> str:
    """What is wrong with a name that is none of ``choices``."""
    return f"{show(name)} is not allowed; it must be one of {', '.join(choices)}{hint(name, choices)}"


def problems_of(error: ValidationError, data: dict, model: type[BaseModel]) -> list[Problem]:
    """Pydantic's findings for ``data``, one for each place.

    A union reports each of its members; those that stand at the same place become
    one line, and what is wrong inside a value says more than that it is wrong.
    """
    places: dict[tuple, list[dict]] = {}
    for details in error.errors(include_url=False):
        places.setdefault(_path(details, data), []).append(details)
    return [_placed(Problem(path, _text(path, found, model)), data) for path, found in places.items()]


def _placed(problem: Problem, data: Any) -> Problem:
    """A fault of the whole config at the place that its text begins with, if it does."""
    key, colon, text = problem.text.partition(": ")
    if problem.path or not colon:
        return problem
    path = tuple(key.split("."))
    for name in path:
        if not isinstance(data, dict) or name not in data:
            return problem
        data = data[name]
    return Problem(path, text)


def deepest(problems: Sequence[Problem]) -> list[Problem]:
    """Without those of a place inside which, or at which, another was found before."""
    kept: list[Problem] = []
    for problem in sorted(problems, key=lambda p: -len(p.path)):
        inside = any(problem.path and other.path[: len(problem.path)] == problem.path for other in kept)
        kept += [] if inside else [problem]
    return [problem for problem in problems if problem in kept]


def _path(details: dict, data: Any) -> tuple:
    """Where an error lies in ``data``: pydantic's location without the names of union members."""
    path: list = []
    for part in details["loc"]:
        known = part in data if isinstance(data, dict) else isinstance(data, list | tuple) and part in range(len(data))
        if known:
            path.append(part)
            data = data[part]
    if details["type"] in ("missing", "invalid_key") and path[-1:] != [details["loc"][-1]]:
        path.append(details["loc"][-1])  # not a key of the data, or one that is no string
    return tuple(path)


def _text(path: tuple, found: list[dict], model: type[BaseModel]) -> str:
    kind, value = found[0]["type"], found[0]["input"]
    if kind == "missing":
        return (
            "it is missing: the list is too short" if isinstance(path[-1], int) else "it is missing and has no default"
        )
    if kind in ("extra_forbidden", "invalid_key"):
        return _unknown_key(path, model)
    if kind == "value_error":
        message = str(found[0]["ctx"]["error"])
        section = isinstance(value, dict) and find_model(model, path) is not None  # too long to be shown
        return message if section else f"{show(value)} is not allowed; {message}"
    allowed = list(dict.fromkeys(_allowed(details) for details in found))
    names = [name for details in found for name in _literals(details)]
    return f"{show(value)} is not allowed; it must be {' or '.join(allowed)}{hint(value, names)}"


def _unknown_key(path: tuple, root: type[BaseModel]) -> str:
    key, owner = path[-1], find_model(root, path[:-1])
    here = [name for name in owner.model_fields if name.startswith(str(key))]
    elsewhere = [name for name in _all_names(root) if name.rpartition(".")[2] == key]
    found = (here or elsewhere or [nearest(key, owner.model_fields)])[0]
    return f"unknown key; nearest is {found}" if found else f"unknown key; known are {', '.join(owner.model_fields)}"


def _all_names(model: type[BaseModel], prefix: str = "") -> list[str]:
    names = []
    for name in model.model_fields:
        names.append(prefix + name)
        inner = find_model(model, (name,))
        names += _all_names(inner, f"{prefix}{name}.") if inner else []
    return names


def _literals(details: dict) -> list[str]:
    return re.findall(r"'([^']*)'", details["ctx"]["expected"]) if details["type"] == "literal_error" else []


def _allowed(details: dict) -> str:
    """What pydantic's error type says is allowed."""
    kind, context = details["type"], details.get("ctx", {})
    if kind == "literal_error":
        return f"one of {', '.join(_literals(details))}"
    for name, sign in (
        ("greater_than", ">"),
        ("greater_than_equal", ">="),
        ("less_than", "<"),
        ("less_than_equal", "<="),
    ):
        if kind == name:
            return f"{sign} {next(iter(context.values())):.12g}"
    if kind == "too_long":
        return f"a list of {context['max_length']}"
    if kind == "string_pattern_mismatch":
        return PATTERNS.get(context["pattern"], f"a string that matches {context['pattern']}")
    plain = {
        "float_type": "a number",
        "finite_number": "a finite number",
        "int_type": "an integer",
        "bool_type": "true or false",
        "string_type": "a string",
        "tuple_type": "a list",
        "dict_type": "a mapping",
        "model_type": "a mapping",
        "too_short": "not empty",
        "string_too_short": "not empty",
    }
    return plain.get(kind, details["msg"])
