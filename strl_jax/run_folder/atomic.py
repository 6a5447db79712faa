"""Atomic replacement of files: a file has its old or its new content, never a part of it."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[TextIO]:
    """A new text file, which replaces ``path`` by a rename when the block ends without an error.

    After an error, ``path`` is unchanged and the new file is deleted. An ``OSError`` names ``path``.
    """
    with replacement(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        yield file
        file.flush()
        if temporary != path:
            os.fsync(file.fileno())


@contextlib.contextmanager
def replacement(path: Path) -> Iterator[Path]:
    """Like ``replaced``, but yields the path of a file that the block creates.

    A symbolic link stays: the file that it names is replaced. What is not a regular file, like
    ``/dev/stdout``, cannot be replaced and is written directly.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        yield path
        return
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.new")
    try:
        yield temporary
        os.replace(temporary, target)
    except BaseException as error:
        # An error while writing names no file, and an error of open the temporary one.
        if isinstance(error, OSError) and error.errno is not None and error.filename in (None, str(temporary)):
            error.filename, error.filename2 = str(path), None
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
