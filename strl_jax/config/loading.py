"""Reading a config from YAML or from a ``train_cfg`` dict, checking it, and writing it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from strl_jax.config import legacy, schema, yaml_file
from strl_jax.config.errors import ConfigError, Problem, dotted, show, validated
from strl_jax.config.sections import Config, RunnerConfig, any_config, config_class
from strl_jax.config.values import coerce, plain


def load(path: str | Path, overrides: Sequence[str] = ()) -> tuple[Config, list[str]]:
    """Reads a YAML file and replaces single values.

    Args:
        path: the file.
        overrides: ``section.key=VALUE``, where the value is YAML.

    Returns:
        The config, and a warning line for each key that has no meaning here.

    Raises:
        ConfigError: one line for each fault of the file, the values or the overrides.
    """
    data = yaml_file.read(path)
    warnings = legacy.translate(data)
    given = {}
    for text in overrides:
        values, lines = legacy.translate_override(*yaml_file.parse_override(text))
        warnings += lines
        for key, value in values:
            _set(data, key, value, text)
            given[key] = text
    return _validate(data, given), list(dict.fromkeys(warnings))


def from_dict(data: Mapping) -> tuple[Config, list[str]]:
    """A config from a dict, which may be a ``train_cfg`` of st_rl, legged_gym or rsl_rl.

    Args:
        data: mapping with the sections ``runner``, ``algorithm``, ``policy`` and ``env``, as well as ``seed``
            and ``compat``; the mapping is not changed.

    Returns:
        The config, and a warning line for each key that has no meaning here.

    Raises:
        ConfigError: one line for each fault.
    """
    data = plain(data)
    warnings = legacy.translate(data)
    return _validate(data, {}), warnings


def to_dict(config: Config) -> dict[str, Any]:
    """Dicts, lists, strings, numbers, bools and None; ``from_dict`` gives the config back."""
    return plain(config.model_dump())


def to_yaml(config: Config) -> str:
    """The config as YAML, in the order of the fields."""
    return yaml.safe_dump(to_dict(config), sort_keys=False)


def json_schema() -> dict[str, Any]:
    """JSON schema of the YAML files, for editors."""
    return schema.json_schema(any_config())


def _set(data: dict, key: tuple[str, ...], value: Any, override: str) -> None:
    """Sets one value; sections that do not exist are created."""
    section = data
    for depth, name in enumerate(key[:-1], 1):
        if section.get(name) is None:
            section[name] = {}
        section = section[name]
        if not isinstance(section, dict):
            raise ConfigError(f"override {show(override)}: {dotted(key[:depth])} is {show(section)}, not a mapping")
    section[key[-1]] = value


def _validate(data: dict, given: Mapping[tuple, str]) -> Config:
    """The config of ``data``; ``given`` maps the keys of overrides to their text, for error messages."""
    for name in ("env", "policy", "algorithm", "runner"):
        if data.get(name) is None:  # an absent section, or one that has only comments
            data[name] = {}
    model = _model_for(data["runner"])
    return validated(model, coerce(model, data), lambda problem: _line(problem, given))


def _model_for(runner: Any) -> type[Config]:
    """The config class for the policy and the algorithm that ``runner`` names."""
    names = []
    for key in ("policy_class_name", "algorithm_class_name"):
        default = RunnerConfig.model_fields[key].default
        name = runner.get(key, default) if isinstance(runner, dict) else default
        names.append(name if isinstance(name, str) and name else default)
    return config_class(*names)


def _line(problem: Problem, given: Mapping[tuple, str]) -> str:
    source = next((override for key, override in given.items() if key == problem.path[: len(key)]), None)
    return str(problem) if source is None else f"override {show(source)}: {problem}"
