"""An Optuna trial of a training: the value that it gets, and the checks before the training."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from strl_jax.config import ConfigError

RMSD = "Eval/metric/tracking_error"
RETURN = "Eval/mean_return"
DIRECTIONS = {RMSD: "minimize", RETURN: "maximize"}


@dataclass(frozen=True)
class Trial:
    """An Optuna trial and the evaluation's scalar that it gets.

    Attributes:
        trial: an ``optuna.Trial``, or an object with its methods ``report`` and ``should_prune``.
        name: name of the scalar.
    """

    trial: Any
    name: str

    def report(self, values: Mapping[str, float], iteration: int) -> bool:
        """Reports an evaluation. Returns whether the trial's pruner stops the run."""
        self.trial.report(values.get(self.name, math.nan), iteration)
        return self.trial.should_prune()


def make_trial(runner, trial: Any, iterations: int) -> Trial | None:
    """The trial with the value to optimise: the velocity RMSD, or the mean return if there is no ``tracking_error``.

    Args:
        runner: an ``OnPolicyRunner``.
        trial: None gives None.
        iterations: number of iterations that will be trained.

    Raises:
        ConfigError: no evaluation will take place, or the study optimises in the wrong direction.
    """
    if trial is None:
        return None
    if not runner.config.runner.eval_interval:
        raise ConfigError(
            "runner.eval_interval: 0 is not allowed with a trial, which gets the evaluations; it must be >= 1"
        )
    if iterations < 1:
        raise ConfigError(
            "trial: no iteration is left, so there is no evaluation; raise num_learning_iterations or "
            "runner.max_env_steps"
        )
    name = RMSD if RMSD in _evaluated(runner) else RETURN
    _check_direction(getattr(trial, "study", None), name)
    return Trial(trial, name)


def _evaluated(runner) -> set[str]:
    """Names of the environment's scalars in an evaluation."""
    metrics = dict.fromkeys(runner.programs.states[1].episode.metrics, jax.ShapeDtypeStruct((), jnp.float32))
    scores = jax.eval_shape(runner.env.evaluated().env.scores, metrics)
    return {f"Eval/metric/{name}" for name in (*metrics, *scores)}


def _check_direction(study: Any, name: str) -> None:
    """Checks that a study has the direction of the scalar ``name``; a trial without a study is not checked."""
    directions = [] if study is None else [direction.name.lower() for direction in study.directions]
    if len(directions) > 1:
        raise ConfigError(f"trial: its study has {len(directions)} directions; only one value, {name}, is optimised")
    if directions and directions[0] != DIRECTIONS[name]:
        why = "" if name == RMSD else ", because the environment has no tracking_error"
        raise ConfigError(
            f"trial: the direction of its study is {directions[0]}, but it gets {name}{why}; "
            f"use optuna.create_study(direction={DIRECTIONS[name]!r})"
        )
