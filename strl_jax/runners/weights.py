"""The policy's part of a checkpoint."""

from collections.abc import Sequence

import jax

from strl_jax.algorithms.base import Algorithm
from strl_jax.runners.checkpoint import Checkpointer, check_layout, layout


def read_acting(
    source: Checkpointer, chosen: Sequence[tuple[str, int]], algorithm: Algorithm
) -> tuple[str, int, dict, dict]:
    """What ``algorithm`` needs to act, of the first checkpoint ``chosen`` that is whole; warns of those passed over.

    Returns:
        Kind and iteration of the checkpoint, ``{"params": ..., "stats": ...}``, and its meta.

    Raises:
        CheckpointError: all are damaged, or it is one of other observations.
    """
    shapes = jax.eval_shape(algorithm.init, jax.random.key(0))
    target = {"train": {"params": shapes.params, "stats": shapes.stats}}

    def read(kind: str, iteration: int) -> tuple[dict, dict]:
        meta = source.read_meta(kind, iteration)
        check_layout(meta["layout"], layout(algorithm))
        return source.restore(kind, iteration, target, subset=True)["train"], meta

    kind, iteration, (train, meta) = source.read_first(chosen, read)
    return kind, iteration, train, meta
