"""What an algorithm takes from a run's checkpoints, if they are of its observations."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
from flax.traverse_util import flatten_dict

from strl_jax.algorithms.base import Algorithm
from strl_jax.builders.transfer.matching import compare_settings
from strl_jax.config import Config, to_dict
from strl_jax.run_folder.checkpoints import Checkpointer
from strl_jax.run_folder.errors import CheckpointError, UnfitCheckpointError, first_few
from strl_jax.run_folder.layout import check_layout, layout

SHAPING = ("num_steps_per_env", "policy_class_name", "algorithm_class_name")  # of the runner's settings


def read_fitting(
    source: Checkpointer,
    chosen: Sequence[tuple[str, int]],
    algorithm: Algorithm,
    target: dict[str, Any],
    config: Config,
    *,
    subset: bool,
) -> tuple[str, int, dict[str, Any], dict]:
    """The first checkpoint ``chosen`` that is whole; warns of those passed over.

    Args:
        target, subset: as of ``Checkpointer.restore``.
        config: what the algorithm is made of, to name what has changed where nothing fits.

    Returns:
        Its kind and iteration, what ``restore`` gives, and its meta.

    Raises:
        CheckpointError: all are damaged, it is one of other observations than the algorithm's, or of another size.
    """

    def read(kind: str, iteration: int) -> tuple[dict, dict]:
        meta = source.read_meta(kind, iteration)
        check_layout(meta["layout"], layout(algorithm))
        try:
            return source.restore(kind, iteration, target, subset=subset), meta
        except UnfitCheckpointError as error:
            lines = compare_settings(_settings(meta["config"]), _settings(to_dict(config)))
            if not lines:
                raise
            raise CheckpointError(
                f"{source.run_dir}: the {kind} checkpoint of iteration {iteration} does not fit: {error.lines[0]}; "
                f"changed since: {first_few(lines)}"
            ) from error

    kind, iteration, (state, meta) = source.read_first(chosen, read)
    return kind, iteration, state, meta


def read_acting(
    source: Checkpointer, chosen: Sequence[tuple[str, int]], algorithm: Algorithm, config: Config
) -> tuple[str, int, dict, dict]:
    """``read_fitting`` of what ``algorithm`` needs to act: ``{"params": ..., "stats": ...}``."""
    shapes = jax.eval_shape(algorithm.init, jax.random.key(0))
    target = {"train": {"params": shapes.params, "stats": shapes.stats}}
    kind, iteration, state, meta = read_fitting(source, chosen, algorithm, target, config, subset=True)
    return kind, iteration, state["train"], meta


def _settings(config: Mapping) -> dict[str, Any]:
    """The settings of a config that shape its states, by their dotted names."""
    shaping = {name: config.get(name) for name in ("env", "policy", "algorithm", "compat")}
    shaping["runner"] = {name: config["runner"].get(name) for name in SHAPING}
    return flatten_dict(shaping, sep=".", keep_empty_nodes=True)
