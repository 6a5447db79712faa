"""Split of the iteration time into collection and learning.

One compiled program does both, so the update alone is measured once per session.
"""

import time

import jax
import jax.numpy as jnp

from strl_jax.sharding import replicate_key

REPEATS = 3  # of the measured update
FIRST_ITERATION = 3  # of a session; the earlier ones are not interrupted


class TimeSplit:
    """Measures the update once, and from then on divides the time of each iteration.

    Args:
        runner: an ``OnPolicyRunner``; the report of its progress gets the seconds of each part.
        first: iterations done before this session.
    """

    def __init__(self, runner, first: int):
        self._runner, self._programs, self._first = runner, runner.programs, first
        self._learning: float | None = None

    def is_due(self, iteration: int) -> bool:
        """Whether the update is measured after this iteration: once it is compiled, in parallel with the training.

        Several processes must measure after the same iteration, so they wait for the compiler.
        """
        is_early = iteration - self._first < FIRST_ITERATION
        if is_early or self._learning is not None or not self._runner.config.runner.time_split:
            return False
        self._programs.request("update")
        return self._programs.idle() or jax.process_count() > 1

    def measure(self) -> None:
        """Measures the update on a rollout of the run's size: the minimum of ``REPEATS`` calls.

        The rollout is all zeros: its values do not change the time.
        """
        update, seconds = self._programs.get("update"), []
        shapes = (self._programs.rollout_shapes, self._programs.states[1].memory)
        rollout, memory = jax.tree.map(
            lambda x, sharding: jnp.zeros(x.shape, x.dtype, device=sharding), shapes, update.input_shardings[0][1:3]
        )
        key = replicate_key(jax.random.key(0), self._programs.mesh)
        for _ in range(REPEATS):
            state = jax.tree.map(jnp.copy, self._runner.train_state)  # the program reuses the buffers of its input
            jax.block_until_ready(state)
            start = time.perf_counter()
            jax.block_until_ready(update(state, rollout, memory, self._runner.data, key))
            seconds.append(time.perf_counter() - start)
        self._learning = min(seconds)

    def divide(self, seconds: float) -> dict[str, float]:
        """Adds the time of an iteration to the report. Returns ``Perf/*`` scalars, none before the measurement."""
        report = self._runner.progress.report
        if self._learning is None:
            report.add("iterations", seconds)
            return {}
        learning = min(self._learning, seconds)
        report.add("learning", learning)
        report.add("collection", seconds - learning)
        return {"Perf/learning_time": learning, "Perf/collection time": seconds - learning}
