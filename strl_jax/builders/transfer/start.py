"""Starts a policy from a run whose observations or networks were others: what fits is taken over by component.

st_rl's ``load_misaligned_state_dict`` and ``ckpt_manipulator``.
"""

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import numpy as np

from strl_jax.algorithms.base import Algorithm
from strl_jax.builders import acting
from strl_jax.builders.policy import make_policy
from strl_jax.builders.transfer.matching import by_component, compare_settings, stats_by_component
from strl_jax.config import ConfigError, from_dict
from strl_jax.config.errors import raised
from strl_jax.observations import Segments
from strl_jax.run_folder.arrays import flatten
from strl_jax.run_folder.checkpoints import KINDS, Checkpointer
from strl_jax.run_folder.errors import SHOWN, CheckpointError, first_few
from strl_jax.types import TrainState

Manipulator = Callable[[dict, dict, dict], tuple[dict, dict]]
BY_COMPONENT = "by_component"


def load_policy(
    run_dir: str | Path,
    algorithm: Algorithm,
    train_state: TrainState,
    kinds: Sequence[str] = KINDS,
    manipulator: str | Manipulator = BY_COMPONENT,
) -> tuple[TrainState, list[str]]:
    """Weights and statistics of a run for another policy; optimiser and counts stay as they are.

    Args:
        run_dir: folder of the run to start from.
        algorithm: the one to start.
        train_state: its fresh state.
        kinds: of its checkpoints, as of ``read_policy``.
        manipulator: ``by_component``; or a function, or its import path
            ``pkg.mod:function``, ``(variables, stats, meta) -> (variables, stats)``. It gets
            what the checkpoint holds, as NumPy arrays of its own, and the checkpoint's
            meta; what it returns must fit the policy exactly.

    Returns:
        The state, and a line for everything that was not taken over as it is.

    Raises:
        CheckpointError: nothing there to read, or what the function returns does not fit.
        ConfigError: the import path leads to no function.
    """
    function = None if manipulator == BY_COMPONENT else find_manipulator(manipulator)
    place = jax.tree.leaves(train_state.params)[0].sharding
    source, variables, stats, meta = read_policy(run_dir, kinds, place)
    fresh = jax.device_get({"policy": train_state.params["policy"], "stats": train_state.stats})
    if function is None:
        variables, lines = by_component(source.policy, variables, algorithm.policy, fresh["policy"])
        stats = stats_by_component(stats, fresh["stats"])
        lines += compare_settings(_scaling(source), _scaling(algorithm))
    else:
        variables, stats = _manipulate(function, variables, stats, meta, fresh)
        lines = []
    variables = jax.tree.map(_place, variables, train_state.params["policy"])
    stats = jax.tree.map(_place, stats, train_state.stats)
    return train_state.replace(params={**train_state.params, "policy": variables}, stats=stats), lines


def read_policy(
    run_dir: str | Path, kinds: Sequence[str] = KINDS, place: jax.sharding.Sharding | None = None
) -> tuple[Algorithm, dict, dict, dict]:
    """The policy of a run, as it was trained, without its environment.

    Args:
        run_dir: folder of the run.
        kinds: of its checkpoints, in order of preference: the newest of the first is taken;
            damaged ones are passed over with a warning.
        place: where it is read to; one that every process can reach. None: the first device.

    Returns:
        The algorithm that wrote it; its variables ``{"params": ...}`` and statistics, NumPy
        arrays that may be changed; and the checkpoint's meta.

    Raises:
        CheckpointError: nothing there to read, or its config is none of this version.
    """
    checkpointer = Checkpointer(Path(run_dir))

    def read(kind: str, iteration: int) -> tuple[Algorithm, dict, dict]:
        meta = checkpointer.read_meta(kind, iteration)
        source = _algorithm(checkpointer.run_dir, meta)
        shapes = jax.eval_shape(source.init, jax.random.key(0))
        target = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place),
            {"params": shapes.params, "stats": shapes.stats},
        )
        return source, checkpointer.restore(kind, iteration, {"train": target}, subset=True)["train"], meta

    try:
        *_, (source, train, meta) = checkpointer.read_first(checkpointer.choose(kinds), read)
    finally:
        checkpointer.close()
    train = jax.tree.map(np.array, train)
    return source, train["params"]["policy"], train["stats"], meta


def _scaling(algorithm: Algorithm) -> dict[str, object]:
    """What decides how observations and rewards are scaled."""
    names = ("empirical_normalization", "normalization_eps", "normalize_rewards")
    return {name: getattr(algorithm.config, name) for name in names}


def _algorithm(run_dir: Path, meta: dict) -> Algorithm:
    """The algorithm of a checkpoint, from its config and its observation layout."""
    layout = meta["layout"]
    groups = {
        name: Segments(tuple(components), tuple(map(tuple, components.values())))
        for name, components in layout["groups"].items()
    }
    try:
        config, _ = from_dict(meta["config"])
        policy = make_policy(config, layout["action_size"], groups)
    except ConfigError as error:
        raise CheckpointError(f"{run_dir}: its config is none of this version: {error}") from error
    return acting.make_ppo(config, policy, {name: groups[name] for name in ("actor", "critic")})


def find_manipulator(manipulator: str | Manipulator) -> Manipulator:
    """The function at ``pkg.mod:function``, or the one given."""
    if not isinstance(manipulator, str):
        return manipulator
    module, _, name = manipulator.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"runner.ckpt_manipulator: {manipulator!r} cannot be imported: {error}") from None
    if not callable(found):
        raise ConfigError(f"runner.ckpt_manipulator: {manipulator!r} is not a function")
    return found


def _manipulate(function: Manipulator, variables: dict, stats: dict, meta: dict, fresh: dict) -> tuple[dict, dict]:
    """What the function makes of a checkpoint. Raises ``CheckpointError`` if it does not fit ``fresh``."""
    name = getattr(function, "__name__", repr(function))
    try:
        made = function(variables, stats, meta)
    except Exception as error:  # the user's code may raise anything
        raise CheckpointError(f"runner.ckpt_manipulator: {name} fails: {raised(error)}") from error
    if not isinstance(made, tuple) or len(made) != 2:
        raise CheckpointError(f"{name} must return (variables, stats), not {type(made).__name__}")
    found, wanted = flatten({"policy": made[0], "stats": made[1]}), flatten(fresh)
    shapes = [{path: np.shape(leaf) for path, leaf in tree.items()} for tree in (found, wanted)]
    lines = [
        f"{path}: {shapes[0].get(path, 'nothing')} from the function, {shapes[1].get(path, 'nothing')} wanted"
        for path in dict.fromkeys([*wanted, *found])
        if shapes[0].get(path) != shapes[1].get(path)
    ]
    if lines:
        raise CheckpointError(f"what {name} returns does not fit: {first_few(lines)}")
    bad = [path for path in wanted if not np.isfinite(np.asarray(found[path], float)).all()]
    if bad:
        raise CheckpointError(f"what {name} returns is not finite: {', '.join(bad[:SHOWN])}")
    result = jax.tree.unflatten(jax.tree.structure(fresh), [found[path] for path in wanted])
    return result["policy"], result["stats"]


def _place(value: np.ndarray, like: jax.Array) -> jax.Array:
    """A value where the array ``like`` lies."""
    value = np.asarray(value, like.dtype)
    return jax.make_array_from_callback(like.shape, like.sharding, lambda index: value[index])
