"""Signals that end a program: SIGINT, SIGTERM and SIGHUP."""

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable

from strl_jax.runners.process import ending_signals

GRACE = 2.0  # seconds for an interrupted command to clean up
# Seconds in which further signals are the same request: ``timeout`` sends its signal twice, to the process and to its
# group, and the end of a terminal can send SIGHUP twice.
SAME = 0.2

Next = Callable[[float | None], int | None]


def report(line: str) -> None:
    """Prints a line on stderr, also from a signal handler; a closed stderr is no error."""
    try:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    except RuntimeError:  # the signal interrupted another write
        with contextlib.suppress(OSError):
            os.write(2, f"{line}\n".encode())
    except (OSError, ValueError, AttributeError):  # AttributeError: there is no stderr
        pass


class SignalThread:
    """Context manager that handles the ending signals, in the main thread and in a thread.

    Python runs a signal handler only between two bytecodes of the main thread. A compilation is one
    bytecode and can take minutes. So a thread reads the signals from a pipe, too. Outside the main
    thread, signals are not handled.

    Args:
        handler: signal handler, called in the main thread.
        watch: called in the thread with a function ``(seconds or None) -> number``. The function
            waits for the next signal; it returns None at the end of the block, 0 if the time is over.
            Signals within ``SAME`` seconds count as one.
    """

    def __init__(self, handler: Callable, watch: Callable[[Next], None]):
        self._handler, self._watch = handler, watch
        self._previous: dict = {}

    def __enter__(self) -> "SignalThread":
        if threading.current_thread() is not threading.main_thread():
            return self
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._thread = threading.Thread(target=self._watch, args=(self._next,), daemon=True)
        self._thread.start()
        for number in ending_signals():
            self._previous[number] = signal.getsignal(number)
            signal.signal(number, self._handler)
        self._wakeup = signal.set_wakeup_fd(self._write)
        return self

    def __exit__(self, *error) -> None:
        if not self._previous:
            return
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}
        os.close(self._write)
        self._thread.join()
        os.close(self._read)

    def pass_on(self, number: int, frame: object) -> None:
        """Calls the handler that is restored at the end of the block."""
        handler = self._previous.get(number)
        if callable(handler):
            handler(number, frame)

    def _next(self, seconds: float | None) -> int | None:
        number = self._receive(seconds)
        end = time.monotonic() + SAME
        while number and (left := end - time.monotonic()) > 0 and self._receive(left):
            pass
        return number

    def _receive(self, seconds: float | None) -> int | None:
        poll = select.poll()
        poll.register(self._read)
        while poll.poll(None if seconds is None else 1000.0 * seconds):
            data = os.read(self._read, 1)
            if not data:
                return None
            if data[0] in self._previous:
                return data[0]
        return 0


class Interruption:
    """Context manager that ends a command at the first signal, with one line on stderr.

    The main thread gets a ``KeyboardInterrupt``, so that it can delete incomplete files. The exception
    can get lost in a callback of a library, and a call of a library can take minutes. So the process
    ends in any case after ``GRACE`` seconds, or at a second signal.

    Args:
        line: what is printed.

    Attributes:
        number: the signal, None before it.
    """

    def __init__(self, line: str):
        self.number: int | None = None
        self._line, self._unprinted, self._ends = line, threading.Lock(), False
        self._thread = SignalThread(self, self._watch)

    def __enter__(self) -> "Interruption":
        self._thread.__enter__()
        return self

    def __exit__(self, *error) -> None:
        self._ends = True
        self._thread.__exit__()

    def __call__(self, number: int, frame: object) -> None:
        """The signal handler."""
        if self._ends:
            self._thread.pass_on(number, frame)
        elif self.number is None:
            self.number = number
            raise KeyboardInterrupt

    def check(self) -> None:
        """Raises ``KeyboardInterrupt`` if a signal arrived and the exception got lost."""
        if self.number is not None:
            raise KeyboardInterrupt

    def report(self) -> int:
        """Prints the line, once. Returns the exit code."""
        if self._unprinted.acquire(blocking=False):
            report(self._line)
        return 128 + (self.number or signal.SIGINT)

    def _watch(self, next_signal: Next) -> None:
        number = next_signal(None)
        if number is not None and next_signal(GRACE) is not None:
            self.number = number
            os._exit(self.report())


def check_interruption() -> None:
    """Raises ``KeyboardInterrupt`` if the command was interrupted and the exception got lost."""
    handler = signal.getsignal(signal.SIGINT)
    if isinstance(handler, Interruption):
        handler.check()
