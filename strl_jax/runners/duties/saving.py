"""Saving: the contents of a checkpoint, and the intervals."""

from strl_jax.config import to_dict
from strl_jax.run_folder import layout
from strl_jax.runners.duties.clock import is_due


def save(runner, kind: str) -> None:
    """Starts to save a checkpoint.

    Args:
        runner: an ``OnPolicyRunner`` with a run folder.
        kind: ``last`` (both states, for resuming), ``numbered`` or ``best`` (the train state only).

    Raises:
        CheckpointError: it cannot be written.
    """
    state = {"train": runner.train_state}
    if kind == "last":
        state["rollout"] = runner.rollout_state
    meta = {
        "progress": runner.progress.state(),
        "config": to_dict(runner.config),
        "layout": layout.layout(runner.algorithm),
        "versions": layout.versions(),
        "shards": runner.mesh.size,
        "data": runner.references,
    }
    runner.checkpointer.save(kind, runner.progress.iteration, state, meta)


class IntervalSaving:
    """Saves ``last`` and ``numbered`` checkpoints at their intervals and after the training.

    Args:
        runner: an ``OnPolicyRunner``; without a run folder nothing is saved.
    """

    def __init__(self, runner):
        self._runner, settings = runner, runner.config.runner
        self._intervals = {"last": settings.last_interval, "numbered": settings.save_interval}

    def is_due(self, iteration: int) -> bool:
        """Whether a checkpoint is saved after this iteration."""
        return self._runner.checkpointer is not None and is_due(iteration, *self._intervals.values())

    def save(self, iteration: int) -> None:
        """Saves the checkpoints that are due after this iteration."""
        for kind, interval in self._intervals.items():
            if is_due(iteration, interval):
                save(self._runner, kind)

    def finish(self) -> None:
        """Saves both checkpoints and waits until they are written.

        Raises:
            CheckpointError: one cannot be written.
        """
        if self._runner.checkpointer is None:
            return
        with self._runner.progress.report.section("save"):
            for kind in self._intervals:
                save(self._runner, kind)
            self._runner.checkpointer.wait()
