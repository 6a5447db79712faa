"""Output: a program goes on when its output is closed or cannot be written."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TextIO

from strl_jax.runners.signals import report


class LastingStream:
    """A text stream; after an error of writing, everything is dropped.

    Such errors are a pipe whose reader has ended (``| head -1``), a full disk, or a terminal that is
    closed. The first one is reported on stderr. The file descriptor then leads to /dev/null, so
    that neither libraries nor the end of the interpreter can fail.

    Args:
        name: name of the stream in the report; None: no report.
    """

    def __init__(self, stream: TextIO, name: str | None = None):
        self._stream, self._name = stream, name

    def write(self, text: str) -> int:
        """Writes ``text``; characters that the encoding does not have become escape sequences."""
        try:
            self._stream.write(text)
        except UnicodeEncodeError:
            encoding = self._stream.encoding
            self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        except OSError as error:
            self._drop(error)
        return len(text)

    def flush(self) -> None:
        """Writes what is buffered."""
        try:
            self._stream.flush()
        except OSError as error:
            self._drop(error)

    def __getattr__(self, name: str):
        return getattr(self._stream, name)

    def _drop(self, error: OSError) -> None:
        nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (open until the end)
        with contextlib.suppress(OSError):  # the stream has no file descriptor
            os.dup2(nowhere.fileno(), self._stream.fileno())
        self._stream = nowhere
        if self._name is not None:
            report(f"note: {self._name} is lost ({error.strerror}); the command goes on without it")


@contextlib.contextmanager
def lasting_stdout() -> Iterator[None]:
    """``sys.stdout`` is a ``LastingStream`` in the block."""
    before = sys.stdout
    if before is not None:
        sys.stdout = LastingStream(before, "stdout")
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    finally:
        sys.stdout = before


@contextlib.contextmanager
def lasting_stderr() -> Iterator[None]:
    """``sys.stderr`` is a ``LastingStream`` in the block."""
    before = sys.stderr
    if before is not None:
        sys.stderr = LastingStream(before)
    try:
        yield
    finally:
        sys.stderr = before
