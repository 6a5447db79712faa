"""Starts a policy from the policy of another run; their observations and networks may differ.

The counterparts in st_rl are ``load_misaligned_state_dict`` and ``ckpt_manipulator``.
"""

from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

from strl_jax.algorithms.base import Algorithm
from strl_jax.builders.stored import read_policy
from strl_jax.builders.transfer.matching import by_component, stats_by_component
from strl_jax.config.errors import raised
from strl_jax.config.import_path import import_callable
from strl_jax.run_folder.arrays import flatten
from strl_jax.run_folder.errors import CheckpointError, compare, first_few
from strl_jax.types import TrainState

Manipulator = Callable[[dict, dict, dict], tuple[dict, dict]]
BY_COMPONENT = "by_component"
KEY = "runner.ckpt_manipulator"


def load_policy(
    run_dir: str | Path,
    algorithm: Algorithm,
    train_state: TrainState,
    manipulator: str | Manipulator = BY_COMPONENT,
) -> tuple[TrainState, list[str]]:
    """A training state with the weights and statistics of another run; optimiser and counts do not change.

    Args:
        run_dir: folder of the other run; its checkpoint is chosen as in ``read_policy``.
        algorithm: the algorithm to which ``train_state`` belongs.
        train_state: the initial state.
        manipulator: ``by_component`` (see ``matching.by_component``); or a function, or its
            import path ``pkg.mod:function``, ``(variables, stats, meta) -> (variables, stats)``.
            Its arguments are those of the checkpoint, as NumPy arrays that it may change;
            its results must have the paths and shapes of the policy.

    Returns:
        The state, and a line for everything that was not copied unchanged.

    Raises:
        CheckpointError: there is no intact checkpoint, or the results of the function do not fit.
        ConfigError: the import path does not lead to a function.
    """
    function = None if manipulator == BY_COMPONENT else find_manipulator(manipulator)
    sharding = jax.tree.leaves(train_state.params)[0].sharding
    source, variables, stats, meta = read_policy(run_dir, sharding=sharding)
    initial = jax.device_get({"policy": train_state.params["policy"], "stats": train_state.stats})
    if function is None:
        variables, lines = by_component(source.policy, variables, algorithm.policy, initial["policy"])
        stats = stats_by_component(stats, initial["stats"])
        lines += compare(_scaling(source), _scaling(algorithm))
    else:
        variables, stats = _manipulate(function, variables, stats, meta, initial)
        lines = []
    variables = jax.tree.map(_put, variables, train_state.params["policy"])
    stats = jax.tree.map(_put, stats, train_state.stats)
    return train_state.replace(params={**train_state.params, "policy": variables}, stats=stats), lines


def find_manipulator(manipulator: str | Manipulator) -> Manipulator:
    """The function at the import path ``pkg.mod:function``, or the given function."""
    if not isinstance(manipulator, str):
        return manipulator
    return import_callable(manipulator, f"{KEY}:", "by_component or package.module:function")


def _scaling(algorithm: Algorithm) -> dict[str, object]:
    """Settings of the scaling of observations and rewards."""
    names = ("empirical_normalization", "normalization_eps", "normalize_rewards")
    return {name: getattr(algorithm.config, name) for name in names}


def _manipulate(function: Manipulator, variables: dict, stats: dict, meta: dict, initial: dict) -> tuple[dict, dict]:
    """The results of a user's function; raises ``CheckpointError`` if they do not fit ``initial``."""
    name = getattr(function, "__name__", repr(function))
    try:
        result = function(variables, stats, meta)
    except Exception as error:  # the user's code may raise anything
        raise CheckpointError(f"{KEY}: {name} fails: {raised(error)}") from error
    if not isinstance(result, tuple) or len(result) != 2:
        raise CheckpointError(f"{KEY}: {name} must return (variables, stats), not {type(result).__name__}")
    returned, wanted = flatten({"policy": result[0], "stats": result[1]}), flatten(initial)
    shapes, wanted_shapes = ({path: np.shape(leaf) for path, leaf in tree.items()} for tree in (returned, wanted))
    lines = compare(shapes, wanted_shapes, "nothing", "{} from the function, {} wanted")
    if lines:
        raise CheckpointError(f"{KEY}: the result of {name} does not fit: {first_few(lines)}")
    bad = [path for path in wanted if not np.isfinite(np.asarray(returned[path], float)).all()]
    if bad:
        raise CheckpointError(f"{KEY}: the result of {name} is not finite: {first_few(bad, ', ')}")
    tree = jax.tree.unflatten(jax.tree.structure(initial), [returned[path] for path in wanted])
    return tree["policy"], tree["stats"]


def _put(value: np.ndarray, like: jax.Array) -> jax.Array:
    """A value as an array with the dtype and sharding of ``like``."""
    value = np.asarray(value, like.dtype)
    return jax.make_array_from_callback(like.shape, like.sharding, lambda index: value[index])
