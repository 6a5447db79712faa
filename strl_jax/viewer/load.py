"""The policy of a run folder with the environments that it was trained in, or others by overrides."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from strl_jax.algorithms.base import Algorithm
from strl_jax.builders import acting
from strl_jax.builders.stored import read_acting
from strl_jax.config import Config, yaml_file
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.run_folder import run_dir
from strl_jax.run_folder.checkpoints import Checkpointer


@dataclass(frozen=True)
class Trained:
    """What a run folder holds, ready to act.

    Attributes:
        config: the run's with the overrides.
        env: episodes as in training.
        algorithm, variables, stats: the policy.
        kind, iteration: of its checkpoint.
    """

    config: Config
    env: EpisodeEnv
    algorithm: Algorithm
    variables: dict
    stats: dict
    kind: str
    iteration: int


def read_config(path: Path, overrides: Sequence[str]) -> tuple[Config, list[str]]:
    """The config of the run in ``path`` with overrides, of which a mapping changes only what it names.

    Raises:
        ConfigError: no run there, or bad overrides.
    """
    return run_dir.read_config(path, [part for text in overrides for part in single(text)])


def single(override: str) -> list[str]:
    """An override of an environment's section as one for each value in it.

    Raises:
        ConfigError: it is no ``section.key=VALUE``.
    """
    path, value = yaml_file.parse_override(override)
    if path[0] != "env" or not isinstance(value, dict):
        return [override]
    return [f"{'.'.join(key)}={text}" for key, text in _leaves(path, value)]


def _leaves(path: tuple[str, ...], value) -> list[tuple[tuple[str, ...], str]]:
    if isinstance(value, dict) and value:
        return [leaf for key, item in value.items() for leaf in _leaves((*path, str(key)), item)]
    return [(path, yaml.safe_dump(value, default_flow_style=True, width=10**6).removesuffix("...\n").strip())]


def load(source: Checkpointer, chosen: Sequence[tuple[str, int]], config: Config, env: EpisodeEnv) -> Trained:
    """The policy in the first checkpoint ``chosen`` that is whole; warns of those passed over.

    Args:
        source: of the run; gave ``chosen``.
        config, env: the run's with the overrides.

    Raises:
        ConfigError: the policy does not fit the environment.
        CheckpointError: all are damaged, or it is one of other observations.
    """
    algorithm = acting.make_acting(config, env.env)
    kind, iteration, train, _ = read_acting(source, chosen, algorithm, config)
    return Trained(config, env, algorithm, train["params"]["policy"], train["stats"], kind, iteration)
