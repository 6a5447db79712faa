"""The networks beside the policy in torch checkpoints: st_rl's discriminator, rsl_rl's random network distillation."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from flax.traverse_util import flatten_dict

from strl_jax.algorithms import rnd
from strl_jax.algorithms.style import DISCRIMINATOR
from strl_jax.torch_files import names as torch_names
from strl_jax.torch_files.file import TorchFileError
from strl_jax.torch_files.weights import arrange, faults

PREFIX = "discriminator."
RND = "rnd_state_dict"
PARTS = {"predictor": rnd.NAME, "target": rnd.TARGET}  # network in the file -> parameter group


def split(weights: Mapping[str, Any]) -> tuple[dict, dict]:
    """A model's state dict without its discriminator, and the discriminator's by its own names."""
    rest = {name: value for name, value in weights.items() if not name.startswith(PREFIX)}
    return rest, {name.removeprefix(PREFIX): weights[name] for name in weights if name not in rest}


def import_networks(checkpoint: Mapping[str, Any], fresh: Mapping[str, Any]) -> tuple[dict[str, dict], list[str]]:
    """Parameter group -> variables ``{"params": ...}`` of numpy arrays, and lines on what is not taken over.

    Args:
        checkpoint: with ``model_state_dict``.
        fresh: parameters of the algorithm by group, or their shapes.

    Raises:
        TorchFileError: a line for every name that only one side has, every shape that
            differs and every weight that is not finite.
    """
    weights, others = split(checkpoint["model_state_dict"])[1], checkpoint.get(RND)
    found, lines, wrong = {}, [], []
    if DISCRIMINATOR not in fresh and weights:
        wrong.append("discriminator: in the file only; APPO and ATPPO with an Amp policy class have one")
    elif DISCRIMINATOR in fresh and not weights:
        lines.append("the file has no discriminator: it starts anew")
    elif DISCRIMINATOR in fresh:
        paths = torch_names.discriminator_paths(_arrays(weights))
        places = {PREFIX + name: _below(DISCRIMINATOR, paths.get(name)) for name in weights}
        state_dict = {PREFIX + name: value for name, value in weights.items()}
        found |= _take(state_dict, places, {DISCRIMINATOR: fresh[DISCRIMINATOR]}, wrong)
        lines.append("statistics of the discriminator's states: not in the file, they start anew")
    if rnd.NAME not in fresh and others is not None:
        lines.append(f"{RND}: in the file, not taken over")
    elif rnd.NAME in fresh and not isinstance(others, Mapping):
        lines.append(f"the file has no {RND}: random network distillation starts anew")
    elif rnd.NAME in fresh:
        taken, told = _distillation(others, fresh, wrong)
        found |= taken
        lines += told
    if wrong:
        raise TorchFileError("\n".join(wrong))
    return found, lines


def _distillation(others: Mapping[str, Any], fresh: Mapping, wrong: list[str]) -> tuple[dict, list[str]]:
    """Predictor and target of rsl_rl; its statistics are of another kind."""
    known = [name for name in others if str(name).split(".")[0] in PARTS]
    networks, places = {f"{RND}.{name}": others[name] for name in known}, {}
    arrays = _arrays(networks)
    for name in networks:
        part = name.split(".")[1]
        path = torch_names.sequential_path(f"{RND}.{part}", name, arrays) if name in arrays else None
        places[name] = _below(PARTS[part], path)
    found = _take(networks, places, {group: fresh[group] for group in PARTS.values()}, wrong)
    rest = dict.fromkeys(str(name).split(".")[0] for name in others if name not in known)
    return found, [f"{RND}, {name}: in the file, not taken over" for name in rest]


def _arrays(weights: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: value for name, value in weights.items() if isinstance(value, np.ndarray)}


def _below(group: str, path: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return None if path is None else (group, *path)


def _take(weights: Mapping, places: Mapping, fresh: Mapping[str, Any], wrong: list[str]) -> dict:
    """Group -> variables; where the weights do not fit, nothing, and lines in ``wrong``."""
    shapes = flatten_dict({group: variables["params"] for group, variables in fresh.items()})
    lines = faults(weights, places, shapes, "the config")
    wrong += lines
    return {} if lines else {group: {"params": params} for group, params in arrange(weights, places, shapes).items()}
