"""Other networks in torch checkpoints: st_rl's discriminator and rsl_rl's random network distillation (RND)."""

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
    """The state dict without the discriminator, and the state dict of the discriminator without its prefix."""
    rest = {name: value for name, value in weights.items() if not name.startswith(PREFIX)}
    return rest, {name.removeprefix(PREFIX): weights[name] for name in weights if name not in rest}


def import_networks(checkpoint: Mapping[str, Any], fresh: Mapping[str, Any]) -> tuple[dict[str, dict], list[str]]:
    """Discriminator and RND networks of a checkpoint, as parameters of an algorithm.

    Args:
        checkpoint: a dict with ``model_state_dict`` and, optionally, ``rnd_state_dict``.
        fresh: parameter group -> variables of the algorithm, or their shapes.

    Returns:
        Parameter group -> variables ``{"params": ...}`` of numpy arrays, and one line for
        everything that is not imported.

    Raises:
        TorchFileError: one line for every name that is missing on one side, every shape
            that differs and every weight that is not finite.
    """
    weights, rnd_state = split(checkpoint["model_state_dict"])[1], checkpoint.get(RND)
    imported, lines, errors = {}, [], []
    if DISCRIMINATOR not in fresh and weights:
        errors.append("discriminator: in the file only; APPO and ATPPO with an Amp policy class have one")
    elif DISCRIMINATOR in fresh and not weights:
        lines.append("the file has no discriminator: a new one is used")
    elif DISCRIMINATOR in fresh:
        paths = torch_names.discriminator_paths(_arrays(weights))
        places = {PREFIX + name: _below(DISCRIMINATOR, paths.get(name)) for name in weights}
        state_dict = {PREFIX + name: value for name, value in weights.items()}
        imported |= _import(state_dict, places, {DISCRIMINATOR: fresh[DISCRIMINATOR]}, errors)
        lines.append("statistics of the discriminator's states: not in the file, they start empty")
    if rnd.NAME not in fresh and rnd_state is not None:
        lines.append(f"{RND}: in the file, not used")
    elif rnd.NAME in fresh and not isinstance(rnd_state, Mapping):
        lines.append(f"the file has no {RND}: random network distillation starts with new networks")
    elif rnd.NAME in fresh:
        networks, notes = _import_rnd(rnd_state, fresh, errors)
        imported |= networks
        lines += notes
    if errors:
        raise TorchFileError("\n".join(errors))
    return imported, lines


def _import_rnd(rnd_state: Mapping[str, Any], fresh: Mapping, errors: list[str]) -> tuple[dict, list[str]]:
    """Predictor and target of rsl_rl. Its statistics are not imported, because they are computed differently."""
    known = [name for name in rnd_state if str(name).split(".")[0] in PARTS]
    networks, places = {f"{RND}.{name}": rnd_state[name] for name in known}, {}
    arrays = _arrays(networks)
    for name in networks:
        part = name.split(".")[1]
        path = torch_names.sequential_path(f"{RND}.{part}", name, arrays) if name in arrays else None
        places[name] = _below(PARTS[part], path)
    imported = _import(networks, places, {group: fresh[group] for group in PARTS.values()}, errors)
    rest = dict.fromkeys(str(name).split(".")[0] for name in rnd_state if name not in known)
    return imported, [f"{RND}, {name}: in the file, not used" for name in rest]


def _arrays(weights: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: value for name, value in weights.items() if isinstance(value, np.ndarray)}


def _below(group: str, path: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return None if path is None else (group, *path)


def _import(weights: Mapping, places: Mapping, fresh: Mapping[str, Any], errors: list[str]) -> dict:
    """Group -> variables; if the weights do not match, ``{}``, and one line per fault is added to ``errors``."""
    shapes = flatten_dict({group: variables["params"] for group, variables in fresh.items()})
    lines = faults(weights, places, shapes, "the config")
    errors += lines
    return {} if lines else {group: {"params": params} for group, params in arrange(weights, places, shapes).items()}
