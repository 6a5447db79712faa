"""Reading YAML files and overrides; each error is one line."""

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from strl_jax.config.errors import ConfigError, hint, show
from strl_jax.config.values import plain


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader that refuses duplicate keys and reads ``1e-3`` as a number, as YAML 1.2 does."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", key_node.start_mark)
            seen |= {key} if isinstance(key, Hashable) else set()
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)[eE][-+]?\d+$"), list("-+0123456789.")
)


IN_WORDS = {list: "a list", str: "a string", bool: "true or false", int: "a number", float: "a number"}


def read(path: str | Path) -> dict:
    """The mapping in a YAML file.

    Raises:
        ConfigError: the file is missing, cannot be read, is not YAML, has a key twice, or
            is not a mapping.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        others = [other.name for other in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
        raise ConfigError(f"{path}: no such file{hint(path.name, others)}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not a text file in UTF-8") from None
    data = parse(text, str(path))
    if not isinstance(data, dict):
        kind = "empty" if data is None else IN_WORDS.get(type(data), "a single value")
        raise ConfigError(f"{path}: a config is a mapping of sections (env, policy, algorithm, runner); this is {kind}")
    return data


def parse(text: str, where: str) -> Any:
    """The value of a YAML text, with aliases copied. Raises ``ConfigError`` that names ``where`` and the line."""
    try:
        value = plain(yaml.load(text, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{where}{line}: not valid YAML: {error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(f"{where}, line {line}: not valid YAML: {error.reason}") from None
    except (ValueError, RecursionError) as error:  # an impossible date, or endless nesting
        raise ConfigError(f"{where}: not valid YAML: {error}") from None
    if _has_null(value):
        raise ConfigError(f"{where}: a string in it has a null character, which is not allowed in names and paths")
    return value


def _has_null(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_null(item) for pair in value.items() for item in pair)
    return any(map(_has_null, value)) if isinstance(value, list) else isinstance(value, str) and "\0" in value


def parse_override(text: str) -> tuple[tuple[str, ...], Any]:
    """``a.b.c=VALUE`` to path and value; the value is YAML.

    Raises:
        ConfigError: no ``=``, an empty part of the key, or a value that is not YAML.
    """
    key, sign, value = text.partition("=")
    path = tuple(key.strip().split("."))
    if not sign or not all(path):
        raise ConfigError(f"override {show(text)}: it must be section.key=VALUE")
    return path, parse(value, f"override {show(text)}")
