"""What a runner continues or starts from: a checkpoint of a run, a torch file, or the policy of another run."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from strl_jax.builders import torch_state
from strl_jax.builders.algorithm import changed_data
from strl_jax.builders.effects.loading import without_effect_in_load, without_effect_in_resume
from strl_jax.builders.stored import read_fitting, read_policy
from strl_jax.builders.transfer.start import BY_COMPONENT, find_manipulator, load_policy
from strl_jax.config import Config, ConfigError
from strl_jax.config.errors import reported_after
from strl_jax.run_folder import layout
from strl_jax.run_folder.errors import CheckpointError
from strl_jax.run_folder.reader import CheckpointReader
from strl_jax.runners.progress import Progress
from strl_jax.sharding import replicate
from strl_jax.torch_files.file import load_torch
from strl_jax.types import TrainState


def check_start(config: Config, start_folder: Path = Path()) -> None:
    """Checks ``runner.init_from`` and ``ckpt_manipulator`` before anything is written.

    Args:
        start_folder: where a relative ``runner.init_from`` begins.

    Raises:
        ConfigError: one of them does not exist or cannot be read.
    """
    settings = config.runner
    if settings.ckpt_manipulator != BY_COMPONENT:
        find_manipulator(settings.ckpt_manipulator)
    if settings.init_from is not None:
        with reported_after("runner.init_from: "):
            read_policy(start_folder / settings.init_from)


def start(runner, source: str | Path | None, random_lengths: bool) -> list[str]:
    """Starts a new run: fresh states, with the policy of the run ``source`` if it is not None.

    Args:
        runner: an ``OnPolicyRunner``.
        source: run folder; a relative path begins at the working directory in which the runner was made.
        random_lengths: start the first episodes at random ages.

    Returns:
        A line for each part of that policy that was changed or not used.

    Raises:
        CheckpointError: the policy cannot be read, or does not fit.
    """
    train, rollout = runner.fresh_states(random_lengths)
    lines = []
    if source is not None:
        runner.just_loaded = True
        manipulator = runner.config.runner.ckpt_manipulator
        train, lines = load_policy(runner.start_folder / source, runner.algorithm, train, manipulator=manipulator)
    runner.train_state, runner.rollout_state = train, rollout
    return lines


def need_states(runner) -> None:
    """Creates the states of a policy that needs no training; raises ``RuntimeError`` if there is no policy yet."""
    if runner.train_state is not None:
        return
    if runner.algorithm.variables is None:
        raise RuntimeError("there is no policy yet: call learn or load first")
    # only sub-policies, which are loaded already
    runner.train_state, runner.rollout_state = runner.fresh_states(runner.config.runner.init_at_random_ep_len)


def start_episodes(runner, random_lengths: bool | None) -> None:
    """Restarts the environments of a loaded policy if ``learn`` asks for other first episodes than the config.

    Environments whose state was loaded too, or that have been trained on, continue.

    Args:
        runner: an ``OnPolicyRunner``.
        random_lengths: the argument ``init_at_random_ep_len`` of ``learn``.
    """
    if runner.train_state is None or random_lengths is None:
        return
    if runner.has_new_episodes:
        if random_lengths != runner.config.runner.init_at_random_ep_len:
            runner.rollout_state = runner.fresh_states(random_lengths)[1]
    elif random_lengths:
        warnings.warn("init_at_random_ep_len: no effect; the episodes of the environments continue", stacklevel=3)


def load_run(runner, reader: CheckpointReader, load_optimizer: bool, kind: str, iteration: int | None) -> list[str]:
    """Loads a checkpoint of a run into a runner; see ``OnPolicyRunner.load``."""
    train, rollout = runner.programs.states
    resumes = load_optimizer and kind == "last"
    target: dict[str, Any] = {"train": train if load_optimizer else {"params": train.params, "stats": train.stats}}
    if resumes:
        target["rollout"] = rollout
    try:
        with reader.naming_way_out(kind):
            candidates = reader.candidates((kind,), iteration)
            _, number, state, meta = read_fitting(
                reader, candidates, runner.algorithm, target, runner.config, subset=not load_optimizer
            )
    except CheckpointError as error:
        unfit = getattr(error, "lines", None) or getattr(error.__cause__, "lines", ())
        if not unfit or not all("opt_state" in line for line in unfit):
            raise
        raise CheckpointError(f"{error}; load_optimizer=False loads only weights and statistics") from error
    try:
        progress = Progress.from_state(meta["progress"])
    except CheckpointError as error:
        raise CheckpointError(f"{reader.run_dir}: the {kind} checkpoint of iteration {number}: {error}") from None
    is_own = runner.log_dir == reader.run_dir
    config = runner.config
    unused = without_effect_in_resume(meta["config"], config) if is_own else without_effect_in_load(config)
    runner.progress, runner.infos = progress, meta.get("infos")
    runner.has_new_episodes = not resumes
    if resumes:
        runner.train_state, runner.rollout_state = state["train"], state["rollout"]
        lines = layout.differences(meta, runner.mesh.size) + changed_data(meta.get("data", {}), runner.references)
        return lines + unused
    fresh, runner.rollout_state = runner.fresh_states(runner.config.runner.init_at_random_ep_len)
    runner.train_state = state["train"] if load_optimizer else _without_moments(runner, fresh, state["train"])
    return unused


def _without_moments(runner, fresh: TrainState, weights: Mapping[str, Any]) -> TrainState:
    """``fresh`` with weights and statistics, at the iteration of ``runner.progress``."""
    iteration = runner.progress.iteration
    rates = runner.algorithm.learning_rates(jnp.int32(iteration))
    counts = replicate({"iteration": np.int32(iteration), "learning_rate": rates}, runner.mesh)
    return fresh.replace(**weights, **counts)


def load_torch_file(runner, path: Path, load_optimizer: bool) -> list[str]:
    """Loads a ``model_*.pt`` into a runner; see ``load_torch_state``."""
    checkpoint = load_torch(path)
    torch_state.check_keys(checkpoint)
    return load_torch_state(runner, checkpoint, load_optimizer)


def load_torch_state(runner, checkpoint: Mapping[str, Any], load_optimizer: bool = True) -> list[str]:
    """Loads a checkpoint of st_rl, rsl_rl or legged_gym into a runner; environments and episode windows are new.

    Args:
        runner: an ``OnPolicyRunner``.
        checkpoint: result of ``load_torch`` that passed ``torch_state.check_keys``.
        load_optimizer: False: the optimiser starts from the beginning.

    Returns:
        A line for each part of the file that was changed or not used.

    Raises:
        TorchFileError: the file does not fit the config; a line for each fault.
        ConfigError: the policy consists of sub-policies.
    """
    if runner.algorithm.variables is not None:
        raise ConfigError(
            f"runner.policy_class_name: {runner.config.runner.policy_class_name} is not allowed here; its weights come "
            "from the folders in policy.sub_policy_paths"
        )
    parts, lines = torch_state.read_parts(
        checkpoint,
        runner.algorithm,
        runner.programs.states[0],
        runner.steps_per_iteration,
        load_optimizer=load_optimizer,
    )
    fresh, runner.rollout_state = runner.fresh_states(runner.config.runner.init_at_random_ep_len)
    runner.train_state = torch_state.place(fresh, parts)
    iteration = int(parts["iteration"])
    # the number of steps is not in the file
    runner.progress = Progress(iteration=iteration, env_steps=iteration * runner.steps_per_iteration)
    runner.infos, runner.has_new_episodes = None, True
    return lines
