"""st_rl's discriminator in torch checkpoints, and the import of any network that is not the policy."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from flax.traverse_util import flatten_dict

from strl_jax.algorithms.style import DISCRIMINATOR
from strl_jax.torch_files import layouts
from strl_jax.torch_files import names as torch_names
from strl_jax.torch_files.file import TorchFileError
from strl_jax.torch_files.layouts import Model
from strl_jax.torch_files.weights import arrange, faults


def import_discriminator(model: Model, fresh: Mapping[str, Any]) -> tuple[dict[str, dict], list[str]]:
    """The discriminator of a file, as parameters of an algorithm.

    Args:
        fresh: parameter group -> variables of the algorithm, or their shapes.

    Returns:
        Parameter group -> variables ``{"params": ...}`` of numpy arrays, and one line for
        everything that is not imported.

    Raises:
        TorchFileError: one line for every name that is missing on one side, every shape
            that differs and every weight that is not finite.
    """
    weights = model.discriminator
    if DISCRIMINATOR not in fresh and weights:
        raise TorchFileError("discriminator: in the file only; APPO and ATPPO with an Amp policy class have one")
    if DISCRIMINATOR not in fresh:
        return {}, []
    if not weights:
        return {}, ["the file has no discriminator: a new one is used"]
    paths = torch_names.discriminator_paths(arrays(weights))
    places = {layouts.DISCRIMINATOR + name: below(DISCRIMINATOR, paths.get(name)) for name in weights}
    state_dict = {layouts.DISCRIMINATOR + name: value for name, value in weights.items()}
    imported = import_groups(state_dict, places, {DISCRIMINATOR: fresh[DISCRIMINATOR]})
    return imported, ["statistics of the discriminator's states: not in the file, they start empty"]


def arrays(weights: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The entries that are arrays."""
    return {name: value for name, value in weights.items() if isinstance(value, np.ndarray)}


def below(group: str, path: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """``path`` below a parameter group; None stays None."""
    return None if path is None else (group, *path)


def import_groups(weights: Mapping, places: Mapping, fresh: Mapping[str, Any]) -> dict[str, dict]:
    """Group -> variables.

    Args:
        weights: torch name -> array.
        places: torch name -> path of the parameter, group first; None if the name is unknown.
        fresh: group -> variables, or their shapes.

    Raises:
        TorchFileError: one line for every mismatch.
    """
    shapes = flatten_dict({group: variables["params"] for group, variables in fresh.items()})
    lines = faults(weights, places, shapes, "the config")
    if lines:
        raise TorchFileError("\n".join(lines))
    return {group: {"params": params} for group, params in arrange(weights, places, shapes).items()}
