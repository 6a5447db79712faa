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
from strl_jax.torch_files import layouts, statistics, weights
from strl_jax.torch_files.file import TorchFileError, load_torch
from strl_jax.types import RunningStats


def load(
    path: Path,
    section: Mapping[str, Any],
    action_size: int,
    groups: Mapping[str, Segments],
    *,
    critic_is_its_own: bool = False,
    teacher: bool = False,
    needs_std: bool = False,
) -> tuple[Policy, dict, dict[str, RunningStats], float]:
    """A policy, its variables, the statistics of its actor's components, and the normalizer's eps.

    The student or the teacher of a distillation has no critic: its variables have none. Without a standard
    deviation in the file it is ``init_noise_std``.

    Args:
        path: file of ``torch.save``.
        section: keywords of the policy class, with ``class_name``.
        action_size: number of actions.
        groups: observations of ``actor`` and ``critic``.
        critic_is_its_own: ``critic`` is the layout of the file's critic, not that of this run.
        teacher: of a distillation, the teacher, not the student.
        needs_std: the standard deviation of the actions is used.

    Raises:
        TorchFileError: the file cannot be read, or does not fit.
        ConfigError: a keyword is wrong.
    """
    model = layouts.read(load_torch(path), teacher)
    if needs_std and not model.has_std:
        raise TorchFileError("it has no std; labels that are samples, and distill_target kl, need one")
    std = next((model.weights[name] for name in layouts.DEVIATIONS if name in model.weights), np.ones(action_size))
    if np.size(std) != action_size:
        raise TorchFileError(f"it has {np.size(std)} actions, the environment {action_size}")
    config, _ = from_dict({"env": {"name": "torch:file"}, "policy": dict(section), "compat": {"linear_std": True}})
    # Only estimators and critic encoders name the critic's components. For other policies the size of the
    # critic's observation is enough, and its components may differ from those of this run.
    settings, critic = config.policy, groups["critic"]
    critic_encoders = getattr(settings, "critic_encoder_component_names", None)
    known = critic_is_its_own or isinstance(settings, EstimatorStageFields) or critic_encoders is not None
    if not known and not model.distillation:
        critic = Segments(("critic",), ((_critic_size(model),),))
    policy = make_policy(config, action_size, {"actor": groups["actor"], "critic": critic})
    variables = weights.import_weights(model, policy)
    if not model.has_std:
        variables["params"]["std"] = np.full(action_size, settings.init_noise_std, np.float32)
    eps, stats = config.algorithm.normalization_eps, {}
    if "actor" in model.statistics:
        stats, _ = statistics.import_statistics(model.statistics, {"actor": groups["actor"]}, 1.0, eps)
    return policy, variables, stats.get("actor", {}), eps


def _critic_size(model: layouts.Model) -> int:
    """Length of the critic's observation."""
    for name in ("memory_c.rnn.weight_ih_l0", "critic.0.weight"):
        if np.ndim(model.weights.get(name)) == 2:
            return model.weights[name].shape[1]
    raise TorchFileError(f"there is no {model.label('critic.0.weight')} in the file")
