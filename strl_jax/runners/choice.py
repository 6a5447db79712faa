"""Which checkpoint of a run a command takes: its options ``--checkpoint`` and ``--iteration``."""

import argparse
from collections.abc import Sequence

from strl_jax.run_folder.checkpoints import KINDS, Checkpointer
from strl_jax.runners import launch


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Both options."""
    parser.add_argument("--checkpoint", choices=KINDS, help="default: best, or what there is")
    parser.add_argument("--iteration", type=int, metavar="N", help="that of the checkpoint; default: the newest")


def choose(arguments: argparse.Namespace, source: Checkpointer) -> list[tuple[str, int]]:
    """``Checkpointer.choose`` of what the options ask for.

    Raises:
        CheckpointError: there is no such checkpoint.
    """
    kinds = KINDS if arguments.checkpoint is None else (arguments.checkpoint,)
    return source.choose(kinds, arguments.iteration)


def tell_unasked(arguments: argparse.Namespace, chosen: Sequence[tuple[str, int]], kind: str) -> None:
    """A note that the checkpoint taken, one of ``kind``, is not the best because the run has none."""
    if arguments.checkpoint is None and arguments.iteration is None and chosen[0][0] != "best":
        launch.tell("note", f"there is no best checkpoint; this is the {kind} one")
