"""The run folder of a runner: selection, lock and end."""

from pathlib import Path

import jax

from strl_jax.run_folder.checkpoints import Checkpointer
from strl_jax.run_folder.claim import FolderClaim
from strl_jax.runners.duties.saving import Saver


def select(runner, path: Path | None) -> None:
    """Selects the run folder of an ``OnPolicyRunner``, which need not exist; None: it writes nothing."""
    release(runner)
    runner.log_dir, runner.checkpointer, runner.claim, runner.saver = path, None, None, None
    if path is None:
        return
    runner.checkpointer = Checkpointer(path)
    runner.claim = FolderClaim(runner.checkpointer, locks=jax.process_index() == 0)
    parts = (runner.algorithm, runner.config, runner.mesh.size, runner.references)
    runner.saver = Saver(runner.checkpointer, runner.claim, *parts, runner.callbacks)


def release(runner) -> None:
    """Waits for pending checkpoints and unlocks the folder."""
    if runner.claim is None:
        return
    try:
        runner.checkpointer.close()
    finally:
        runner.claim.release()
