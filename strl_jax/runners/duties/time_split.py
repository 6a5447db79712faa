"""Split of the iteration time into collection and learning.

One compiled program does both, so the update alone is measured once per session.
"""

import time

import jax
import jax.numpy as jnp

from strl_jax.runners.programs import Programs
from strl_jax.runners.progress import TimeReport
from strl_jax.sharding import replicate_key
from strl_jax.types import TrainState

FIRST_ITERATION = 3  # of a session; the earlier ones are not interrupted


class TimeSplit:
    """Measures the update once, and from then on divides the time of each iteration.

    Args:
        data: constants that the algorithm's hooks read, on all devices.
        report: gets the seconds of each part.
        first: iterations done before this session.
        enabled: False measures nothing.
    """

    def __init__(self, programs: Programs, data: dict, report: TimeReport, first: int, enabled: bool):
        self._programs, self._data, self._report = programs, data, report
        self._first, self._enabled = first, enabled
        self._learning: float | None = None

    def is_due(self, iteration: int) -> bool:
        """Whether the update is measured after this iteration. Starts to compile it, in parallel with the training.

        One process measures when the program is ready. Several processes must measure after the same
        iteration, so they wait for the compiler.
        """
        if not self._enabled or self._learning is not None or iteration - self._first < FIRST_ITERATION:
            return False
        self._programs.request("update")
        return self._programs.idle() or jax.process_count() > 1

    def measure(self, train: TrainState) -> None:
        """Measures the update."""
        self._learning = time_update(self._programs, train, self._data)

    def divide(self, seconds: float) -> dict[str, float]:
        """Adds the time of an iteration to the report. Returns ``Perf/*`` scalars, none before the measurement."""
        if self._learning is None:
            self._report.add("iterations", seconds)
            return {}
        learning = min(self._learning, seconds)
        self._report.add("learning", learning)
        self._report.add("collection", seconds - learning)
        return {"Perf/learning_time": learning, "Perf/collection time": seconds - learning}


def time_update(programs: Programs, train: TrainState, data: dict, repeats: int = 3) -> float:
    """Seconds of one update on a rollout of the run's size: the minimum of ``repeats`` calls.

    The rollout is all zeros: its values do not change the time.
    """
    update = programs.get("update")
    shapes = (programs.rollout_shapes, programs.states[1].memory)
    rollout, memory = jax.tree.map(
        lambda x, sharding: jnp.zeros(x.shape, x.dtype, device=sharding), shapes, update.input_shardings[0][1:3]
    )
    key = replicate_key(jax.random.key(0), programs.mesh)
    seconds = []
    for _ in range(repeats):
        state = jax.tree.map(jnp.copy, train)  # the program reuses the buffers of its input
        jax.block_until_ready(state)
        start = time.perf_counter()
        jax.block_until_ready(update(state, rollout, memory, data, key))
        seconds.append(time.perf_counter() - start)
    return min(seconds)
