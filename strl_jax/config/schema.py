"""JSON schema of a config, with descriptions from the docstrings."""

import inspect
import re
from typing import Any

from pydantic import BaseModel

from strl_jax.config.values import is_model, items

ENTRY = re.compile(r"^ {4}(\w+(?:, \w+)*): (.*(?:\n {8}.*)*)", re.MULTILINE)  # names, and the text in one or more lines


def describe(model: type[BaseModel]) -> dict[str, str]:
    """Field name to its text in the ``Attributes`` section of the docstring."""
    texts: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base is not BaseModel:
            _, _, section = inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")
            for names, text in ENTRY.findall(section):
                texts |= dict.fromkeys(names.split(", "), " ".join(text.replace("``", "").split()))
    return texts


def json_schema(root: type[BaseModel]) -> dict[str, Any]:
    """The schema of ``root``; it allows no unknown keys."""
    schema = root.model_json_schema()
    models = [root]
    while models:
        model = models.pop()
        target = schema if model is root else schema["$defs"][model.__name__]
        target["description"] = (inspect.getdoc(model) or "").split("\n", 1)[0]
        texts = describe(model)
        for name, entry in target["properties"].items():
            entry["description"] = texts[name]
            models += [kind for kind in items(model.model_fields[name].annotation) if is_model(kind)]
    return schema
