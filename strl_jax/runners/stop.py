"""Stop signals: SIGINT or SIGTERM stops a run after the current iteration; a second one ends the process at once."""

import os
import signal
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from strl_jax.sharding import replicated, sharded

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopFlag:
    """Context manager that handles stop signals; ``name`` is the first signal received, or None.

    A thread reads the signals from a pipe: Python runs signal handlers only between
    bytecodes, and a long compilation is one bytecode. Outside the main thread signals
    are not handled.
    """

    def __init__(self):
        self.name: str | None = None
        self._previous: dict = {}

    def __enter__(self) -> "StopFlag":
        if threading.current_thread() is not threading.main_thread():
            return self
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        for number in SIGNALS:
            self._previous[number] = signal.signal(number, lambda number, frame: None)
        self._wakeup = signal.set_wakeup_fd(self._write)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
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

    def _watch(self) -> None:
        while data := os.read(self._read, 1):
            if data[0] not in SIGNALS:
                continue
            if self.name is not None:
                os._exit(128 + data[0])
            self.name = signal.Signals(data[0]).name
            print(
                f"{self.name}: stops after this iteration; a second signal exits at once", file=sys.stderr, flush=True
            )


class StopVote:
    """Agreement of all processes to stop after the same iteration, if one of them has to stop.

    With several processes the vote is a device program that runs after the iteration and
    is read with its metrics, so that no host waits for it. A signal then takes effect one
    or two iterations later.
    """

    def __init__(self, mesh: Mesh):
        self._place, self._agreed = sharded(mesh), False
        self._any = jax.jit(jnp.any, out_shardings=replicated(mesh))

    def cast(self, name: str | None) -> jax.Array | None:
        """Starts a vote. Every process calls it after each iteration.

        Args:
            name: reason for this process to stop, or None.

        Returns:
            The argument of ``read``; None with one process.
        """
        if jax.process_count() == 1:
            return None
        local = np.full(len(self._place.addressable_devices), name is not None)
        return self._any(jax.make_array_from_process_local_data(self._place, local))

    def read(self, vote: jax.Array | None) -> None:
        """Waits for the result of a vote."""
        self._agreed |= vote is not None and bool(vote)

    def result(self, name: str | None) -> str | None:
        """The reason to stop now, or None; ``name`` is the reason of this process or None."""
        if jax.process_count() == 1:
            return name
        return (name or "a signal to another process") if self._agreed else None
