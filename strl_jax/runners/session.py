"""One training session: stop signals, console, writers, compilation, and the loop with its duties."""

from collections.abc import Callable
from contextlib import closing

import jax
import numpy as np

from strl_jax.config import ConfigError, to_dict
from strl_jax.config.errors import not_one_of
from strl_jax.runners import loading
from strl_jax.runners.duties.clock import IterationClock
from strl_jax.runners.duties.evaluation import IntervalEvaluation
from strl_jax.runners.duties.logging import MetricLogging, SafeWriters
from strl_jax.runners.duties.saving import IntervalSaving
from strl_jax.runners.duties.time_split import TimeSplit
from strl_jax.runners.duties.trial import Trial
from strl_jax.runners.log import scalars
from strl_jax.runners.log.console import Console
from strl_jax.runners.log.git_state import store_code_state
from strl_jax.runners.log.writers import Writer, make_writers
from strl_jax.runners.loop import Loop
from strl_jax.runners.stop import StopFlag, StopVote

PRUNER = "Optuna's pruner"
TERMINATED = "terminate_early"


def train(runner, iterations: int, random_lengths: bool, trial: Trial | None = None) -> None:
    """Trains until the iterations are done, a stop signal arrives or a writer fails, then saves.

    Args:
        runner: an ``OnPolicyRunner``; the newest states are stored in it, also after an exception.
        iterations: number of iterations to add, see ``within_budget``.
        random_lengths: start the first episodes of a new run at random ages.
        trial: an Optuna trial or None.

    Raises:
        ConfigError: a writer does not start; nothing was trained.
        CheckpointError: a checkpoint cannot be written.
        WriterError: a writer failed; the run is saved.
        optuna.TrialPruned: the trial's pruner stopped the run; the run is saved.
    """
    clock, first = IterationClock(runner.progress), runner.progress.iteration
    runner.terminates = False
    last = first + iterations
    leader = jax.process_index() == 0
    with StopFlag() as flag, Console(last, first, quiet=not leader) as console:
        opened = _open_writers(runner, first + 1, console) if leader and runner.log_dir else []
        with closing(SafeWriters(opened)) as writers:
            console.note("compiling")  # this can take minutes without any other output
            step = _compile(runner, random_lengths, first < last, console)
            loop = _make_loop(runner, (first, last), clock, console, writers, flag, trial)
            runner.callbacks("on_fit_start")
            if first < last:
                _evaluate_loaded(runner, loop, console)
            try:
                loop.run(step, first + 1, last)
            finally:
                runner.stopped_by = loop.stopped_by
            if runner.stopped_by:
                runner.callbacks("on_training_stop")
            if not runner.progress.iteration == first > 0:  # a resumed run without a new iteration is saved already
                loop.saving.finish(runner.train_state, runner.rollout_state)
            if not runner.stopped_by:
                runner.callbacks("on_fit_end")
    if writers.error is not None:
        raise writers.error
    if loop.evaluation.pruned:
        import optuna  # optional; it created the trial, so it is installed

        raise optuna.TrialPruned(f"pruned at iteration {runner.progress.iteration}")


def _evaluate_loaded(runner, loop: Loop, console: Console) -> None:
    """Evaluates a policy that was loaded, before its first iteration, if ``runner.eval_after_load`` is set."""
    loaded, runner.just_loaded = runner.just_loaded, False
    if not (loaded and runner.config.runner.eval_after_load):
        return
    with runner.progress.report.section("evaluation"):
        loop.logging.add_evaluation(loop.evaluation.run(runner.train_state))


def within_budget(runner, iterations: int) -> int:
    """The number of iterations, limited to those that are needed to reach ``runner.max_env_steps``."""
    if not isinstance(iterations, int | np.integer) or iterations < 0:
        raise ConfigError(f"num_learning_iterations: {iterations!r} is not allowed; it must be an integer >= 0")
    iterations = int(iterations)
    limit = runner.config.runner.max_env_steps
    if limit is None:
        return iterations
    left = max(0, limit - runner.progress.env_steps)
    return min(iterations, -(-left // runner.steps_per_iteration))  # rounded up, in integers: floats are not exact


def _open_writers(runner, first: int, console: Console) -> list[Writer]:
    """Stores the state of the code and starts the writers; ``first`` is the first iteration that they will get."""
    store_code_state(runner.log_dir, runner.repositories, warn=console.warn)
    return make_writers(runner.config.runner.logger, runner.log_dir, to_dict(runner.config), first, console.warn)


def _compile(runner, random_lengths: bool, trains: bool, console: Console) -> Callable | None:
    """The compiled train step, None if nothing is trained. Creates the states of a new run in the meantime."""
    programs, is_new = runner.programs, runner.train_state is None
    if trains:
        programs.request("step")
        if is_new:
            programs.request("init", random_lengths=random_lengths)
        if runner.config.runner.eval_interval or (runner.config.runner.eval_after_load and runner.just_loaded):
            programs.request("evaluate")
    with runner.progress.report.section("compile"):
        if is_new:
            for line in loading.start(runner, runner.config.runner.init_from, random_lengths):
                console.warn(line)
        step = programs.get("step") if trains else None
        _check_best_metric(runner)
        return step


def _check_best_metric(runner) -> None:
    """Checks ``runner.best_metric`` against the results of an evaluation, if one was requested.

    Raises:
        ConfigError: no evaluation reports it.
    """
    results = runner.programs.results("evaluate")
    if results is None:
        return
    names, name = scalars.evaluation_names(results), runner.config.runner.best_metric
    if name not in names:
        raise ConfigError(f"runner.best_metric: {not_one_of(name, names)}")


def _make_loop(
    runner, span: tuple[int, int], clock: IterationClock, console: Console, writers: SafeWriters, flag: StopFlag, trial
) -> Loop:
    """The loop and its duties; ``span`` is the iteration before the first and the last one."""
    (first, last), config, progress = span, runner.config.runner, runner.progress
    evaluation = IntervalEvaluation(
        lambda train: runner.evaluation(),
        progress,
        config.eval_interval,
        last,
        save_best=lambda train: runner.saver and runner.saver.save("best", progress, train),
        trial=trial,
        best_metric=config.best_metric,
        best_direction=config.best_direction,
    )

    def stop_request() -> str | None:
        if writers.error is not None:
            return "a writer that failed"
        if evaluation.pruned:
            return PRUNER
        return flag.name or (TERMINATED if runner.terminates else None)

    return Loop(
        runner,
        runner.data,
        stop_request,
        StopVote(runner.mesh),
        runner.callbacks,
        clock,
        MetricLogging(
            progress,
            console,
            writers,
            steps_per_iteration=runner.steps_per_iteration,
            episode_seconds=runner.env.episode_length * runner.env.env.dt,
            interval=config.log_interval,
        ),
        evaluation,
        IntervalSaving(runner.saver, progress, config.last_interval, config.save_interval),
        TimeSplit(runner.programs, runner.data, progress.report, first, config.time_split),
    )
