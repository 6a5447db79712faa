"""Import of the weights of a torch actor-critic into a policy, with one line for every mismatch."""

import re
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from strl_jax.modules.policy import Policy
from strl_jax.torch_files import names as torch_names
from strl_jax.torch_files.architecture import differences
from strl_jax.torch_files.file import TorchFileError
from strl_jax.torch_files.layouts import Model

Path = tuple[str, ...]
STD, LOG_STD = ("std",), ("log_std",)
CRITIC = re.compile(r"critic|memory_critic|critic_encoder_\d+")  # first part of the paths of the critic's parameters


def import_weights(model: Model, policy: Policy) -> dict:
    """Converts the weights of a file to Flax variables ``{"params": ...}`` of numpy arrays.

    ``std`` of the file is converted to log(std) if the policy has that parameter, and
    ``log_std`` to std. A student or a teacher has no critic, and may have no standard
    deviation; these parameters are absent from the result.

    Args:
        policy: with ``actor_obs`` and ``critic_obs``.

    Raises:
        TorchFileError: one line for every name that is missing on one side, every shape
            that differs (torch shapes), every ``std`` that is not positive, every
            weight that is not finite, and a standard deviation that depends on the state; then
            one line for every setting of the policy that differs.
        ValueError: the policy has no ``actor_obs`` or ``critic_obs``.
    """
    weights, shapes = model.policy, parameter_shapes(policy)
    places, lines = locate(weights, policy), []
    if model.distillation:
        shapes = {path: leaf for path, leaf in shapes.items() if not CRITIC.fullmatch(path[0])}
    last = ("actor", f"layer_{len(policy.actor_hidden_dims)}")
    head = [name for name, path in places.items() if path is not None and path[:2] == last]
    if not model.has_std and any(np.shape(weights[name])[:1] == (2 * policy.action_size,) for name in head):
        lines.append(_depends_on_state(model.label(head[0]), policy.action_size))
        places = {name: path for name, path in places.items() if name not in head}
        shapes = {path: leaf for path, leaf in shapes.items() if path[:2] != last and path not in (STD, LOG_STD)}
    elif model.distillation and not model.has_std:
        shapes = {path: leaf for path, leaf in shapes.items() if path not in (STD, LOG_STD)}
    mismatches = faults(weights, places, shapes, label=model.label)
    lines += mismatches + (differences(weights, policy) if mismatches else [])
    if lines:
        raise TorchFileError("\n".join(lines))
    return {"params": arrange(weights, places, shapes)}


def _depends_on_state(name: str, actions: int) -> str:
    return (
        f"{name}: 2 outputs for each of the {actions} actions, and no std in the file: a standard deviation that "
        "depends on the state (state_dependent_std, or HeteroscedasticGaussianDistribution) is not supported, nor is "
        "BetaDistribution; train with state_dependent_std=False or with GaussianDistribution"
    )


def arrange(state_dict: Mapping[str, np.ndarray], places: Mapping[str, Path], shapes: Mapping) -> dict:
    """The parameters as nested dicts; ``faults`` of the same arguments must be empty.

    Args:
        state_dict: torch name -> array.
        places: torch name -> path of the parameter.
        shapes: path -> shape and dtype of the parameter.
    """
    values = {path: _value(name, path, state_dict[name]) for name, path in places.items()}
    return unflatten_dict({path: np.asarray(values[path], leaf.dtype) for path, leaf in shapes.items()})


def parameter_shapes(policy: Policy) -> dict[Path, jax.ShapeDtypeStruct]:
    """Path below ``params`` -> shape and dtype of the parameter.

    Raises:
        ValueError: the policy has no ``actor_obs`` or ``critic_obs``.
    """
    groups = {"actor": policy.actor_obs, "critic": policy.critic_obs}
    if None in groups.values():
        raise ValueError("the layout of the policy's observations is unknown: actor_obs and critic_obs are needed")
    obs = {name: jax.ShapeDtypeStruct((1, segments.size), jnp.float32) for name, segments in groups.items()}

    def init(obs):
        return policy.init(jax.random.key(0), obs, policy.initial_carry(1), jnp.zeros(1, bool))

    return flatten_dict(jax.eval_shape(init, obs)["params"])


def locate(state_dict: Mapping[str, np.ndarray], policy: Policy) -> dict[str, Path | None]:
    """Torch name -> path of the policy's parameter; None if the name is unknown."""
    own = LOG_STD if policy.log_std else STD
    arrays = {name: value for name, value in state_dict.items() if isinstance(value, np.ndarray)}
    places = {name: own if path in (STD, LOG_STD) else path for name, path in torch_names.paths(arrays).items()}
    return places | {name: None for name in state_dict if name not in arrays}


def _value(name: str, path: Path, value: np.ndarray) -> np.ndarray:
    if (name, path) == ("std", LOG_STD):
        return np.log(value)
    if (name, path) == ("log_std", STD):
        return np.exp(value)
    return torch_names.transposed(path, value)


def faults(
    state_dict: Mapping,
    places: Mapping[str, Path | None],
    shapes: Mapping,
    owner: str = "the policy",
    label: Callable[[str], str] = str,
) -> list[str]:
    """One line for every mismatch between the arrays and the parameters of ``owner``; arguments as in ``arrange``.

    ``label`` gives the name in the file.
    """
    lines, taken = [], {}
    for name, path in places.items():
        value, shown = state_dict[name], label(name)
        if path not in shapes:
            lines.append(f"{shown}: in the file only, {_show(np.shape(value))}")
            continue
        wanted = torch_names.torch_shape(path, shapes[path].shape)
        if path in taken:
            lines.append(f"{shown}: the same parameter as {taken[path]}")
        elif value.shape != wanted:
            lines.append(f"{shown}: {_show(value.shape)} in the file, {_show(wanted)} in {owner}")
        elif not np.isfinite(value).all():
            lines.append(f"{shown}: not finite in the file")
        elif name == "std" and not (value > 0).all():
            lines.append(f"{shown}: {value.tolist()} is not allowed; a standard deviation must be > 0")
        taken.setdefault(path, shown)
    for path, leaf in shapes.items():
        if path not in taken:
            shape = torch_names.torch_shape(path, leaf.shape)
            lines.append(f"{'/'.join(path)}: in {owner} only, {_show(shape)}")
    return lines


def _show(shape: tuple[int, ...]) -> str:
    return f"shape {list(shape)}"
