"""Train states from the checkpoints of st_rl, rsl_rl and legged_gym (``model_*.pt``)."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strl_jax.algorithms.base import Algorithm
from strl_jax.torch_files import moments as torch_moments
from strl_jax.torch_files import networks as torch_networks
from strl_jax.torch_files import statistics as torch_statistics
from strl_jax.torch_files.file import TorchFileError
from strl_jax.torch_files.weights import import_weights
from strl_jax.types import TrainState

STATISTICS = tuple(key for keys in torch_statistics.DICTS.values() for key in keys)
TAKEN = ("model_state_dict", "optimizer_state_dict", "iter", "infos", torch_networks.RND, *STATISTICS)
SETTING = "algorithm.empirical_normalization"


def check_keys(checkpoint: Mapping[str, Any]) -> None:
    """Checks that the file has weights and a usable iteration. Raises ``TorchFileError``."""
    weights = checkpoint.get("model_state_dict")
    if not isinstance(weights, dict) or not all(isinstance(name, str) for name in weights):
        keys = ", ".join(map(str, checkpoint))
        raise TorchFileError(f"the file has no model_state_dict; it has {keys or 'nothing'}"[:300])
    number = checkpoint.get("iter", 0)
    if not isinstance(number, int) or not 0 <= number < 2**31:
        raise TorchFileError(f"iter: {number!r} is not allowed; it must be an integer >= 0"[:300])


def read_parts(
    checkpoint: Mapping[str, Any],
    algorithm: Algorithm,
    fresh: TrainState,
    steps_per_iteration: int,
    *,
    load_optimizer: bool = True,
) -> tuple[dict[str, Any], list[str]]:
    """Fields of the train state as numpy arrays, and a line for each part of the file that was changed or not used.

    Args:
        checkpoint: result of ``load_torch`` that passed ``check_keys``.
        fresh: a train state of the algorithm, or its shapes.
        steps_per_iteration: environment steps of an iteration, for statistics without a count.
        load_optimizer: False: without the optimiser's moments and its learning rate.

    Raises:
        TorchFileError: weights or statistics do not fit; a line for each fault.
    """
    config, iteration = algorithm.config, checkpoint.get("iter", 0)
    weights, statistics = torch_statistics.split(checkpoint)
    samples = iteration * steps_per_iteration
    variables, (networks, notes), stats = _all_faults(
        lambda: import_weights(torch_networks.split(weights)[0], algorithm.policy),
        lambda: torch_networks.import_networks(checkpoint, fresh.params),
        lambda: _statistics(statistics, algorithm, samples),
    )
    parts = {
        "params": {"policy": variables, **networks},
        "learning_rate": {"policy": _scheduled_rate(algorithm, iteration)},
        "iteration": np.int32(iteration),
        "stats": stats,
    }
    lines = []
    if load_optimizer:
        opt_state, lines = torch_moments.import_moments(checkpoint, weights, algorithm, fresh.opt_state["policy"])
        rate, more = _learning_rate(checkpoint, algorithm, iteration)
        lines += more
        parts |= {"opt_state": {"policy": opt_state}, "learning_rate": {"policy": rate}}
    lines += notes + [f"{key}: in the file, not used" for key in checkpoint if key not in TAKEN]
    if checkpoint.get("infos"):
        lines.append("infos: in the file, not used")
    if "iter" not in checkpoint:
        lines.append("iter: not in the file; the iteration starts at 0")
    if config.empirical_normalization and any("count" not in group for group in statistics.values()):
        lines.append(f"count of the statistics: not in the file; {samples} samples, computed from iteration and config")
    return parts, lines


def place(fresh: TrainState, parts: Mapping[str, Any]) -> TrainState:
    """The train state ``fresh`` with ``parts`` of ``read_parts``, on the same devices."""

    def put(old, new):
        if isinstance(old, dict):
            return {key: put(value, new[key]) if key in new else value for key, value in old.items()}
        return jax.tree.map(_put, old, new)

    return fresh.replace(**{name: put(getattr(fresh, name), value) for name, value in parts.items()})


def _put(old: jax.Array, new) -> jax.Array:
    """``new`` on the devices of ``old``; ``old`` if ``new`` is only a shape."""
    if isinstance(new, jax.ShapeDtypeStruct):
        return old
    return jax.device_put(np.asarray(new, old.dtype), old.sharding)


def _all_faults(*imports: Callable[[], Any]) -> list:
    """Runs all imports. Returns their results, or raises one error with the faults of all."""
    results, lines = [], []
    for run in imports:
        try:
            results.append(run())
        except TorchFileError as error:
            lines.append(str(error))
    if lines:
        raise TorchFileError("\n".join(lines))
    return results


def _statistics(statistics: Mapping[str, Mapping], algorithm: Algorithm, samples: int) -> dict:
    normalizes = algorithm.config.empirical_normalization
    if statistics and not normalizes:
        raise TorchFileError(f"the file has statistics of observations, the config has not; use {SETTING}=true")
    if normalizes and not statistics:
        raise TorchFileError(f"the file has no statistics of observations, the config has; use {SETTING}=false")
    return torch_statistics.import_statistics(statistics, algorithm.groups, samples) if normalizes else {}


def _scheduled_rate(algorithm: Algorithm, iteration: int) -> np.ndarray:
    return np.asarray(algorithm.learning_rates(jnp.int32(iteration))["policy"])


def _learning_rate(checkpoint: Mapping[str, Any], algorithm: Algorithm, iteration: int) -> tuple[np.ndarray, list[str]]:
    """The learning rate of the file if it adapts to the KL, otherwise that of the config at this iteration."""
    scheduled = _scheduled_rate(algorithm, iteration)
    rate = (torch_moments.group_of(checkpoint) or {}).get("lr")
    if not isinstance(rate, float | int | np.ndarray) or np.size(rate) != 1 or not 0 < rate < np.inf:
        return scheduled, []
    rate = np.asarray(rate, np.float32).reshape(())
    if algorithm.config.schedule == "adaptive" or rate == scheduled:
        return rate, []
    return scheduled, [
        f"learning rate: {float(rate):g} in the file; the config's schedule continues with {scheduled:g}"
    ]
