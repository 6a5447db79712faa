"""Weights under the names of st_rl's torch modules, as parameters of ``Policy``."""

import re
from collections.abc import Mapping

import numpy as np

NETWORKS = {
    r"actor": "actor",
    r"critic": "critic",
    r"state_estimator": "state_estimator",
    r"state_adaptor": "state_adaptor",
    r"encoders\.(\d+)": r"actor_encoder_\1",
    r"critic_encoders\.(\d+)": r"critic_encoder_\1",
    r"visual_encoder": "actor_encoder_0",
}
MEMORIES = {
    "memory_a": "memory_actor",
    "memory_c": "memory_critic",
    "memory_s": "memory_estimator",
    "memory_p": "memory_adaptor",
}
# inside a network: a path before the number of a layer in its Sequential
PARTS = {"": (), "model.": (), "conv.": (), "conv.conv.": ("conv",), "head.model.": ("head",)}
UNUSED = "num_batches_tracked"


def to_flax(weights: Mapping[str, np.ndarray]) -> tuple[dict[tuple[str, ...], np.ndarray], list[str]]:
    """Torch weights by the path of the parameter that each one is here.

    Linear and recurrent weights are transposed to ``[in, out]``, convolutions to
    ``[kh, kw, in, out]``. ``std`` stays the linear standard deviation.

    Args:
        weights: torch name -> array, a whole state dict: which layer a number in a
            ``Sequential`` means follows from the others.

    Returns:
        Path below ``params`` -> array, and the names that mean nothing here.
    """
    found, unknown = {}, []
    for name, value in weights.items():
        path = _path(name, weights)
        if path is not None:
            found[path] = _transposed(value) if path[-1] == "kernel" or path[-1].startswith("weight_") else value
        elif not name.endswith(UNUSED):
            unknown.append(name)
    return found, unknown


def _transposed(value: np.ndarray) -> np.ndarray:
    return value.transpose(2, 3, 1, 0) if value.ndim == 4 else value.T


def _path(name: str, weights: Mapping[str, np.ndarray]) -> tuple[str, ...] | None:
    if name == "std":
        return ("std",)
    memory = re.fullmatch(r"(memory_\w)\.rnn\.((?:weight|bias)_[ih]h_l\d+)", name)
    if memory:
        return (MEMORIES[memory[1]], memory[2]) if memory[1] in MEMORIES else None
    layer = re.fullmatch(r"(.*?)(\d+)\.(weight|bias|running_mean|running_var)", name)
    for pattern, network in NETWORKS.items() if layer else ():
        inside = re.fullmatch(rf"({pattern})\.(.*)", layer[1])
        if inside and inside[inside.lastindex] in PARTS:
            names = (re.sub(pattern, network, inside[1]), *PARTS[inside[inside.lastindex]])
            return (*names, *_layer(layer[1], int(layer[2]), layer[3], weights))
    return None


def _layer(prefix: str, number: int, kind: str, weights: Mapping[str, np.ndarray]) -> tuple[str, str]:
    """The layer that stands at ``number`` in a ``Sequential``, and its parameter ``kind``."""
    sizes = {}
    for name, value in weights.items():
        match = re.fullmatch(re.escape(prefix) + r"(\d+)\.weight", name)
        if match:
            sizes[int(match[1])] = value.ndim
    main = sorted(index for index, ndim in sizes.items() if ndim > 1)  # linear layers or convolutions, in order
    if sizes[number] == 1:  # a norm belongs to the convolution before it
        before = sum(index < number for index in main) - 1
        return f"norm_{before}", "scale" if kind == "weight" else kind
    word = "conv" if sizes[number] == 4 else "layer"
    return f"{word}_{main.index(number)}", "kernel" if kind == "weight" else kind
