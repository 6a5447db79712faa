"""Files that are replaced whole or not at all."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[TextIO]:
    """A text file that takes the place of ``path`` when the block ends well, in one rename.

    Otherwise ``path`` stays as it was, and nothing is left beside it.

    Raises:
        OSError: the disk refuses; names the file.
    """
    with replacement(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def replacement(path: Path) -> Iterator[Path]:
    """As ``replaced``, but the place of a file that the block writes itself."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException as error:
        if (
            isinstance(error, OSError) and error.errno is not None and error.filename is None
        ):  # one of writing, not of opening
            error.filename = str(path)
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
