"""What an algorithm takes from a run's checkpoints, if they are of its observations."""

from collections.abc import Sequence
from typing import Any

import jax

from strl_jax.algorithms.base import Algorithm
from strl_jax.runners.checkpoint import Checkpointer, check_layout, layout


def read_fitting(
    source: Checkpointer,
    chosen: Sequence[tuple[str, int]],
    algorithm: Algorithm,
    target: dict[str, Any],
    *,
    subset: bool,
) -> tuple[str, int, dict[str, Any], dict]:
    """The first checkpoint ``chosen`` that is whole; warns of those passed over.

    Args:
        target, subset: as of ``Checkpointer.restore``.

    Returns:
        Its kind and iteration, what ``restore`` gives, and its meta.

    Raises:
        CheckpointError: all are damaged, or it is one of other observations than the algorithm's.
    """

    def read(kind: str, iteration: int) -> tuple[dict, dict]:
        meta = source.read_meta(kind, iteration)
        check_layout(meta["layout"], layout(algorithm))
        return source.restore(kind, iteration, target, subset=subset), meta

    kind, iteration, (state, meta) = source.read_first(chosen, read)
    return kind, iteration, state, meta


def read_acting(
    source: Checkpointer, chosen: Sequence[tuple[str, int]], algorithm: Algorithm
) -> tuple[str, int, dict, dict]:
    """``read_fitting`` of what ``algorithm`` needs to act: ``{"params": ..., "stats": ...}``."""
    shapes = jax.eval_shape(algorithm.init, jax.random.key(0))
    target = {"train": {"params": shapes.params, "stats": shapes.stats}}
    kind, iteration, state, meta = read_fitting(source, chosen, algorithm, target, subset=True)
    return kind, iteration, state["train"], meta
