"""What the simulators behind the adapters raise."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def as_value_error(which: str) -> Iterator[None]:
    """Whatever is raised in the block, as a ``ValueError`` of one line that names ``which`` environment.

    It can be anything: a simulator may be older than this jax, or take an argument unseen.
    """
    try:
        yield
    except Exception as error:
        message = next(iter(str(error).splitlines()), "")
        raise ValueError(f"{which} does not work: {type(error).__name__}: {message}") from error
