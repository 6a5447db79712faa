"""Conversion of values to the type of their field, before pydantic's strict check.

The check is strict: ``true`` is not a number, and ``1`` is not a bool. These values are
converted first: numbers in quotes (and ``1e-3``, which PyYAML reads as a string), ``1e6``
for an integer, and lists for tuples.
"""

import re
import types
from collections.abc import Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def plain(value: Any) -> Any:
    """A copy that consists of dicts and lists, none of which is used twice or shared with ``value``."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def members(annotation: Any) -> list[Any]:
    """The members of a union type without constraints; of another type, the type itself."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return members(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [kind for arg in get_args(annotation) for kind in members(arg)]
    return [annotation]


def items(annotation: Any) -> list[Any]:
    """``members``, and the members of the item types of lists among them."""
    kinds = members(annotation)
    inner = [get_args(kind)[0] for kind in kinds if get_origin(kind) is tuple]
    return kinds + [kind for item in inner for kind in members(item)]


def is_model(kind: Any) -> bool:
    """Whether a type is a pydantic model."""
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def find_model(root: type[BaseModel], path: tuple, tags: tuple = ()) -> type[BaseModel] | None:
    """The model of the section ``path``; None if there is none.

    Args:
        tags: where a field allows several models, the one whose ``name`` is in ``tags`` is chosen.
    """
    model = root
    for name in path:
        if isinstance(name, int):  # an item of a list
            continue
        if model is None or name not in model.model_fields:
            return None
        models = [kind for kind in items(model.model_fields[name].annotation) if is_model(kind)]
        named = [kind for kind in models if len(models) == 1 or _name_of(kind) in tags]
        model = named[0] if named else None
    return model


def model_names(annotation: Any) -> tuple[str, ...]:
    """Names of the models of a discriminated union: the only value that each allows for its field ``name``."""
    return tuple(filter(None, map(_name_of, items(annotation))))


def _name_of(kind: Any) -> str | None:
    field = kind.model_fields.get("name") if is_model(kind) else None
    return None if field is None else next(iter(get_args(field.annotation)), None)


def coerce(annotation: Any, value: Any) -> Any:
    """``value`` converted to the type of its field where this is unambiguous, otherwise unchanged."""
    kinds = members(annotation)
    if isinstance(value, str) and str not in kinds:
        return _from_text(kinds, value)
    if isinstance(value, float) and int in kinds and float not in kinds and value.is_integer():
        return int(value)
    if isinstance(value, list):
        inner = next((get_args(kind)[0] for kind in kinds if get_origin(kind) is tuple), None)
        return value if inner is None else tuple(coerce(inner, item) for item in value)
    if isinstance(value, dict):
        return _from_mapping(kinds, value)
    return value


def _from_text(kinds: list, text: str) -> Any:
    if len(text) > 400 or not NUMBER.fullmatch(text):  # longer than any number
        return text
    if float in kinds:
        return float(text)
    return coerce(int, float(text) if not text.lstrip("+-").isdigit() else int(text)) if int in kinds else text


def _from_mapping(kinds: list, value: dict) -> dict:
    models = [kind for kind in kinds if is_model(kind)]
    numeric = float in kinds and any(get_origin(kind) is dict for kind in kinds)  # or name -> number
    if len(models) > 1 or numeric:  # several models are schedules: all their arguments are numbers
        return _numbers(value)
    fields = models[0].model_fields if models else {}
    return {key: coerce(fields[key].annotation, item) if key in fields else item for key, item in value.items()}


def _numbers(value: Any) -> Any:
    """Numeric strings as numbers, in keys too."""
    if isinstance(value, dict):
        return {_numbers(key): _numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    if not isinstance(value, str) or not NUMBER.fullmatch(value):
        return value
    return int(value) if value.lstrip("+-").isdigit() else float(value)
