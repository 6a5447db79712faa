"""Error messages of a config: one line for each fault."""

import difflib
import json
import os
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from strl_jax.config.values import find_model, model_names, plain

MAX_LINES = 10
PATTERNS = {  # in words
    r"^[^/\x00]*$": "a string without a /",
    r"^[^./\x00][^/\x00]*$": "a name without a / that does not begin with a dot",
    r"^\d+$": "digits",
    r"^Eval/.": "a name that begins with Eval/, as in the log",
}
UNNAMED = ("union_tag_invalid", "union_tag_not_found")  # the name is unknown, or missing
SIGNS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}  # pydantic's names of bounds, in fields and in errors
NUMERIC = ("int_type", "float_type", "int_from_float")
IN_WORDS = {  # pydantic's types of errors
    "float_type": "a number",
    "finite_number": "a finite number",
    "int_type": "an integer",
    "bool_type": "true or false",
    "string_type": "a string",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "too_short": "a list that is not empty",
    "string_too_short": "a string that is not empty",
}
Model = TypeVar("Model", bound=BaseModel)
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


@contextmanager
def reported_after(start: str) -> Iterator[None]:
    """Raises a ``ValueError`` of the block as ``ConfigError`` with ``start`` before its message.

    A ``ConfigError`` is not changed: its lines already begin with their keys.
    """
    try:
        yield
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"{start}{error}") from None


class Problem(NamedTuple):
    """A fault at the key ``path`` of the config; ``path`` is empty where the text names the key."""

    path: tuple
    text: str

    def __str__(self) -> str:
        return f"{dotted(self.path)}: {self.text}" if self.path else self.text


def dotted(path: Sequence) -> str:
    """``("a", "b", 0)`` to ``a.b.0``."""
    return ".".join(str(part) for part in path)


def show(value: Any) -> str:
    """A value in a message, at most 80 characters; null, true and false as in YAML."""
    text = json.dumps(value) if value is None or isinstance(value, bool) else repr(plain(value))
    if len(text) <= 80:
        return text
    end = text[-1] if text[-1] in "'\"])}" else ""  # a quote or bracket that was opened is closed
    return text[: 77 - len(end)] + "..." + end


def raised(error: BaseException) -> str:
    """An exception of the user's code: type, first line of the message, file and line."""
    message = next(iter(str(error).splitlines()), "")
    message = message if len(message) <= 300 else message[:297] + "..."
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_library(frame.filename)]
    return f"{text} ({own[-1].filename}:{own[-1].lineno})" if own else text


def _is_library(filename: str) -> bool:
    """Whether a file belongs to this package, to JAX or to the import system, so that it is not shown."""
    return filename.startswith(("<frozen", HERE)) or f"{os.sep}jax{os.sep}" in filename or "importlib" in filename


def nearest(name: Any, choices: Iterable[str]) -> str | None:
    """The choice that is most similar to ``name``, ignoring case; None if none is similar."""
    by_lower = {choice.lower(): choice for choice in choices}
    lower = str(name).lower()
    matches = difflib.get_close_matches(lower, list(by_lower), n=1)
    matches += [choice for choice in by_lower if lower and choice.startswith(lower)]
    return by_lower[matches[0]] if matches else None


def hint(name: Any, choices: Iterable[str]) -> str:
    """``; nearest is NAME``, or an empty string."""
    choice = nearest(name, choices)
    return f"; nearest is {choice}" if choice else ""


def not_one_of(name: Any, choices: Sequence[str]) -> str:
    """The error text for a name that is not one of ``choices``."""
    return f"{show(name)} is not allowed; {must_be_one_of(choices)}{hint(name, choices)}"


def must_be_one_of(choices: Sequence[str]) -> str:
    """The part of an error text that lists the allowed names."""
    return f"it must be one of {', '.join(choices)}"


def validated(model: type[Model], data: dict, line: Callable[[Problem], str], strict: bool | None = True) -> Model:
    """``data`` as a model; raises ``ConfigError`` with the ``line`` of each fault.

    Args:
        strict: values are not converted to the types of their fields; None: as each field says.
    """
    try:
        return model.model_validate(data, strict=strict)
    except ValidationError as error:
        raise ConfigError(*map(line, _problems(error, data, model))) from None


def _problems(error: ValidationError, data: dict, model: type[BaseModel]) -> list[Problem]:
    """The faults that pydantic reports for ``data``, one for each path.

    A union reports each of its members: those with the same path become one line. A fault
    of a section is left out where one inside this section is reported.
    """
    by_path: dict[tuple, list[dict]] = {}
    for details in error.errors(include_url=False):
        by_path.setdefault(_path(details, data, model), []).append(details)
    return [
        Problem(path, _text(path, errors, model))
        for path, errors in by_path.items()
        if not any(other != path and other[: len(path)] == path for other in by_path if path)
    ]


def _path(details: dict, data: Any, model: type[BaseModel]) -> tuple:
    """The keys that lead to an error: pydantic's location without the names of union members."""
    path: list = []
    kind, location = details["type"], details["loc"]
    for part in location:
        owner = find_model(model, tuple(path), location)
        known = part in data if isinstance(data, dict) else isinstance(data, list | tuple) and part in range(len(data))
        if known or (owner is not None and part in owner.model_fields):
            path.append(part)
            data = data[part] if known else None
    if kind in ("missing", "invalid_key") and path[-1:] != [location[-1]]:
        path.append(location[-1])  # the key is not in the data, or is no string
    if kind in UNNAMED:
        path.append("name")
    return (*path, *_inner_keys(details)[0]) if kind == "value_error" else tuple(path)


def _inner_keys(details: dict) -> tuple[tuple, str]:
    """The keys with which a section's validator begins its message (``key.key: text``), if any, and the text."""
    message = str(details["ctx"]["error"])
    keys = re.match(r"(\w+(?:\.\w+)*): ", message) if isinstance(details["input"], dict) else None
    return (tuple(keys[1].split(".")), message[keys.end() :]) if keys else ((), message)


def _text(path: tuple, errors: list[dict], model: type[BaseModel]) -> str:
    kind, value = errors[0]["type"], errors[0]["input"]
    number = _number_in_words(find_model(model, path[:-1], errors[0]["loc"]), path[-1] if path else None)
    if kind == "missing":
        if isinstance(path[-1], int):
            return "it is missing: the list is too short"
        return f"it is missing; it must be {number}" if number else "it is missing and has no default"
    if kind in ("extra_forbidden", "invalid_key"):
        return _unknown_key(path, model, errors[0]["loc"])
    if kind in UNNAMED:
        names = model_names(find_model(model, path[:-2]).model_fields[path[-2]].annotation)
        return not_one_of(value["name"], names) if "name" in value else f"it is missing; {must_be_one_of(names)}"
    if kind == "value_error":
        keys, message = _inner_keys(errors[0])
        section = isinstance(value, dict) and find_model(model, path) is not None  # too long for a message
        return message if keys or section else f"{show(value)} is not allowed; {message}"
    allowed = list(dict.fromkeys(number if number and kind in NUMERIC else _allowed(details) for details in errors))
    names = [name for details in errors for name in _literals(details)]
    return f"{show(value)} is not allowed; it must be {' or '.join(allowed)}{hint(value, names)}"


def _number_in_words(owner: type[BaseModel] | None, key: Any) -> str | None:
    """The numbers that a field takes, with their bounds; None for a field that takes something else too."""
    if owner is None or key not in owner.model_fields:
        return None
    field = owner.model_fields[key]
    kind = {int: "an integer", float: "a number"}.get(field.annotation)
    bounds = [(name, getattr(bound, name)) for name in SIGNS for bound in field.metadata if hasattr(bound, name)]
    words = " and ".join(f"{SIGNS[name]} {value:.12g}" for name, value in bounds)
    return f"{kind} {words}".strip() if kind else None


def _unknown_key(path: tuple, root: type[BaseModel], tags: tuple) -> str:
    key, owner = path[-1], find_model(root, path[:-1], tags)
    here = [name for name in owner.model_fields if name.startswith(str(key))]
    elsewhere = [name for name in _all_names(root) if name.rpartition(".")[2] == key]
    near = (here or elsewhere or [nearest(key, owner.model_fields)])[0]
    return f"unknown key; nearest is {near}" if near else f"unknown key; known are {', '.join(owner.model_fields)}"


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
    """What is allowed, in words, for one of pydantic's errors."""
    kind, context = details["type"], details.get("ctx", {})
    if kind == "literal_error":
        return f"one of {', '.join(_literals(details))}"
    bound = next(iter(context), None)
    if bound in SIGNS:
        return f"{SIGNS[bound]} {context[bound]:.12g}"
    if kind == "too_long":
        return f"a list of {context['max_length']}"
    if kind == "string_pattern_mismatch":
        return PATTERNS.get(context["pattern"], f"a string that matches {context['pattern']}")
    return IN_WORDS.get(kind, details["msg"])
