"""Import of the weights of a torch actor-critic into a policy, with one line for every mismatch."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from strl_jax.modules.policy import Policy
from strl_jax.torch_files import names as torch_names
from strl_jax.torch_files.file import TorchFileError

Path = tuple[str, ...]
STD, LOG_STD = ("std",), ("log_std",)


def import_weights(state_dict: Mapping[str, np.ndarray], policy: Policy) -> dict:
    """Converts a torch ``model_state_dict`` to Flax variables ``{"params": ...}`` of numpy arrays.

    ``std`` of the file is converted to log(std) if the policy has that parameter, and
    ``log_std`` to std.

    Args:
        state_dict: torch name -> array, without the statistics of observations, which
            ``statistics.split`` removes.
        policy: with ``actor_obs`` and ``critic_obs``.

    Raises:
        TorchFileError: one line for every name that is missing on one side, every shape
            that differs (torch shapes), every ``std`` that is not positive and every
            weight that is not finite.
        ValueError: the policy has no ``actor_obs`` or ``critic_obs``.
    """
    shapes, places = parameter_shapes(policy), locate(state_dict, policy)
    lines = faults(state_dict, places, shapes)
    if lines:
        raise TorchFileError("\n".join(lines))
    return {"params": arrange(state_dict, places, shapes)}


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
    state_dict: Mapping, places: Mapping[str, Path | None], shapes: Mapping, owner: str = "the policy"
) -> list[str]:
    """One line for every mismatch between the arrays and the parameters of ``owner``; arguments as in ``arrange``."""
    lines, taken = [], {}
    for name, path in places.items():
        value = state_dict[name]
        if path not in shapes:
            lines.append(f"{name}: in the file only, {_show(np.shape(value))}")
            continue
        wanted = torch_names.torch_shape(path, shapes[path].shape)
        if path in taken:
            lines.append(f"{name}: the same parameter as {taken[path]}")
        elif value.shape != wanted:
            lines.append(f"{name}: {_show(value.shape)} in the file, {_show(wanted)} in {owner}")
        elif not np.isfinite(value).all():
            lines.append(f"{name}: not finite in the file")
        elif name == "std" and not (value > 0).all():
            lines.append(f"{name}: {value.tolist()} is not allowed; a standard deviation must be > 0")
        taken.setdefault(path, name)
    for path, leaf in shapes.items():
        if path not in taken:
            shape = torch_names.torch_shape(path, leaf.shape)
            lines.append(f"{'/'.join(path)}: in {owner} only, {_show(shape)}")
    return lines


def _show(shape: tuple[int, ...]) -> str:
    return f"shape {list(shape)}"
