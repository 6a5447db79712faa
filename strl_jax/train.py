"""``python -m strl_jax.train --config FILE [key=value ...]``: train a policy."""

import argparse
import json
import math
import shutil
import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import jax

from strl_jax import config as config_module
from strl_jax.builders import checks, environment
from strl_jax.builders.effects.rules import without_effect
from strl_jax.builders.read_errors import reported_under
from strl_jax.config import Config, ConfigError
from strl_jax.run_folder import metrics, run_dir
from strl_jax.run_folder.errors import CheckpointError
from strl_jax.runners import launch, loading, process
from strl_jax.runners.log.streams import lasting_stdout
from strl_jax.runners.log.writers import check_writers
from strl_jax.runners.on_policy import OnPolicyRunner


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parses the command line; None: the arguments of the process."""
    parser = launch.Parser(prog="python -m strl_jax.train", description="Train a policy.")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="changes of the config, like seed=7")
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML config")
    parser.add_argument("--resume", type=Path, metavar="RUN_DIR", help="continue this run")
    parser.add_argument("--log-dir", type=Path, metavar="DIR", help="run folder; default: named by experiment and date")
    parser.add_argument("--print-config", action="store_true", help="print the resolved config and stop")
    parser.add_argument("--print-schema", action="store_true", help="print the JSON schema of configs and stop")
    launch.add_arguments(parser)
    arguments = parser.parse(argv)
    if not arguments.print_schema and (arguments.config is None) == (arguments.resume is None):
        parser.error("exactly one of --config FILE and --resume RUN_DIR is needed")
    if arguments.resume is not None and arguments.log_dir is not None:
        parser.error("--log-dir: a resumed run stays in its folder")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns the exit code: 0, 2 for bad input, or 130 if interrupted before the training."""
    arguments = parse(argv)
    return launch.guarded(
        partial(_run, arguments), "interrupted outside of the training; all that was trained is saved"
    )


def _run(arguments: argparse.Namespace) -> int:
    if arguments.print_schema:
        print(json.dumps(config_module.json_schema(), indent=2))
        return 0
    config, lines = _read(arguments)
    launch.print_lines("warning", *lines)
    if arguments.print_config:
        environment.check_env(config.env)
        launch.print_lines("warning", *without_effect(config))
        print(config_module.to_yaml(environment.filled(config)), end="")
        return 0
    launch.initialize(arguments)
    launch.use_compilation_cache()
    return _train(arguments, config)


def _read(arguments: argparse.Namespace) -> tuple[Config, list[str]]:
    if arguments.resume is None:
        return config_module.load(arguments.config, arguments.overrides)
    with reported_under("--resume"):
        run_dir.check(arguments.resume)
    return run_dir.read_config(arguments.resume, arguments.overrides)


def _train(arguments: argparse.Namespace, config: Config) -> int:
    started, resumes, leader = time.perf_counter(), arguments.resume is not None, jax.process_index() == 0
    path = (arguments.resume or arguments.log_dir or run_dir.name(config)).absolute()  # an environment may change it
    check_writers(config.runner.logger)
    runner = OnPolicyRunner(None, config)
    with lasting_stdout(), closing(runner):
        checks.check_trains(config, runner.algorithm.policy)
        if not resumes:
            loading.check_start(config, runner.start_folder)
        _open_folder(runner, path, resumes)
        done = runner.progress.iteration
        if not resumes or config.runner.max_iterations > done:  # otherwise the folder stays unchanged
            try:
                runner.learn(config.runner.max_iterations - done)
            except (ConfigError, CheckpointError, KeyboardInterrupt):  # for example a log writer that did not start
                if not resumes and leader and runner.progress.iteration == done:  # nothing was trained
                    shutil.rmtree(runner.log_dir, ignore_errors=True)
                raise
        if leader and runner.progress.iteration == done and not runner.stopped_by:
            launch.print_lines("note", f"nothing was trained: {_reached_limit(runner)}")
        if leader:
            _print_summary(runner, time.perf_counter() - started, resumes)
    return 0


def _open_folder(runner: OnPolicyRunner, path: Path, resumes: bool) -> None:
    """Creates the run folder or loads the run in it."""
    leader = jax.process_index() == 0
    if not resumes and leader:
        path = run_dir.create(path, runner.config, run_dir.units(runner.env.env))
    runner.open(launch.path_of_process_0(path))
    if resumes:
        notes = _resume(runner)
        launch.print_lines("note", *(notes if leader else []))


def _resume(runner: OnPolicyRunner) -> list[str]:
    """Loads the newest undamaged ``last`` checkpoint; a run without checkpoints starts from the beginning.

    Returns:
        Notes for the user.

    Raises:
        CheckpointError: the metrics prove that the run had checkpoints, and all of them are missing.
    """
    if runner.checkpointer.is_fresh():
        metrics.check_none_lost(runner.log_dir)
        return ["the run has no checkpoint yet; it starts from the beginning"]
    return runner.load(runner.log_dir)


def _reached_limit(runner: OnPolicyRunner) -> str:
    limits, progress = runner.config.runner, runner.progress
    if limits.max_iterations <= progress.iteration:
        return f"{progress.iteration} iterations are done, runner.max_iterations is {limits.max_iterations}"
    return f"{progress.env_steps} env steps are done, runner.max_env_steps is {limits.max_env_steps}"


def _print_summary(runner: OnPolicyRunner, seconds: float, resumed: bool) -> None:
    """Prints results, times and the run folder."""
    progress = runner.progress
    if runner.stopped_by:
        print(f"stopped by {runner.stopped_by} and saved; continue with --resume {runner.log_dir}")
    iterations = f"{progress.iteration} iteration{'s' * (progress.iteration != 1)}"
    print(f"{iterations}, {progress.env_steps:,} env steps, {seconds:.0f} s in this session")
    if len(progress.rewards):
        last = f"last {len(progress.rewards)} episodes"
        print(f"{last}: mean return {progress.rewards.mean():.5g}, length {progress.lengths.mean():.0f}")
    value = progress.evaluation
    if value and math.isnan(value["Eval/mean_return"]):
        print("last evaluation: every episode was invalid (NaN, infinity or values >= 1e9) and was cut")
    elif value:
        metric = progress.best_by.split()[0]
        best = "mean" if metric == "Eval/mean_return" else metric
        print(
            f"last evaluation: return {value['Eval/mean_return']:.5g} +- {value['Eval/std_return']:.3g} "
            f"(min {value['Eval/min_return']:.5g}, max {value['Eval/max_return']:.5g}); "
            f"best {best} {progress.best_score if progress.best_score is not None else math.nan:.5g}"
        )
    print(f"time in the loop{', all sessions' * resumed}:")
    print("\n".join(progress.report.lines()))
    print(f"results: {runner.log_dir}")


if __name__ == "__main__":
    process.leave(main())
