"""Policies of torch checkpoints, for those who only let them act: mutex policies and teachers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from strl_jax.builders.policy import make_policy
from strl_jax.config import from_dict
from strl_jax.config.policy import EstimatorFields, has
from strl_jax.modules.policy import Policy
from strl_jax.observations import Segments
from strl_jax.torch_files import networks as torch_networks
from strl_jax.torch_files import statistics as torch_statistics
from strl_jax.torch_files import weights as torch_weights
from strl_jax.torch_files.file import TorchFileError, load_torch
from strl_jax.types import RunningStats


def load(
    path: Path, section: Mapping[str, Any], action_size: int, groups: Mapping[str, Segments]
) -> tuple[Policy, dict, dict[str, RunningStats], float]:
    """A policy, its variables, the statistics of its actor's components, and the eps that goes with them.

    Args:
        path: file of ``torch.save``.
        section: the keywords of its class, with ``class_name``.
        action_size: number of actions.
        groups: what its actor and its critic see.

    Raises:
        TorchFileError: it cannot be read, or does not fit.
        ConfigError: wrong keywords.
    """
    checkpoint = load_torch(path)
    if not isinstance(checkpoint.get("model_state_dict"), Mapping):
        raise TorchFileError("the file has no model_state_dict")
    weights, statistics = torch_statistics.split(checkpoint)
    _check_actions(weights, action_size)
    config, _ = from_dict({"env": {"name": "torch:file"}, "policy": dict(section), "compat": {"linear_std": True}})
    # Stages name the critic's components; without them only their size matters, and the run may have had others.
    policy, critic = config.policy, groups["critic"]
    if not has(policy, EstimatorFields) and getattr(policy, "critic_encoder_component_names", None) is None:
        critic = Segments(("critic",), ((_critic_size(weights),),))
    module = make_policy(config, action_size, {"actor": groups["actor"], "critic": critic})
    variables = torch_weights.import_weights(torch_networks.split(weights)[0], module)  # nobody is judged here
    moments = torch_statistics.import_statistics(statistics, {"actor": groups["actor"]}, 1.0) if statistics else {}
    return module, variables, moments.get("actor", {}), config.algorithm.normalization_eps


def _check_actions(weights: Mapping[str, np.ndarray], action_size: int) -> None:
    found = np.size(weights.get("std", weights.get("log_std", np.ones(action_size))))
    if found != action_size:
        raise TorchFileError(f"it has {found} actions, the environment {action_size}")


def _critic_size(weights: Mapping[str, np.ndarray]) -> int:
    """How much the critic of a torch file sees."""
    for name in ("memory_c.rnn.weight_ih_l0", "critic.0.weight"):
        if np.ndim(weights.get(name)) == 2:
            return weights[name].shape[1]
    raise TorchFileError("there is no critic.0.weight in model_state_dict")
