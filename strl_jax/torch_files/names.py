"""Names and layouts of weights: from st_rl's and rsl_rl's torch modules to the parameters of ``Policy``."""

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
# prefix of a layer's number inside a network -> path of its submodule
PARTS = {"": (), "model.": (), "conv.": (), "conv.conv.": ("conv",), "head.model.": ("head",)}
UNUSED = "num_batches_tracked"
LAST = "amp_linear"  # last layer of a discriminator


def discriminator_paths(weights: Mapping[str, np.ndarray]) -> dict[str, tuple[str, ...] | None]:
    """Torch name in an ``AMPDiscriminator`` -> path below ``params``; None if the name is unknown."""
    places = {name: sequential_path("trunk", name, weights) for name in weights}
    hidden = len({place[0] for place in places.values() if place})  # the last layer is not in the trunk
    places |= {f"{LAST}.weight": (f"layer_{hidden}", "kernel"), f"{LAST}.bias": (f"layer_{hidden}", "bias")}
    return {name: None if places[name] is None else ("trunk", *places[name]) for name in weights}


def sequential_path(prefix: str, name: str, weights: Mapping[str, np.ndarray]) -> tuple[str, str] | None:
    """Layer and parameter of ``PREFIX.NUMBER.weight`` or ``.bias`` in a ``Sequential``; None for any other name."""
    match = re.fullmatch(rf"({re.escape(prefix)}\.)(\d+)\.(weight|bias)", name)
    return None if match is None else _layer(match[1], int(match[2]), match[3], weights)


def paths(weights: Mapping[str, np.ndarray]) -> dict[str, tuple[str, ...] | None]:
    """Torch name in an actor-critic -> path below ``params``; None if the name is unknown.

    Counters of batches are left out. ``std`` and ``log_std`` are different parameters.

    Args:
        weights: torch name -> array, the whole state dict: the index of a layer follows
            from the numbers of all weights of its ``Sequential``.
    """
    return {name: _path(name, weights) for name in weights if not name.endswith(UNUSED)}


def transposed(path: tuple[str, ...], value: np.ndarray) -> np.ndarray:
    """A torch array in the layout of the parameter at ``path``.

    Linear and recurrent weights are transposed to ``[in, out]``, convolutions to
    ``[kh, kw, in, out]``; all other arrays are unchanged.
    """
    if path[-1] != "kernel" and not path[-1].startswith("weight_"):
        return value
    return value.transpose(2, 3, 1, 0) if value.ndim == 4 else value.T


def torch_shape(path: tuple[str, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Shape in torch of the parameter of ``shape`` at ``path``, the inverse of ``transposed``."""
    if path[-1] != "kernel" and not path[-1].startswith("weight_"):
        return shape
    return (shape[3], shape[2], shape[0], shape[1]) if len(shape) == 4 else shape[::-1]


def _path(name: str, weights: Mapping[str, np.ndarray]) -> tuple[str, ...] | None:
    if name in ("std", "log_std"):
        return (name,)
    memory = re.fullmatch(r"(memory_\w)\.rnn\.((?:weight|bias)_[ih]h_l\d+)", name)
    if memory:
        return (MEMORIES[memory[1]], memory[2]) if memory[1] in MEMORIES else None
    layer = re.fullmatch(r"(.*?)(\d+)\.(weight|bias|running_mean|running_var)", name)
    for pattern, network in NETWORKS.items() if layer else ():
        inside = re.fullmatch(rf"({pattern})\.(.*)", layer[1])
        if inside and inside[inside.lastindex] in PARTS:
            names = (re.sub(pattern, network, inside[1]), *PARTS[inside[inside.lastindex]])
            place = _layer(layer[1], int(layer[2]), layer[3], weights)
            return None if place is None else (*names, *place)
    return None


def _layer(prefix: str, number: int, kind: str, weights: Mapping[str, np.ndarray]) -> tuple[str, str] | None:
    """Names of the layer at ``number`` in a ``Sequential`` and of its parameter ``kind``; None if there is no layer."""
    sizes = {}
    for name, value in weights.items():
        match = re.fullmatch(re.escape(prefix) + r"(\d+)\.weight", name)
        if match:
            sizes[int(match[1])] = value.ndim
    main = sorted(index for index, ndim in sizes.items() if ndim > 1)  # linear layers or convolutions, in order
    if not sizes.get(number):  # the layer has no weight, or the weight has no axes
        return None
    if sizes[number] == 1:  # a norm belongs to the convolution before it
        before = sum(index < number for index in main) - 1
        return f"norm_{before}", "scale" if kind == "weight" else kind
    word = "conv" if sizes[number] == 4 else "layer"
    return f"{word}_{main.index(number)}", "kernel" if kind == "weight" else kind
