"""Checks of the arguments of ``OnPolicyRunner`` and its methods."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from strl_jax.config import Config, ConfigError, from_dict
from strl_jax.run_folder.reader import KINDS

TORCH = ".pt"


def read_config(train_cfg: Any, env: Any) -> Config:
    """The argument ``train_cfg`` as a config; warns of keys without a meaning.

    Args:
        env: the environment of the caller, or None; its class is the default of ``env.name``.

    Raises:
        ConfigError: it is neither a ``Config`` nor a dict, or it has faults.
    """
    if isinstance(train_cfg, Config):
        return train_cfg
    if not isinstance(train_cfg, Mapping):
        raise ConfigError(
            f"train_cfg: {type(train_cfg).__name__} is not allowed; it must be a Config or a dict with the sections "
            "policy, algorithm and runner: runner.algorithm_class_name selects the algorithm, the runner builds it"
        )
    if env is not None:
        train_cfg = {**train_cfg, "env": {"name": type(env).__name__, **(train_cfg.get("env") or {})}}
    config, lines = from_dict(train_cfg)
    for line in lines:
        warnings.warn(line, stacklevel=3)
    return config


def check_kind(path: str | Path) -> None:
    """Checks the argument of ``save``, which is a kind of checkpoint. Raises ``ConfigError`` for anything else."""
    if str(path) in KINDS:
        return
    allowed = f"it must be {', '.join(KINDS[:-1])} or {KINDS[-1]}; checkpoints are written into the runner's log_dir"
    if Path(path).suffix == TORCH:
        raise ConfigError(f"path: {str(path)!r} is not allowed: torch files cannot be written yet; {allowed}")
    raise ConfigError(f"path: {str(path)!r} is not allowed; {allowed}")


def check_load(runner, path: Path, map_location: Any, kind: str, iteration: int | None) -> None:
    """Checks the arguments of ``load``, and warns of those without an effect.

    Raises:
        ConfigError: ``kind`` or ``iteration`` is given for a torch file, or a kind in the place of ``map_location``.
    """
    if map_location in KINDS:
        raise ConfigError(f"map_location: {map_location!r} is a kind of checkpoint; write kind={map_location!r}")
    if map_location is not None:
        warnings.warn(
            "map_location: no effect; the arrays are placed on the runner's devices, see its argument device",
            stacklevel=3,
        )
    if path.suffix == TORCH and (kind != "last" or iteration is not None):
        raise ConfigError(f"kind, iteration: not allowed for {path.name}; they select a checkpoint of a run folder")
