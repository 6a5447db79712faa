"""Conversion of the errors that simulators raise."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def as_value_error(environment: str) -> Iterator[None]:
    """Converts every exception of the block to a ``ValueError`` of one line that names the environment.

    It accepts every type of exception, because a simulator may not work with the installed version
    of JAX, and it may not check its arguments.
    """
    try:
        yield
    except Exception as error:
        message = next(iter(str(error).splitlines()), "")
        raise ValueError(f"{environment} does not work: {type(error).__name__}: {message}") from error
