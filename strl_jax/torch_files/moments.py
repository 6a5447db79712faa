"""Conversion of a torch optimiser's moments to an optax state over one flat vector."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import optax
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.flatten_util import ravel_pytree

from strl_jax.algorithms.base import Algorithm
from strl_jax.algorithms.style import DISCRIMINATOR
from strl_jax.torch_files import names as torch_names
from strl_jax.torch_files import networks as torch_networks
from strl_jax.torch_files.weights import LOG_STD, STD, locate

# the optimisers whose torch state is step, exp_avg and exp_avg_sq
WITH_MOMENTS = ("Adam", "AdamW", "NAdam", "RAdam")
BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
DEFAULTS = {"betas": [0.9, 0.999], "eps": 1e-8}


def import_moments(
    checkpoint: Mapping[str, Any], weights: Mapping[str, np.ndarray], algorithm: Algorithm, opt_state: Any
) -> tuple[Any, list[str]]:
    """Imports the moments and the step of the file's optimiser.

    torch numbers the parameters in the order of ``weights``, without buffers. This includes
    the parameters of a discriminator, which are used if the policy's optimiser trains it too.
    If the file has ``std`` and the policy log(std), or vice versa, the moments are converted
    by the chain rule: d/dlog(std) = std d/dstd, so the first moment is multiplied by std and
    the second by its square. This is exact for a constant std, and std changes little during
    the averaging time of the moments. Setting the moments to zero instead would be worse: with a
    large step count, the first updates would be several times too large.

    Args:
        checkpoint: with or without ``optimizer_state_dict``.
        weights: the model's state dict without statistics; it fits policy and discriminator.
        opt_state: a fresh state, or its shapes.

    Returns:
        The optimiser state, ``opt_state`` itself if the file's state does not fit, and a line
        for each part that was changed or not used.
    """
    state, configured = checkpoint.get("optimizer_state_dict"), algorithm.config.optimizer_class_name
    group = group_of(checkpoint)
    if group is None:
        return opt_state, ["optimizer_state_dict: not in the file: moments start at 0"]
    in_file = class_of(state)
    if in_file != configured:
        return opt_state, [f"optimizer: {in_file} in the file, {configured} in the config: moments start at 0"]
    if configured not in WITH_MOMENTS:
        return opt_state, [f"optimizer: the state of {configured} cannot be imported: moments start at 0"]
    shared = DISCRIMINATOR in algorithm.members.get("policy", ())
    has_discriminator = bool(torch_networks.split(weights)[1])
    if shared and not has_discriminator:
        return opt_state, ["optimizer: no discriminator in the file, which shares it: moments start at 0"]
    names = [name for name in weights if not name.endswith(BUFFERS)]
    entries, fault = _entries(state, names, weights)
    if fault:
        return opt_state, [f"optimizer: {fault}: moments start at 0"]
    ours = DEFAULTS | {"weight_decay": 1e-2 if configured == "AdamW" else 0} | algorithm.config.optimizer_kwargs
    lines = [
        f"optimizer: {key} {group[key]} in the file; continues with {value}"
        for key, value in ours.items()
        if key in group and group[key] != value
    ]
    missing = [name for name in names if name not in entries]
    if missing:
        lines.append(f"optimizer: no moments of {', '.join(missing)} in the file: they start at 0")
    steps = [int(entry["step"]) for entry in entries.values()]
    if min(steps) != max(steps):
        lines.append(f"optimizer: steps from {min(steps)} to {max(steps)} in the file; continues with {max(steps)}")
    if has_discriminator and not shared:
        lines.append("optimizer: the discriminator has a separate one here: its moments start at 0")
    places, mean, square = _moments(entries, weights, algorithm)
    if (places.get("std"), places.get("log_std")) in ((("policy", *LOG_STD), None), (None, ("policy", *STD))):
        lines.append("std and log(std): the moments are converted by the chain rule")
    adam = optax.ScaleByAdamState(np.asarray(max(steps), np.int32), mean, square)
    return jax.tree.map(lambda part: adam if _is_adam(part) else part, opt_state, is_leaf=_is_adam), lines


def group_of(checkpoint: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The optimiser's first parameter group; None where the file has no state of a torch optimiser."""
    state = checkpoint.get("optimizer_state_dict")
    groups, entries = (state.get("param_groups"), state.get("state")) if isinstance(state, dict) else (None, None)
    is_optimizer = (
        (groups and entries and isinstance(groups, list) and isinstance(entries, dict))
        and all(isinstance(group, dict) and isinstance(group.get("params"), list) for group in groups)
        and all(isinstance(number, int) for group in groups for number in group["params"])
        and all(isinstance(entry, dict) for entry in entries.values())
    )
    return groups[0] if is_optimizer else None


def class_of(state: Mapping[str, Any]) -> str:
    """Name of the torch optimiser that wrote this state, inferred from its keys."""
    group = state["param_groups"][0]
    if "betas" not in group:
        keys = {"alpha": "RMSprop", "nesterov": "SGD", "lr_decay": "Adagrad", "rho": "Adadelta"}
        return next((name for key, name in keys.items() if key in group), "another")
    if "momentum_decay" in group:
        return "NAdam"
    if "amsgrad" not in group:
        return "Adamax" if any("exp_inf" in entry for entry in state["state"].values()) else "RAdam"
    # older versions of torch do not store the difference; AdamW decays by default, Adam does not
    name = "AdamW" if group.get("decoupled_weight_decay", group.get("weight_decay", 0) != 0) else "Adam"
    return f"{name} with amsgrad" if group["amsgrad"] else name


def _entries(state: Mapping, names: list[str], weights: Mapping) -> tuple[dict[str, Mapping], str | None]:
    """Parameter -> its entry of the state, and the fault of the state or None."""
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    if len(state["param_groups"]) != 1 or len(numbers) != len(names):
        groups = len(state["param_groups"])
        return {}, f"{len(numbers)} parameters in {groups} groups for the model's {len(names)} in the file"
    pairs = zip(names, numbers, strict=True)
    entries = {name: state["state"][number] for name, number in pairs if state["state"].get(number)}
    for name, entry in entries.items():
        for key in ("exp_avg", "exp_avg_sq"):
            value = entry.get(key)
            if not isinstance(value, np.ndarray) or value.shape != weights[name].shape or not np.isfinite(value).all():
                return {}, f"{key} of {name} is not finite or has another shape than the weight"
        if np.size(entry.get("step")) != 1 or not np.isfinite(entry.get("step", np.nan)):
            return {}, f"step of {name} is not a finite number"
    return entries, None if entries else "the state contains no parameter of the model"


def _moments(entries: Mapping, weights: Mapping, algorithm: Algorithm) -> tuple[dict, np.ndarray, np.ndarray]:
    """Path of each parameter, group first, and both moments in the order of the optimiser's flat vector."""
    places, flat = _places(weights, algorithm), []
    drawn = algorithm.trained(jax.eval_shape(algorithm.init, jax.random.key(0)).params, "policy")
    shapes = flatten_dict({group: variables["params"] for group, variables in drawn.items()})
    for key, power in (("exp_avg", 1), ("exp_avg_sq", 2)):
        values = {path: np.zeros(leaf.shape, leaf.dtype) for path, leaf in shapes.items()}
        for name, entry in entries.items():
            path = places[name]
            if path in values:  # not those of a discriminator with a separate optimiser
                scale = _slope(name, path[1:], weights[name]) ** power
                values[path] = torch_names.transposed(path, np.asarray(entry[key] * scale, shapes[path].dtype))
        groups = {group: {"params": params} for group, params in unflatten_dict(values).items()}
        flat.append(np.asarray(ravel_pytree(groups)[0]))
    return places, *flat


def _places(weights: Mapping, algorithm: Algorithm) -> dict[str, tuple[str, ...]]:
    """Torch name -> parameter group and the path in it."""
    policy, discriminator = torch_networks.split(weights)
    paths = {name: ("policy", *path) for name, path in locate(policy, algorithm.policy).items() if path is not None}
    inner = torch_names.discriminator_paths(discriminator).items()
    return paths | {torch_networks.PREFIX + name: (DISCRIMINATOR, *path) for name, path in inner if path is not None}


def _slope(name: str, path: tuple[str, ...], value: np.ndarray) -> np.ndarray | float:
    """Derivative of the file's parameter with respect to ours."""
    if (name, path) == ("std", LOG_STD):
        return value
    if (name, path) == ("log_std", STD):
        return np.exp(-value)
    return 1.0


def _is_adam(part: Any) -> bool:
    return isinstance(part, optax.ScaleByAdamState)
