"""Common parts of all commands: arguments, error handling, several hosts, compilation cache, checkpoint options."""

import argparse
import logging
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import numpy as np
from jax.experimental import multihost_utils

from strl_jax.config import ConfigError
from strl_jax.kernels.fuse import KernelError
from strl_jax.run_folder.errors import CheckpointError
from strl_jax.run_folder.reader import KINDS, CheckpointReader
from strl_jax.runners.compilation_cache import repaired
from strl_jax.runners.log.streams import lasting_stderr
from strl_jax.runners.log.writers import WriterError
from strl_jax.runners.signals import Interruption


class Parser(argparse.ArgumentParser):
    """Reports a fault in one ``error:`` line, exit code 2; allows ``key=value`` between options."""

    def __init__(self, **options):
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str):
        print(f"error: {message}", file=sys.stderr)
        self.exit(2)

    def parse(self, argv: Sequence[str] | None) -> argparse.Namespace:
        """Parses ``argv``, by default the arguments of the process."""
        return self.parse_intermixed_args(argv)


def print_lines(kind: str, *messages: object) -> None:
    """Prints each line of the messages on stderr as ``kind: line``."""
    for line in "\n".join(map(str, messages)).splitlines():
        print(f"{kind}: {line}", file=sys.stderr)


def guarded(command: Callable[[], int], interrupted: str, errors: tuple[type[Exception], ...] = ()) -> int:
    """Runs a command. Prints expected errors (one line per fault) and Python warnings without a traceback.

    Args:
        command: returns the exit code.
        interrupted: error message after a signal outside of a training.
        errors: expected errors of this command, in addition to bad configs, checkpoints, writers and files.

    Returns:
        The command's exit code; 2 after an expected error, 130 after Ctrl-C (in general 128 + the
        signal's number), 141 if the reader of the output has closed it, see also ``lasting_stdout``.
    """
    _hide_traces()
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # Orbax raises the errors of its tasks anyway
    interruption = Interruption(f"error: {interrupted}")
    try:
        with interruption, lasting_stderr(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Brax System|.*import warp|.*mujoco_warp")
            warnings.showwarning = lambda message, *where: print_lines("warning", repaired(str(message)))
            try:
                _check_working_directory()
                code = command()
                sys.stdout.flush()
            except BaseException as error:
                interruption.check()  # an exception may be due to it
                code = _code_of(error, errors)
            interruption.check()
            return code
    except KeyboardInterrupt:
        return interruption.report()


def _check_working_directory() -> None:
    try:
        Path.cwd()
    except OSError as error:
        raise ConfigError(f"the working directory cannot be used: {error.strerror}; change to another folder") from None


def _code_of(error: BaseException, errors: tuple[type[Exception], ...]) -> int:
    """Prints the lines of an expected error and returns the exit code; raises any other error again."""
    match error:
        case BrokenPipeError() | SystemExit(__context__=BrokenPipeError()):  # rich exits after a broken pipe
            # as in ``| head -1``; /dev/null, because the interpreter flushes stdout at its exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 128 + signal.SIGPIPE
        case ConfigError() | CheckpointError() | WriterError() | KernelError():
            print_lines("error", error)
        case jax.errors.JaxRuntimeError() if re.search("RESOURCE_EXHAUSTED|out of memory", str(error), re.IGNORECASE):
            advice = "fewer env.num_envs or smaller buffers need less memory"
            print_lines("error", f"out of memory: {_first_line(error)}; {advice}")
        case OSError():
            print_lines("error", _os_error(error))
        case _ if isinstance(error, errors):
            print_lines("error", error)
        case _:
            raise error
    return 2


def _hide_traces() -> None:
    """Hides tracebacks of errors that are reported anyway, until the interpreter exits.

    After a failed save, TensorStore's remaining writes try to report to an event loop that is closed,
    perhaps after the end of the command. A ``KeyboardInterrupt`` in a callback is reported by
    ``Interruption``. A thread of a log writer that cannot write gets one line, and tries again at exit.
    """
    before, before_thread = sys.unraisablehook, threading.excepthook
    if hasattr(before, "hides_traces"):
        return

    def hook(report):
        error, place = report.exc_value, report.err_msg or ""
        late = isinstance(error, RuntimeError) and str(error) == "Event loop is closed"
        late |= isinstance(error, OSError) and "atexit" in place
        if not late and not isinstance(error, KeyboardInterrupt):
            before(report)

    def thread_hook(report):
        if not isinstance(report.exc_value, OSError):
            before_thread(report)
        elif report.exc_value.errno is not None:  # None: a queue that is closed
            print_lines("warning", f"a thread failed, of a log writer for example: {_os_error(report.exc_value)}")

    hook.hides_traces = True
    sys.unraisablehook, threading.excepthook = hook, thread_hook


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of a run on several hosts."""
    group = parser.add_argument_group("several hosts", "start the same command on every host")
    group.add_argument("--coordinator", metavar="HOST:PORT", help="address of process 0")
    group.add_argument("--num-processes", type=int, metavar="N", help="number of processes")
    group.add_argument("--process-id", type=int, metavar="I", help="number of this process, from 0")
    group.add_argument("--distributed", action="store_true", help="detect the other hosts (Slurm, Cloud TPU, MPI)")


def initialize(arguments: argparse.Namespace) -> None:
    """Joins the other processes if the flags say so, and initializes the devices. Call it before any use of a device.

    Raises:
        ConfigError: some of the three flags are missing or out of range, the other
            processes cannot be joined, or JAX finds no device.
    """
    _join(arguments)
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:  # an assertion where the platform's plugin is not installed
        chosen = jax.config.jax_platforms
        place = f"JAX_PLATFORMS={chosen}: " if chosen else ""
        reason = f": {_first_line(error)}" if str(error) else f"; is the jaxlib for {chosen} installed?"
        raise ConfigError(f"{place}JAX finds no device{reason}") from error


def _join(arguments: argparse.Namespace) -> None:
    flags = {
        "--coordinator": arguments.coordinator,
        "--num-processes": arguments.num_processes,
        "--process-id": arguments.process_id,
    }
    missing = [name for name, value in flags.items() if value is None]
    if len(missing) == 3:
        if arguments.distributed:
            _initialize("--distributed")
        return
    if missing:
        raise ConfigError(f"{', '.join(missing)}: missing; --coordinator, --num-processes and --process-id go together")
    if arguments.num_processes < 1:
        raise ConfigError(f"--num-processes: {arguments.num_processes} is not allowed; it must be >= 1")
    if not 0 <= arguments.process_id < arguments.num_processes:
        raise ConfigError(
            f"--process-id: {arguments.process_id} is not allowed; it must be in 0..{arguments.num_processes - 1}"
        )
    host, _, port = arguments.coordinator.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"--coordinator: {arguments.coordinator!r} is not allowed; it must be HOST:PORT")
    _initialize("--coordinator", arguments.coordinator, arguments.num_processes, arguments.process_id)


def _initialize(flag: str, *arguments) -> None:
    try:
        jax.distributed.initialize(*arguments)
    except (ValueError, RuntimeError) as error:
        raise ConfigError(f"{flag}: the other processes cannot be joined: {_first_line(error)}") from error


def _os_error(error: OSError) -> str:
    place = f"{error.filename}: " if error.filename is not None else ""
    return f"{place}{error.strerror or error}"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def use_compilation_cache() -> None:
    """Keeps compiled programs in the user's cache folder, unless JAX_COMPILATION_CACHE_DIR names another."""
    folder = jax.config.jax_compilation_cache_dir
    if folder is None:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "strl_jax" / "xla"
    if "://" not in str(folder):  # an environment may change the working directory
        folder = Path(folder).absolute()
    jax.config.update("jax_compilation_cache_dir", str(folder))


def path_of_process_0(path: Path) -> Path:
    """The ``path`` of process 0, on every process."""
    if jax.process_count() == 1:
        return path
    buffer = np.zeros(4096, np.uint8)
    encoded = np.frombuffer(os.fsencode(path.absolute()), np.uint8)
    buffer[: encoded.size] = encoded
    agreed = np.asarray(multihost_utils.broadcast_one_to_all(buffer), np.uint8)
    return Path(os.fsdecode(agreed.tobytes().rstrip(b"\0")))


def add_checkpoint_arguments(parser: argparse.ArgumentParser) -> None:
    """The options ``--checkpoint`` and ``--iteration``."""
    parser.add_argument("--checkpoint", choices=KINDS, help="default: best, otherwise last, otherwise numbered")
    parser.add_argument("--iteration", type=int, metavar="N", help="iteration of the checkpoint; default: the newest")


class RequestedCheckpoint:
    """The checkpoint that the options select, in the run folder ``arguments.run_dir``.

    Raises:
        CheckpointError: there is no such checkpoint. The constructor checks this, before anything is built.
    """

    def __init__(self, arguments: argparse.Namespace):
        self.reader = CheckpointReader(arguments.run_dir)
        self._kind, self._iteration = arguments.checkpoint, arguments.iteration
        self.candidates()

    def candidates(self) -> list[tuple[str, int]]:
        """``CheckpointReader.candidates``. Call it just before reading: a run in training deletes older ones."""
        return self.reader.candidates(KINDS if self._kind is None else (self._kind,), self._iteration)

    def note(self, candidates: Sequence[tuple[str, int]], kind: str) -> None:
        """Prints a note with the ``kind`` that was read, if no option was given and the run has no best checkpoint."""
        if self._kind is None and self._iteration is None and candidates[0][0] != "best":
            print_lines("note", f"there is no best checkpoint; this is the {kind} one")
