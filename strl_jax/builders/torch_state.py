"""Train states from the checkpoints of st_rl, rsl_rl and legged_gym (``model_*.pt``)."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strl_jax.algorithms import rnd
from strl_jax.algorithms.base import Algorithm
from strl_jax.torch_files import layouts, moments, networks, rnd_networks, statistics
from strl_jax.torch_files.file import TorchFileError, all_faults
from strl_jax.torch_files.layouts import Model
from strl_jax.torch_files.weights import import_weights
from strl_jax.types import TrainState

TAKEN = (*layouts.KEYS, moments.OPTIMIZER, "iter", "infos", rnd_networks.RND)
SETTING = "algorithm.empirical_normalization"


def check_keys(checkpoint: Mapping[str, Any]) -> None:
    """Checks that the file has weights and a usable iteration. Raises ``TorchFileError``."""
    layouts.read(checkpoint)
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

    The student of a distillation has no critic: the parts have no critic either, and no optimiser of the policy.

    Args:
        checkpoint: result of ``load_torch`` that passed ``check_keys``.
        fresh: a train state of the algorithm, or its shapes.
        steps_per_iteration: environment steps of an iteration, for statistics without a count.
        load_optimizer: False: without the optimisers' moments and the learning rate.

    Raises:
        TorchFileError: weights or statistics do not fit; a line for each fault.
    """
    model, iteration = layouts.read(checkpoint), checkpoint.get("iter", 0)
    samples = iteration * steps_per_iteration
    variables, (judge, lines), (rnd_groups, rnd_stats, rnd_lines), (stats, stats_lines) = all_faults(
        lambda: import_weights(model, algorithm.policy),
        lambda: networks.import_discriminator(model, fresh.params),
        lambda: rnd_networks.import_rnd(checkpoint, algorithm, fresh.params),
        lambda: _statistics(model, algorithm, samples),
    )
    parts = {
        "params": {"policy": variables, **judge, **rnd_groups},
        "learning_rate": {"policy": _scheduled_rate(algorithm, iteration)},
        "iteration": np.int32(iteration),
        "stats": stats | rnd_stats,
    }
    trained = []
    if load_optimizer:
        optimizers, trained = _optimizers(checkpoint, model, algorithm, fresh, iteration, bool(rnd_groups))
        parts |= optimizers
    lines = [*_student_lines(model), *trained, *lines, *rnd_lines, *stats_lines]
    return parts, lines + _unused_lines(checkpoint, model, algorithm, samples)


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


def _optimizers(
    checkpoint: Mapping[str, Any],
    model: Model,
    algorithm: Algorithm,
    fresh: TrainState,
    iteration: int,
    has_rnd: bool,
) -> tuple[dict[str, Any], list[str]]:
    """The parts ``opt_state`` and ``learning_rate``; those of a student's optimiser are not imported."""
    states, rate, lines = {}, _scheduled_rate(algorithm, iteration), []
    if not model.distillation:
        states["policy"], lines = moments.import_moments(checkpoint, model, algorithm, fresh.opt_state["policy"])
        rate, more = _learning_rate(checkpoint, algorithm, iteration)
        lines += more
    if has_rnd:
        states[rnd.NAME], more = moments.import_rnd_moments(checkpoint, algorithm, fresh.opt_state[rnd.NAME])
        lines += more
    return {"opt_state": states, "learning_rate": {"policy": rate}}, lines


def _student_lines(model: Model) -> list[str]:
    if not model.distillation:
        return []
    std = "" if model.has_std else "; the file has no std: that of policy.init_noise_std is used"
    return [f"distillation: the student becomes the actor; critic and optimizer start fresh{std}"]


def _unused_lines(checkpoint: Mapping[str, Any], model: Model, algorithm: Algorithm, samples: int) -> list[str]:
    """A line for each part that is not in the file or not used, besides those of networks and optimisers."""
    taken = (*TAKEN, moments.RND_OPTIMIZER) if rnd_networks.is_in(checkpoint) and algorithm.config.rnd_cfg else TAKEN
    lines = [f"{key}: in the file, not used" for key in checkpoint if key not in taken]
    if checkpoint.get("infos"):
        lines.append("infos: in the file, not used")
    if "iter" not in checkpoint:
        lines.append("iter: not in the file; the iteration starts at 0")
    used = model.statistics if algorithm.config.empirical_normalization else {}
    if any("count" not in group for group in used.values()):
        lines.append(f"count of the statistics: not in the file; {samples} samples, computed from iteration and config")
    return lines


def _statistics(model: Model, algorithm: Algorithm, samples: int) -> tuple[dict, list[str]]:
    config = algorithm.config
    if model.statistics and not config.empirical_normalization:
        raise TorchFileError(f"the file has statistics of observations, the config has not; use {SETTING}=true")
    if config.empirical_normalization and not model.statistics:
        raise TorchFileError(f"the file has no statistics of observations, the config has; use {SETTING}=false")
    if not config.empirical_normalization:
        return {}, []
    groups = {name: group for name, group in algorithm.groups.items() if name == "actor" or not model.distillation}
    return statistics.import_statistics(model.statistics, groups, samples, config.normalization_eps)


def _scheduled_rate(algorithm: Algorithm, iteration: int) -> np.ndarray:
    return np.asarray(algorithm.learning_rates(jnp.int32(iteration))["policy"])


def _learning_rate(checkpoint: Mapping[str, Any], algorithm: Algorithm, iteration: int) -> tuple[np.ndarray, list[str]]:
    """The learning rate of the file if it follows the training, otherwise that of the config at this iteration."""
    scheduled = _scheduled_rate(algorithm, iteration)
    rate = (moments.group_of(checkpoint) or {}).get("lr")
    if not isinstance(rate, float | int | np.ndarray) or np.size(rate) != 1 or not 0 < rate < np.inf:
        return scheduled, []
    rate = np.asarray(rate, np.float32).reshape(())
    if algorithm.keeps_learning_rate or rate == scheduled:
        return rate, []
    return scheduled, [
        f"learning rate: {float(rate):g} in the file; the config's schedule continues with {scheduled:g}"
    ]
