"""Evaluation during training: the best score, and an Optuna trial."""

import math
from collections.abc import Callable

import jax

from strl_jax.runners.duties.clock import is_due
from strl_jax.runners.duties.trial import Trial
from strl_jax.runners.log import scalars
from strl_jax.runners.programs import Programs
from strl_jax.runners.progress import Progress
from strl_jax.sharding import replicate_key
from strl_jax.types import TrainState


def evaluate(programs: Programs, seed: int, train: TrainState, progress: Progress) -> dict[str, float]:
    """Evaluates the policy on fresh environments; ``progress.evaluation`` keeps the result.

    Returns:
        ``Eval/*`` scalars, see ``runners.evaluation.make_evaluate``.
    """
    program = programs.get("evaluate")
    key = jax.random.fold_in(jax.random.key(seed), progress.iteration)
    result = program(train, replicate_key(key, programs.mesh))
    progress.evaluation = scalars.from_evaluation(jax.device_get(result))
    return progress.evaluation


class IntervalEvaluation:
    """Evaluates at an interval and after the last iteration, and keeps the best score.

    Args:
        evaluate: ``train state -> Eval/* scalars``, which also sets ``progress.evaluation``.
        interval: iterations between two evaluations; 0: none.
        last: last iteration of the training.
        save_best: called with the train state after a new best score.
        trial: an Optuna trial, which gets a value of every evaluation, or None.
        best_metric: the ``Eval/*`` scalar that is the score.
        best_direction: ``max`` or ``min``: which score is the best.

    Attributes:
        pruned: the trial's pruner stopped the run.
    """

    def __init__(
        self,
        evaluate: Callable[[TrainState], dict[str, float]],
        progress: Progress,
        interval: int,
        last: int,
        save_best: Callable[[TrainState], None],
        trial: Trial | None = None,
        best_metric: str = "Eval/mean_return",
        best_direction: str = "max",
    ):
        self._best_metric, self._sign = best_metric, -1.0 if best_direction == "min" else 1.0
        best_by = f"{best_metric} {best_direction}"
        if progress.best_by != best_by:  # the scores of another metric cannot be compared
            progress.best_score, progress.best_by = None, best_by
        self._evaluate, self._progress, self._save_best = evaluate, progress, save_best
        self._interval, self._last, self._trial = interval, last, trial
        self.pruned = False

    def is_due(self, iteration: int) -> bool:
        """Whether this iteration is followed by an evaluation."""
        return bool(self._interval) and (iteration == self._last or is_due(iteration, self._interval))

    def run(self, train: TrainState) -> dict[str, float]:
        """Evaluates, reports to the trial and saves a new best policy. Returns ``Eval/*`` scalars."""
        values, progress = self._evaluate(train), self._progress
        if self._trial is not None:
            self.pruned = self._trial.report(values, progress.iteration)
        score, best = values[self._best_metric], progress.best_score
        if not math.isnan(score) and (best is None or self._sign * score > self._sign * best):
            progress.best_score = score
            self._save_best(train)
        return values
