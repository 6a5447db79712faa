"""Evaluation during training: the best score, and an Optuna trial."""

import math

import jax

from strl_jax.runners.duties.clock import is_due
from strl_jax.runners.duties.saving import save
from strl_jax.runners.log import scalars
from strl_jax.sharding import replicate_key


def evaluate(runner) -> dict[str, float]:
    """Evaluates the policy on fresh environments; ``progress.evaluation`` of the ``OnPolicyRunner`` keeps the result.

    Returns:
        ``Eval/*`` scalars, see ``runners.evaluation.make_evaluate``.
    """
    program = runner.programs.get("evaluate")
    key = jax.random.fold_in(jax.random.key(runner.config.seed), runner.progress.iteration)
    result = program(runner.train_state, replicate_key(key, runner.mesh))
    runner.progress.evaluation = scalars.from_evaluation(jax.device_get(result))
    return runner.progress.evaluation


class IntervalEvaluation:
    """Evaluates at an interval and after the last iteration, and keeps the best score and the best policy.

    Args:
        runner: an ``OnPolicyRunner``; without a run folder no policy is saved.
        last: last iteration of the training.
        trial: Optuna trial or None; gets the velocity RMSD of every evaluation.

    Attributes:
        pruned: the trial's pruner stopped the run.
    """

    def __init__(self, runner, last: int, trial=None):
        self._runner, self._last, self._trial = runner, last, trial
        self.pruned = False

    def is_due(self, iteration: int) -> bool:
        """Whether this iteration is followed by an evaluation."""
        interval = self._runner.config.runner.eval_interval
        return bool(interval) and (iteration == self._last or is_due(iteration, interval))

    def run(self) -> dict[str, float]:
        """Evaluates, reports to the trial and saves a new best policy. Returns ``Eval/*`` scalars."""
        values, progress = evaluate(self._runner), self._runner.progress
        if self._trial is not None:
            self._trial.report(self._runner.metrics_velrmsd, progress.iteration)
            self.pruned = self._trial.should_prune()
        score = values["Eval/mean_return"]
        if not math.isnan(score) and (progress.best_score is None or score > progress.best_score):
            progress.best_score = score
            if self._runner.checkpointer is not None:
                save(self._runner, "best")
        return values
