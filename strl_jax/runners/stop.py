"""Stop of a training: a first signal stops it after the current iteration, a second one ends the process at once."""

import os
import signal
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from strl_jax.runners.signals import SignalThread, check_interruption, report
from strl_jax.sharding import replicated, sharded


class StopFlag:
    """Context manager that handles SIGINT, SIGTERM and SIGHUP; ``name`` is the first signal received, or None.

    SIGHUP is not handled if the process ignores it, as under ``nohup``. Outside the main thread,
    signals are not handled.
    """

    def __init__(self):
        self.name: str | None = None
        self._thread = SignalThread(lambda number, frame: None, self._watch)

    def __enter__(self) -> "StopFlag":
        check_interruption()
        self._thread.__enter__()
        return self

    def __exit__(self, *error) -> None:
        self._thread.__exit__()

    def _watch(self, next_signal: Callable[[float | None], int | None]) -> None:
        while number := next_signal(None):
            if self.name is not None:
                os._exit(128 + number)
            self.name = signal.Signals(number).name
            report(f"{self.name}: stops after this iteration; a second signal exits at once")


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
