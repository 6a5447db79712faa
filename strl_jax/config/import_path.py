"""Functions and classes that a config names by import path."""

import importlib
from collections.abc import Callable

from strl_jax.config.errors import ConfigError, hint, raised, show


def import_callable(path: str, what: str, forms: str = "package.module:name") -> Callable:
    """The function or class at ``package.module:name``.

    Args:
        what: beginning of the error line, such as the config's key and a colon.
        forms: what the config allows instead of ``path``, for the error line.

    Raises:
        ConfigError: the module cannot be imported, or has no function or class of this name.
    """
    module_name, _, name = path.partition(":")
    line = f"{what} {show(path)}"
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # the user's code may raise anything
        raise ConfigError(f"{line} cannot be imported: {raised(error)}; it must be {forms}") from error
    if not hasattr(module, name):
        raise ConfigError(f"{line} cannot be imported: {module_name} has no {name}{hint(name, vars(module))}")
    value = getattr(module, name)
    if not callable(value):
        raise ConfigError(f"{line} is {show(value)}; it must be a function or a class")
    return value
