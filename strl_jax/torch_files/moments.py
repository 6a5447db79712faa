"""Conversion of a torch optimiser's moments to an optax state over one flat vector."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import optax
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.flatten_util import ravel_pytree

from strl_jax.algorithms import rnd
from strl_jax.algorithms.base import Algorithm
from strl_jax.algorithms.optimizers import OPTIMIZERS, Adam, Optimizer
from strl_jax.algorithms.style import DISCRIMINATOR
from strl_jax.torch_files import layouts, rnd_networks
from strl_jax.torch_files import names as torch_names
from strl_jax.torch_files.layouts import Model
from strl_jax.torch_files.weights import LOG_STD, STD, locate

OPTIMIZER, RND_OPTIMIZER = "optimizer_state_dict", "rnd_optimizer_state_dict"
# the optimisers whose torch state is step, exp_avg and exp_avg_sq
WITH_MOMENTS = ("Adam", "AdamW", "NAdam", "RAdam")
BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
ZERO = "moments start at 0"


def import_moments(
    checkpoint: Mapping[str, Any], model: Model, algorithm: Algorithm, opt_state: Any
) -> tuple[Any, list[str]]:
    """Imports the moments and the step of the file's optimiser.

    torch numbers the parameters in the order of ``model.weights``, without buffers; rsl_rl 4 and 5 number
    those of the actor, then those of the critic. This includes
    the parameters of a discriminator, which are used if the policy's optimiser trains it too.
    If the file has ``std`` and the policy log(std), or vice versa, the moments are converted
    by the chain rule: d/dlog(std) = std d/dstd, so the first moment is multiplied by std and
    the second by its square. This is exact for a constant std, and std changes little during
    the averaging time of the moments. Setting the moments to zero instead would be worse: with a
    large step count, the first updates would be several times too large.

    Args:
        checkpoint: with or without ``optimizer_state_dict``.
        model: weights that fit policy and discriminator.
        opt_state: a fresh state, or its shapes.

    Returns:
        The optimiser state, ``opt_state`` itself if the file's state does not fit, and a line
        for each part that was changed or not used.
    """
    configured, group = algorithm.config.optimizer_class_name, group_of(checkpoint)
    if group is None:
        return opt_state, [f"{OPTIMIZER}: not in the file: {ZERO}"]
    fault = _unusable(checkpoint[OPTIMIZER], configured)
    shared = DISCRIMINATOR in algorithm.members.get("policy", ())
    if not fault and shared and not model.discriminator:
        fault = "no discriminator in the file, which shares it"
    weights = {name: value for name, value in model.weights.items() if not name.endswith(BUFFERS)}
    entries = {}
    if not fault:
        entries, fault = _entries(checkpoint[OPTIMIZER], weights, model.label)
    if fault:
        return opt_state, [f"optimizer: {fault}: {ZERO}"]
    missing = [model.label(name) for name in weights if name not in entries]
    settings = OPTIMIZERS[configured].model_validate(dict(algorithm.config.optimizer_kwargs))
    lines = _changes("optimizer", settings, group, entries, missing)
    if model.discriminator and not shared:
        lines.append(f"optimizer: the discriminator has a separate one here: its {ZERO}")
    places = _places(model, algorithm)
    if (places.get("std"), places.get("log_std")) in ((("policy", *LOG_STD), None), (None, ("policy", *STD))):
        lines.append("std and log(std): the moments are converted by the chain rule")
    slopes = {name: _slope(name, places[name][1:], weights[name]) for name in entries}
    return _filled(opt_state, entries, places, slopes, _shapes(algorithm, "policy")), lines


def import_rnd_moments(checkpoint: Mapping[str, Any], algorithm: Algorithm, opt_state: Any) -> tuple[Any, list[str]]:
    """Imports the moments of the predictor of random network distillation; as ``import_moments``.

    Args:
        checkpoint: with an ``rnd_state_dict`` that fits the algorithm.
    """
    title, group = "optimizer of RND", group_of(checkpoint, RND_OPTIMIZER)
    if group is None:
        return opt_state, [f"{RND_OPTIMIZER}: not in the file: {ZERO}"]
    places = rnd_networks.locate(checkpoint)
    weights = {name: value for name, value in rnd_networks.weights(checkpoint).items() if places[name][0] == rnd.NAME}
    fault, entries = _unusable(checkpoint[RND_OPTIMIZER], "Adam"), {}
    if not fault:
        entries, fault = _entries(checkpoint[RND_OPTIMIZER], weights, str)
    if fault:
        return opt_state, [f"{title}: {fault}: {ZERO}"]
    lines = _changes(title, Adam(), group, entries, [name for name in weights if name not in entries])
    rate, own = group.get("lr"), algorithm.config.rnd_cfg.learning_rate
    if rate is not None and rate != own:
        lines.append(f"learning rate of RND: {rate:g} in the file; continues with {own:g}")
    slopes = dict.fromkeys(entries, 1.0)
    return _filled(opt_state, entries, places, slopes, _shapes(algorithm, rnd.NAME)), lines


def group_of(checkpoint: Mapping[str, Any], key: str = OPTIMIZER) -> Mapping[str, Any] | None:
    """The first parameter group of the optimiser ``key``; None where the file has no state of a torch optimiser."""
    state = checkpoint.get(key)
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
        keys = {"RMSprop": "alpha", "SGD": "nesterov", "Adagrad": "lr_decay", "Adadelta": "rho"}
        return next((name for name, key in keys.items() if key in group), "another")
    if "momentum_decay" in group:
        return "NAdam"
    if "amsgrad" not in group:
        return "Adamax" if any("exp_inf" in entry for entry in state["state"].values()) else "RAdam"
    # older versions of torch do not store the difference; AdamW decays by default, Adam does not
    name = "AdamW" if group.get("decoupled_weight_decay", group.get("weight_decay", 0) != 0) else "Adam"
    return f"{name} with amsgrad" if group["amsgrad"] else name


def _unusable(state: Mapping[str, Any], configured: str) -> str | None:
    """Why the moments cannot be those of the optimiser ``configured``, or None."""
    in_file = class_of(state)
    if in_file != configured:
        return f"{in_file} in the file, {configured} in the config"
    return None if configured in WITH_MOMENTS else f"the state of {configured} cannot be imported"


def _entries(
    state: Mapping, weights: Mapping[str, np.ndarray], label: Callable[[str], str]
) -> tuple[dict[str, Mapping], str | None]:
    """Parameter -> its entry of the state, and the fault of the state or None."""
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    if len(state["param_groups"]) != 1 or len(numbers) != len(weights):
        groups = len(state["param_groups"])
        return {}, f"{len(numbers)} parameters in {groups} groups for the model's {len(weights)} in the file"
    pairs = zip(weights, numbers, strict=True)
    entries = {name: state["state"][number] for name, number in pairs if state["state"].get(number)}
    for name, entry in entries.items():
        for key in ("exp_avg", "exp_avg_sq"):
            value = entry.get(key)
            if not isinstance(value, np.ndarray) or value.shape != weights[name].shape or not np.isfinite(value).all():
                return {}, f"{key} of {label(name)} is not finite or has another shape than the weight"
        if np.size(entry.get("step")) != 1 or not np.isfinite(entry.get("step", np.nan)):
            return {}, f"step of {label(name)} is not a finite number"
    return entries, None if entries else "the state contains no parameter of the model"


def _changes(
    title: str, ours: Optimizer, group: Mapping, entries: Mapping[str, Mapping], missing: list[str]
) -> list[str]:
    """One line for each part of a usable state that continues with another value, such as that of ``ours``."""
    values = {key: list(value) if isinstance(value, tuple) else value for key, value in ours}
    lines = [
        f"{title}: {key} {group[key]} in the file; continues with {value}"
        for key, value in values.items()
        if key in group and group[key] != value
    ]
    if missing:
        lines.append(f"{title}: no moments of {', '.join(missing)} in the file: they start at 0")
    steps = _steps(entries)
    if min(steps) != max(steps):
        lines.append(f"{title}: steps from {min(steps)} to {max(steps)} in the file; continues with {max(steps)}")
    return lines


def _filled(opt_state: Any, entries: Mapping, places: Mapping, slopes: Mapping, shapes: Mapping) -> Any:
    """``opt_state`` with both moments in the order of the optimiser's flat vector.

    Args:
        entries: parameter -> its entry of torch's state.
        places: parameter -> its path, group first.
        slopes: parameter -> derivative of the file's parameter with respect to ours.
        shapes: path -> shape and dtype of all parameters of the optimiser.
    """
    flat = []
    for key, power in (("exp_avg", 1), ("exp_avg_sq", 2)):
        values = {path: np.zeros(leaf.shape, leaf.dtype) for path, leaf in shapes.items()}
        for name, entry in entries.items():
            path = places[name]
            if path in values:  # not those of a discriminator with a separate optimiser
                moment = np.asarray(entry[key] * slopes[name] ** power, shapes[path].dtype)
                values[path] = torch_names.transposed(path, moment)
        groups = {group: {"params": params} for group, params in unflatten_dict(values).items()}
        flat.append(np.asarray(ravel_pytree(groups)[0]))
    adam = optax.ScaleByAdamState(np.asarray(max(_steps(entries)), np.int32), *flat)
    return jax.tree.map(lambda part: adam if _is_adam(part) else part, opt_state, is_leaf=_is_adam)


def _steps(entries: Mapping[str, Mapping]) -> list[int]:
    return [int(entry["step"]) for entry in entries.values()]


def _shapes(algorithm: Algorithm, optimizer: str) -> dict[tuple[str, ...], jax.ShapeDtypeStruct]:
    """Path, group first -> shape of each parameter that an optimiser trains."""
    drawn = algorithm.trained(jax.eval_shape(algorithm.init, jax.random.key(0)).params, optimizer)
    return flatten_dict({group: variables["params"] for group, variables in drawn.items()})


def _places(model: Model, algorithm: Algorithm) -> dict[str, tuple[str, ...]]:
    """Torch name -> parameter group and the path in it."""
    policy = locate(model.policy, algorithm.policy).items()
    inner = torch_names.discriminator_paths(model.discriminator).items()
    places = {name: ("policy", *path) for name, path in policy if path is not None}
    return places | {layouts.DISCRIMINATOR + name: (DISCRIMINATOR, *path) for name, path in inner if path is not None}


def _slope(name: str, path: tuple[str, ...], value: np.ndarray) -> np.ndarray | float:
    """Derivative of the file's parameter with respect to ours."""
    if (name, path) == ("std", LOG_STD):
        return value
    if (name, path) == ("log_std", STD):
        return np.exp(-value)
    return 1.0


def _is_adam(part: Any) -> bool:
    return isinstance(part, optax.ScaleByAdamState)
