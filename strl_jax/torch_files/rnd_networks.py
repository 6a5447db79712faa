"""rsl_rl's random network distillation (RND) in torch checkpoints: networks and statistics."""

from collections.abc import Mapping
from typing import Any

from strl_jax.algorithms import rnd
from strl_jax.algorithms.base import Algorithm
from strl_jax.torch_files import names as torch_names
from strl_jax.torch_files.file import TorchFileError, all_faults
from strl_jax.torch_files.networks import arrays, below, import_groups
from strl_jax.torch_files.statistics import import_one
from strl_jax.types import RunningStats

RND = "rnd_state_dict"
GROUPS = {"predictor": rnd.NAME, "target": rnd.TARGET}  # network in the file -> parameter group
STATE, REWARD = "state_normalizer.", "reward_normalizer.emp_norm."
SETTINGS = "algorithm.rnd_cfg"


def import_rnd(
    checkpoint: Mapping[str, Any], algorithm: Algorithm, fresh: Mapping[str, Any]
) -> tuple[dict[str, dict], dict[str, RunningStats], list[str]]:
    """The networks and the statistics of RND.

    Args:
        checkpoint: with or without ``rnd_state_dict``.
        algorithm: with or without RND.
        fresh: parameter group -> variables of the algorithm, or their shapes.

    Returns:
        Parameter group -> variables ``{"params": ...}`` of numpy arrays, the statistics, and
        one line for everything that is not imported.

    Raises:
        TorchFileError: one line for every name that is missing on one side, every shape that
            differs, every weight that is not finite, and statistics that only one side has.
    """
    if rnd.NAME not in fresh:
        return {}, {}, [f"{RND}: in the file, not used"] if checkpoint.get(RND) is not None else []
    if not is_in(checkpoint):
        return {}, {}, [f"the file has no {RND}: random network distillation starts with new networks"]
    places, networks = locate(checkpoint), weights(checkpoint)
    wanted = {group: fresh[group] for group in GROUPS.values()}
    size = next(hook.group.size for hook in algorithm.reward_hooks if hook.name == rnd.NAME)
    imported, state, (reward, lines) = all_faults(
        lambda: import_groups(networks, places, wanted),
        lambda: _state(checkpoint, algorithm, size),
        lambda: _reward(checkpoint, algorithm),
    )
    known = (*GROUPS, STATE.split(".")[0], REWARD.split(".")[0])
    rest = dict.fromkeys(str(name).split(".")[0] for name in checkpoint[RND])
    lines += [f"{RND}, {name}: in the file, not used" for name in rest if name not in known]
    return imported, state | reward, lines


def is_in(checkpoint: Mapping[str, Any]) -> bool:
    """Whether the file has RND."""
    return isinstance(checkpoint.get(RND), Mapping)


def weights(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """``rnd_state_dict.NAME`` -> array of predictor and target, in the order in which torch numbers the parameters."""
    state = checkpoint[RND]
    return {f"{RND}.{name}": state[name] for name in state if str(name).split(".")[0] in GROUPS}


def locate(checkpoint: Mapping[str, Any]) -> dict[str, tuple[str, ...] | None]:
    """``rnd_state_dict.NAME`` -> path of the parameter, group first; None if the name is unknown."""
    networks, places = weights(checkpoint), {}
    known = arrays(networks)
    for name in networks:
        part = name.split(".")[1]
        path = torch_names.sequential_path(f"{RND}.{part}", name, known) if name in known else None
        places[name] = below(GROUPS[part], path)
    return places


def _state(checkpoint: Mapping[str, Any], algorithm: Algorithm, size: int) -> dict[str, RunningStats]:
    inner, wanted = _inner(checkpoint, STATE), algorithm.config.rnd_cfg.state_normalization
    _check_sides(STATE, bool(inner), wanted, "state_normalization")
    return {rnd.STATE: import_one(f"{RND}, {STATE.strip('.')}", inner, (size,))} if wanted else {}


def _reward(checkpoint: Mapping[str, Any], algorithm: Algorithm) -> tuple[dict[str, RunningStats], list[str]]:
    """rsl_rl's are statistics of the discounted sum of the rewards."""
    inner, config = _inner(checkpoint, REWARD), algorithm.config.rnd_cfg
    _check_sides(REWARD, bool(inner), config.reward_normalization, "reward_normalization")
    if config.reward_normalization and not config.rsl_rl:
        why = f"they are those of the discounted sum, which needs {SETTINGS}.rsl_rl=true"
        return {}, [f"{RND}, {REWARD.split('.')[0]}: in the file, not used; {why}"]
    title = f"{RND}, {REWARD.strip('.')}"
    return {rnd.REWARD: import_one(title, inner, ())} if config.reward_normalization else {}, []


def _check_sides(prefix: str, in_file: bool, in_config: bool, key: str) -> None:
    name = f"{RND}, {prefix.split('.')[0]}"
    if in_file and not in_config:
        raise TorchFileError(f"{name}: in the file, not in the config; use {SETTINGS}.{key}=true")
    if in_config and not in_file:
        raise TorchFileError(f"{name}: in the config, not in the file; use {SETTINGS}.{key}=false")


def _inner(checkpoint: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    named = ((str(name), value) for name, value in checkpoint[RND].items())
    return {name.removeprefix(prefix): value for name, value in named if name.startswith(prefix)}
