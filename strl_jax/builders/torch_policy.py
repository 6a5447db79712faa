"""Policies of torch files, for use without training: as sub-policies and as teachers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from strl_jax.builders.policy import make_policy
from strl_jax.config import from_dict
from strl_jax.config.policy import EstimatorStageFields
from strl_jax.modules.policy import Policy
from strl_jax.observations import Segments
from strl_jax.torch_files import networks, statistics, weights
from strl_jax.torch_files.file import TorchFileError, load_torch
from strl_jax.types import RunningStats


def load(
    path: Path,
    section: Mapping[str, Any],
    action_size: int,
    groups: Mapping[str, Segments],
    *,
    critic_is_its_own: bool = False,
) -> tuple[Policy, dict, dict[str, RunningStats], float]:
    """A policy, its variables, the statistics of its actor's components, and the normalizer's eps.

    Args:
        path: file of ``torch.save``.
        section: keywords of the policy class, with ``class_name``.
        action_size: number of actions.
        groups: observations of ``actor`` and ``critic``.
        critic_is_its_own: ``critic`` is the layout of the file's critic, not that of this run.

    Raises:
        TorchFileError: the file cannot be read, or does not fit.
        ConfigError: a keyword is wrong.
    """
    checkpoint = load_torch(path)
    if not isinstance(checkpoint.get("model_state_dict"), Mapping):
        raise TorchFileError("the file has no model_state_dict")
    model, moments = statistics.split(checkpoint)
    actions = np.size(model.get("std", model.get("log_std", np.ones(action_size))))
    if actions != action_size:
        raise TorchFileError(f"it has {actions} actions, the environment {action_size}")
    config, _ = from_dict({"env": {"name": "torch:file"}, "policy": dict(section), "compat": {"linear_std": True}})
    # Only estimators and critic encoders name the critic's components. For other policies the size of the
    # critic's observation is enough, and its components may differ from those of this run.
    settings, critic = config.policy, groups["critic"]
    critic_encoders = getattr(settings, "critic_encoder_component_names", None)
    if not critic_is_its_own and not isinstance(settings, EstimatorStageFields) and critic_encoders is None:
        critic = Segments(("critic",), ((_critic_size(model),),))
    policy = make_policy(config, action_size, {"actor": groups["actor"], "critic": critic})
    variables = weights.import_weights(networks.split(model)[0], policy)  # without the discriminator
    stats = statistics.import_statistics(moments, {"actor": groups["actor"]}, 1.0) if moments else {}
    return policy, variables, stats.get("actor", {}), config.algorithm.normalization_eps


def _critic_size(model: Mapping[str, np.ndarray]) -> int:
    """Length of the critic's observation."""
    for name in ("memory_c.rnn.weight_ih_l0", "critic.0.weight"):
        if np.ndim(model.get(name)) == 2:
            return model[name].shape[1]
    raise TorchFileError("there is no critic.0.weight in model_state_dict")
