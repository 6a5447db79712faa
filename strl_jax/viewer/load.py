"""Loading of a trained policy and its environments from a run folder, with overrides of the config."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp
import yaml
from flax.traverse_util import empty_node, flatten_dict

from strl_jax.algorithms.base import Algorithm
from strl_jax.builders import acting
from strl_jax.builders.stored import read_acting
from strl_jax.config import Config, yaml_file
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.run_folder import run_dir
from strl_jax.run_folder.checkpoints import Checkpointer


@dataclass(frozen=True)
class Trained:
    """A trained policy that is ready to act.

    Attributes:
        config: config of the run, with the overrides.
        env: environments with episodes as in training, at the iteration of the checkpoint.
        algorithm: holds the policy module and its observation groups.
        variables: Flax variables of the policy.
        stats: statistics that normalise the observations.
        kind: kind of the checkpoint: best, last or numbered.
        iteration: iteration of the checkpoint.
    """

    config: Config
    env: EpisodeEnv
    algorithm: Algorithm
    variables: dict
    stats: dict
    kind: str
    iteration: int


def read_config(path: Path, overrides: Sequence[str]) -> tuple[Config, list[str]]:
    """The config of the run in ``path`` with overrides, and warnings.

    An override of the section ``env`` by a mapping changes only the keys in the mapping.

    Raises:
        ConfigError: ``path`` is no run folder, or an override is invalid.
    """
    return run_dir.read_config(path, [part for text in overrides for part in _split_override(text)])


def _split_override(override: str) -> list[str]:
    """Splits an override of a section of ``env`` into one override per value; any other is returned unchanged.

    Raises:
        ConfigError: ``override`` is not of the form ``section.key=VALUE``.
    """
    path, value = yaml_file.parse_override(override)
    if path[0] != "env" or not isinstance(value, dict) or not value:
        return [override]
    leaves = flatten_dict(value, keep_empty_nodes=True).items()
    return [f"{'.'.join(map(str, (*path, *key)))}={_yaml({} if leaf is empty_node else leaf)}" for key, leaf in leaves]


def _yaml(value) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10**6).removesuffix("...\n").strip()


def load(source: Checkpointer, chosen: Sequence[tuple[str, int]], config: Config, env: EpisodeEnv) -> Trained:
    """Loads the policy of the first undamaged checkpoint in ``chosen``; warns about damaged ones before it.

    Args:
        source: reader of the checkpoints of the run.
        chosen: (kind, iteration) of the candidates, in the order of preference.
        config, env: of the run, with the overrides.

    Raises:
        ConfigError: the policy does not match the environment.
        CheckpointError: all are damaged, or the policy was trained on other observations.
    """
    algorithm = acting.make_acting(config, env.env)
    kind, iteration, train, _ = read_acting(source, chosen, algorithm, config)
    env = env.at_iteration(jnp.int32(iteration))
    return Trained(config, env, algorithm, train["params"]["policy"], train["stats"], kind, iteration)
