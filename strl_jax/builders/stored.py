"""Policies and training states from the checkpoints of a run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict

from strl_jax.algorithms.base import Algorithm
from strl_jax.builders import acting
from strl_jax.builders.policy import make_policy
from strl_jax.config import Config, ConfigError, from_dict, to_dict
from strl_jax.run_folder.errors import CheckpointError, UnfitCheckpointError, compare, first_few
from strl_jax.run_folder.layout import check_layout, groups_of, layout
from strl_jax.run_folder.reader import KINDS, CheckpointReader

RUNNER_SETTINGS = ("num_steps_per_env", "policy_class_name", "algorithm_class_name")  # those that set shapes


def read_fitting(
    reader: CheckpointReader,
    candidates: Sequence[tuple[str, int]],
    algorithm: Algorithm,
    target: dict[str, Any],
    config: Config,
    *,
    subset: bool,
) -> tuple[str, int, dict[str, Any], dict]:
    """The first intact checkpoint, which must fit an algorithm; warns of every damaged one before it.

    Args:
        reader, candidates: the run, and which of its checkpoints to try.
        target, subset: see ``CheckpointReader.restore``.
        config: config of the algorithm; if a size differs, the error names the settings that changed.

    Returns:
        Kind, iteration, the result of ``restore``, and the checkpoint's meta.

    Raises:
        CheckpointError: all are damaged, or the observation layout or a size differs.
    """

    def read(kind: str, iteration: int) -> tuple[dict, dict]:
        meta = reader.read_meta(kind, iteration)
        check_layout(meta["layout"], layout(algorithm))
        try:
            return reader.restore(kind, iteration, target, subset=subset), meta
        except UnfitCheckpointError as error:
            changed = compare(_size_settings(meta["config"]), _size_settings(to_dict(config)))
            if not changed:
                raise
            raise CheckpointError(
                f"{reader.run_dir}: the {kind} checkpoint of iteration {iteration} does not fit: {error.lines[0]}; "
                f"changed settings: {first_few(changed)}"
            ) from error

    kind, iteration, (state, meta) = reader.read_first_intact(candidates, read)
    return kind, iteration, state, meta


def read_acting(
    reader: CheckpointReader, candidates: Sequence[tuple[str, int]], algorithm: Algorithm, config: Config
) -> tuple[str, int, dict, dict]:
    """``read_fitting`` of what ``algorithm`` needs to act: ``{"params": ..., "stats": ...}``."""
    kind, iteration, state, meta = read_fitting(
        reader, candidates, algorithm, _acting_target(algorithm), config, subset=True
    )
    return kind, iteration, state["train"], meta


def read_policy(
    run_dir: str | Path, kinds: Sequence[str] = KINDS, sharding: jax.sharding.Sharding | None = None
) -> tuple[Algorithm, dict, dict, dict]:
    """The policy of a run as it was trained, without its environment.

    Args:
        run_dir: run folder.
        kinds: kinds of checkpoints, in order of preference; of a kind, the newest intact one is read.
        sharding: sharding with which the arrays are read, by all processes together; None: on the first device.

    Returns:
        PPO with the policy of the checkpoint, without teacher, discriminator and hooks; the policy's variables
        ``{"params": ...}`` and the statistics, NumPy arrays that may be changed; and the checkpoint's meta.

    Raises:
        CheckpointError: there is no intact checkpoint, or this version cannot use its config.
    """
    reader = CheckpointReader(run_dir)

    def read(kind: str, iteration: int) -> tuple[Algorithm, dict, dict]:
        meta = reader.read_meta(kind, iteration)
        algorithm = _algorithm(reader.run_dir, meta)
        return algorithm, reader.restore(kind, iteration, _acting_target(algorithm, sharding), subset=True), meta

    *_, (algorithm, state, meta) = reader.read_first_intact(reader.candidates(kinds), read)
    train = jax.tree.map(np.array, state["train"])
    return algorithm, train["params"]["policy"], train["stats"], meta


def _acting_target(algorithm: Algorithm, sharding: jax.sharding.Sharding | None = None) -> dict[str, Any]:
    shapes = jax.eval_shape(algorithm.init, jax.random.key(0))
    train = {"params": shapes.params, "stats": shapes.stats}
    return {"train": jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), train)}


def _algorithm(run_dir: Path, meta: dict) -> Algorithm:
    """PPO with the policy of a checkpoint, from its config and its observation layout."""
    groups = groups_of(meta["layout"])
    try:
        config, _ = from_dict(meta["config"])
        policy = make_policy(config, meta["layout"]["action_size"], groups)
    except ConfigError as error:
        raise CheckpointError(f"{run_dir}: this version cannot use its config: {error}") from error
    return acting.make_ppo(config, policy, {name: groups[name] for name in ("actor", "critic")})


def _size_settings(config: Mapping) -> dict[str, Any]:
    """The settings of a config on which the shapes of a state depend, by dotted name."""
    settings = {name: config.get(name) for name in ("env", "policy", "algorithm", "compat")}
    settings["runner"] = {name: config["runner"].get(name) for name in RUNNER_SETTINGS}
    return flatten_dict(settings, sep=".", keep_empty_nodes=True)
