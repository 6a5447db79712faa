"""Sub-policies of a mutex policy, loaded from run folders: this library's, or st_rl's with torch checkpoints."""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from strl_jax.algorithms.base import Algorithm
from strl_jax.builders import torch_policy
from strl_jax.builders.acting import make_groups
from strl_jax.builders.transfer.start import read_policy
from strl_jax.config import Config, ConfigError
from strl_jax.config.errors import show
from strl_jax.config.policy import SCALES, ClimbMutexFields, FieldMutexFields, MutexFields
from strl_jax.modules.mutex import MutexPolicy, SubPolicy, gather_variables
from strl_jax.observations import Segments
from strl_jax.run_folder import run_dir
from strl_jax.run_folder.errors import CheckpointError
from strl_jax.torch_files.file import TorchFileError

CONFIG = "config.json"
SELECTION = "selection"


def make_mutex(config: Config, env) -> Algorithm:
    """The policy that selects among the sub-policies of ``policy.sub_policy_paths``; it is not trained.

    Raises:
        ConfigError: a folder without what it needs, or what the folders hold does not
            fit together or the environment.
    """
    if config.algorithm.empirical_normalization:
        raise ConfigError(
            "algorithm.empirical_normalization: true is not allowed with the policy class "
            f"{config.runner.policy_class_name}; each sub-policy brings the statistics of its own run"
        )
    groups = make_groups(config, env)
    loaded = [_load(Path(path), config, env.action_size, groups) for path in config.policy.sub_policy_paths]
    sub_policies, variables, normalizers = zip(*loaded, strict=True)
    act_groups, scale = ("actor",), _env_scale(config.policy, env)
    if not isinstance(config.policy, FieldMutexFields):
        groups |= {SELECTION: _selection(env, len(sub_policies))}
        act_groups = ("actor", SELECTION)
    try:
        policy = MutexPolicy(
            action_size=env.action_size,
            actor_obs=groups["actor"],
            sub_policies=sub_policies,
            env_action_scale=scale,
            legacy=config.resolved_compat.zero_mutex_buffer,
            **_selection_options(config.policy),
        )
    except ValueError as error:
        raise ConfigError(f"policy: {error}") from None
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
        return _units(run_dir.units(env))[0]
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
    """The component that says which sub-policy acts."""
    if SELECTION not in env.observation_shapes:
        raise ConfigError(f"policy: ActorCriticMutex needs the component {SELECTION} of the environment; it has none")
    segments = Segments.select_from(env.observation_shapes, (SELECTION,))
    if segments.shapes != ((count,),):
        shape = segments.shapes[0]
        raise ConfigError(
            f"policy: component {SELECTION} has shape {shape}; it must be ({count},), one column a policy"
        )
    return segments


def _load(path: Path, config: Config, action_size: int, groups: dict[str, Segments]):
    """A sub-policy, its variables, and what normalised its observations (or None)."""
    try:
        found = _read_json(path)
        scale, lin_vel = _units(found)
        if (path / "checkpoints").is_dir():
            policy, variables, moments = _own(path, groups["actor"])
        else:
            policy, variables, moments = _torch(path, found, config, action_size, groups)
    except (ConfigError, CheckpointError, TorchFileError) as error:
        lines = [run_dir.inside(path, line) for line in str(error).split("\n")]
        raise ConfigError(*(f"policy.sub_policy_paths: {path}: {line}" for line in lines)) from None
    return SubPolicy(policy, scale, lin_vel), variables, moments


def _own(path: Path, actor: Segments):
    """The newest policy of one of our runs, whose actor must see what this one sees."""
    source, variables, stats, _ = read_policy(path, ("last",))
    if source.groups["actor"] != actor:
        raise ConfigError(f"it acts on {_show(source.groups['actor'])}; all must act on {_show(actor)}")
    return source.policy, variables, _moments(stats.get("actor"), actor, source.config.normalization_eps)


def _show(segments: Segments) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in zip(segments.names, segments.shapes, strict=True))


def _torch(path: Path, found: Mapping, config: Config, action_size: int, groups: dict[str, Segments]):
    """The policy of the newest ``model_*.pt``."""
    numbered = re.compile(r"model_(\d+)\.pt")
    models = {int(match[1]): file for file in path.glob("*.pt") if (match := numbered.fullmatch(file.name))}
    if not models:
        raise ConfigError("it has neither checkpoints/ nor a model_*.pt")
    section = {**found["policy"], "class_name": found["policy"].get("class_name", config.policy.sub_policy_class_name)}
    policy, variables, moments, eps = torch_policy.load(models[max(models)], section, action_size, groups)
    return policy, variables, _moments(moments, groups["actor"], eps)


def _moments(stats: Mapping | None, actor: Segments, eps: float) -> dict | None:
    """Mean, and standard deviation + eps, of the whole observation ``[D]``."""
    if not stats:
        return None
    mean = [np.asarray(stats[name].mean).reshape(-1) for name in actor.names]
    std = [np.sqrt(np.asarray(stats[name].var).reshape(-1)) + eps for name in actor.names]
    return {"mean": np.concatenate(mean), "std": np.concatenate(std)}


def _read_json(path: Path) -> dict:
    if not path.is_dir():
        raise ConfigError("there is no such folder")
    try:
        found = json.loads((path / CONFIG).read_text())
    except OSError as error:
        raise ConfigError(f"its {CONFIG} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"its {CONFIG} is no JSON: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("policy"), dict):
        raise ConfigError(f"its {CONFIG} has no section policy")
    return found


def _units(found: Mapping) -> tuple[float | tuple[float, ...], float]:
    """``control.action_scale`` and ``normalization.obs_scales.lin_vel``."""
    scale = _entry(found, "control", "action_scale")
    numbers = scale if isinstance(scale, list) else [scale]
    if not numbers or not all(_is_number(number) and SCALES[0] <= number <= SCALES[1] for number in numbers):
        raise ConfigError(
            f"control.action_scale of its {CONFIG} is {show(scale)}; "
            f"it must be a number from {SCALES[0]:g} to {SCALES[1]:g}, or one for each action"
        )
    lin_vel = _entry(found, "normalization", "obs_scales", "lin_vel")
    if not _is_number(lin_vel):
        raise ConfigError(f"normalization.obs_scales.lin_vel of its {CONFIG} is {show(lin_vel)}; it must be a number")
    return tuple(map(float, scale)) if isinstance(scale, list) else float(scale), float(lin_vel)


def _entry(found: Any, *keys: str) -> Any:
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
