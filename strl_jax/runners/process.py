"""Start and end of the process of a command.

The package calls ``prepare`` before a command imports JAX, which takes seconds. Until then Python handles signals, with
a traceback. So this module imports as little as possible.
"""

import atexit
import contextlib
import os
import signal
import sys


def is_command() -> bool:
    """Whether Python starts ``python -m strl_jax.COMMAND`` now, and imports this package for it."""
    if sys.argv[:1] != ["-m"]:  # Python replaces it by the file of the module, after the import of its package
        return False
    return sys.orig_argv[-len(sys.argv)].removeprefix("-m").startswith("strl_jax.")


def ending_signals() -> tuple[int, ...]:
    """SIGINT, SIGTERM, and SIGHUP unless this process ignores it, as under ``nohup``."""
    hangup = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    return (signal.SIGINT, signal.SIGTERM, *hangup)


def prepare() -> None:
    """Until the command handles signals itself, and after that, one of them ends the process with one line.

    When the interpreter has ended its threads and calls no handlers any more, a signal kills the process.

    Standard streams that are closed (``>&-``) are opened on /dev/null: otherwise the next file that is
    opened would get what libraries print.
    """
    for number in ending_signals():
        signal.signal(number, _end)
        atexit.register(signal.signal, number, signal.SIG_DFL)  # registered first, so called last
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (open until the end)


def leave(code: int) -> None:
    """Ends the process with an exit code; after a signal, without waiting for compilations in threads."""
    if code > 128:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
    sys.exit(code)


def _end(number: int, frame: object) -> None:
    try:
        os.write(2, f"error: interrupted by {signal.Signals(number).name}\n".encode())
    finally:
        os._exit(128 + number)
