"""Mutex policies, which select among the sub-policies of run folders of this library or of st_rl."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, Field, FiniteFloat

from strl_jax.algorithms.base import Algorithm
from strl_jax.builders import torch_policy
from strl_jax.builders.acting import make_groups
from strl_jax.builders.read_errors import reported_under
from strl_jax.builders.stored import read_policy
from strl_jax.config import Config, ConfigError
from strl_jax.config.errors import reported_after, show, validated
from strl_jax.config.policy import ClimbMutexFields, FieldMutexFields, MutexFields, Scale
from strl_jax.modules.mutex import MutexPolicy, SubPolicy, gather_variables
from strl_jax.observations import Segments
from strl_jax.run_folder import run_dir
from strl_jax.run_folder.layout import show_components

SELECTION = "selection"  # observation component
StrictScale = Annotated[Scale, Field(strict=True, allow_inf_nan=False)]


class _Control(BaseModel):
    action_scale: StrictScale | Annotated[tuple[StrictScale, ...], Field(min_length=1)]


class _ObsScales(BaseModel):
    lin_vel: Annotated[FiniteFloat, Field(strict=True)]


class _Normalization(BaseModel):
    obs_scales: _ObsScales


class _RunSettings(BaseModel):
    """The part of a run folder's ``config.json`` that is read: see ``run_dir.units``."""

    policy: dict[str, Any]
    control: _Control
    normalization: _Normalization


def make_mutex(config: Config, env) -> Algorithm:
    """The policy that selects among the sub-policies of ``policy.sub_policy_paths``; it is not trained.

    Raises:
        ConfigError: a folder cannot be read, or the sub-policies do not fit each other or the environment.
    """
    if config.algorithm.empirical_normalization:
        raise ConfigError(
            "algorithm.empirical_normalization: true is not allowed with the policy class "
            f"{config.runner.policy_class_name}; each sub-policy has the statistics of its own run"
        )
    groups = make_groups(config, env)
    loaded = [_load(Path(path), config, env.action_size, groups) for path in config.policy.sub_policy_paths]
    sub_policies, variables, normalizers = zip(*loaded, strict=True)
    act_groups, scale = ("actor",), _env_scale(config.policy, env)
    if not isinstance(config.policy, FieldMutexFields):
        groups |= {SELECTION: _selection(env, len(sub_policies))}
        act_groups = ("actor", SELECTION)
    with reported_after("policy: "):
        policy = MutexPolicy(
            action_size=env.action_size,
            actor_obs=groups["actor"],
            sub_policies=sub_policies,
            env_action_scale=scale,
            legacy=config.resolved_compat.zero_mutex_buffer,
            **_selection_options(config.policy),
        )
    return Algorithm(
        config=config.algorithm,
        compat=config.resolved_compat,
        policy=policy,
        groups=groups,
        terms=(),
        optimizers={},
        variables=gather_variables(variables, normalizers),
        act_groups=act_groups,
    )


def _env_scale(policy: MutexFields, env) -> float | tuple[float, ...]:
    scale = policy.env_action_scale
    if scale is None:
        return _checked({"policy": {}, **run_dir.units(env)}, "environment").control.action_scale
    if isinstance(scale, tuple) and len(scale) != env.action_size:
        raise ConfigError(
            f"policy.env_action_scale: {show(list(scale))} is not allowed; "
            f"it must be a number, or one for each of {env.action_size} actions"
        )
    return scale


def _selection_options(policy: MutexFields) -> dict[str, Any]:
    if not isinstance(policy, FieldMutexFields):
        return {"selection": "explicit"}
    options = {
        "selection": "field",
        "cmd_vel_mapping": tuple((int(index), velocity) for index, velocity in policy.cmd_vel_mapping.items()),
        "reset_non_selected": policy.reset_non_selected,
        "action_smoothing_buffer_len": policy.action_smoothing_buffer_len,
    }
    if isinstance(policy, ClimbMutexFields):
        options |= {"selection": "climb", "jump_down_vel": policy.jump_down_vel}
    return options


def _selection(env, count: int) -> Segments:
    """The component ``selection``, shape ``(count,)``: one-hot or weights, one column for each sub-policy."""
    if SELECTION not in env.observation_shapes:
        raise ConfigError(f"policy: ActorCriticMutex needs the component {SELECTION} of the environment; it has none")
    segments = Segments.select_from(env.observation_shapes, (SELECTION,))
    if segments.shapes != ((count,),):
        shape = segments.shapes[0]
        raise ConfigError(
            f"policy: component {SELECTION} has shape {shape}; it must be ({count},), one column for each sub-policy"
        )
    return segments


def _load(path: Path, config: Config, action_size: int, groups: dict[str, Segments]):
    """A sub-policy, its variables, and the moments that normalize its observations (or None)."""
    with reported_under("policy.sub_policy_paths", path):
        settings = _checked(run_dir.read_json(path), run_dir.JSON)
        load = _from_run if (path / "checkpoints").is_dir() else _from_torch
        policy, variables, stats, eps = load(path, settings.policy, config, action_size, groups)
    sub_policy = SubPolicy(policy, settings.control.action_scale, settings.normalization.obs_scales.lin_vel)
    return sub_policy, variables, _moments(stats, groups["actor"], eps)


def _from_run(path: Path, section: dict, config: Config, action_size: int, groups: dict[str, Segments]):
    """The newest ``last`` policy of a run of this library, whose actor must have the same observations."""
    source, variables, stats, _ = read_policy(path, ("last",))
    if source.groups["actor"] != groups["actor"]:
        seen, wanted = show_components(source.groups["actor"]), show_components(groups["actor"])
        raise ConfigError(f"its actor observes {seen}; all sub-policies must observe {wanted}")
    return source.policy, variables, stats.get("actor"), source.config.normalization_eps


def _from_torch(path: Path, section: dict, config: Config, action_size: int, groups: dict[str, Segments]):
    """The policy of the ``model_ITERATION.pt`` with the highest iteration."""
    numbered = re.compile(r"model_(\d+)\.pt")
    models = {int(match[1]): file for file in path.glob("*.pt") if (match := numbered.fullmatch(file.name))}
    if not models:
        raise ConfigError("it has neither checkpoints/ nor a model_*.pt")
    section = {"class_name": config.policy.sub_policy_class_name, **section}
    return torch_policy.load(models[max(models)], section, action_size, groups)


def _moments(stats: Mapping | None, actor: Segments, eps: float) -> dict | None:
    """Mean, and standard deviation + eps, of the whole observation ``[D]``."""
    if not stats:
        return None
    mean = [np.asarray(stats[name].mean).reshape(-1) for name in actor.names]
    std = [np.sqrt(np.asarray(stats[name].var).reshape(-1)) + eps for name in actor.names]
    return {"mean": np.concatenate(mean), "std": np.concatenate(std)}


def _checked(settings: dict, source: str) -> _RunSettings:
    return validated(_RunSettings, settings, lambda problem: f"{source}: {problem}", strict=None)
