"""Optuna's trials: real studies over short runs."""

import math

import jax
import optuna
import pytest
from commands import settings
from st_rl_style import one_line

from strl_jax.config import ConfigError, from_dict
from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.sharding import make_mesh


@pytest.fixture(scope="module")
def objective(tmp_path_factory):
    """Four iterations of a tiny run, evaluated after the second and the last; the runs' folders by trial."""
    folders = {}

    def run(trial) -> float:
        folder = folders[trial.number] = tmp_path_factory.mktemp("trial")
        config = settings(folder, eval_interval=2, num_eval_envs=8)
        config["algorithm"]["learning_rate"] = trial.suggest_float("learning_rate", 1e-4, 1e-1, log=True)
        runner = OnPolicyRunner(None, from_dict(config)[0], folder, mesh=make_mesh(jax.devices()[:1]))
        try:
            return runner.learn(4, trial=trial)[0]
        finally:
            runner.close()

    run.folders = folders
    return run


def study(pruner):
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1), pruner=pruner)


def test_a_study_of_three_trials(objective):
    found = study(optuna.pruners.NopPruner())
    found.optimize(objective, n_trials=3)
    assert [trial.state.name for trial in found.trials] == ["COMPLETE"] * 3
    for trial in found.trials:
        assert list(trial.intermediate_values) == [2, 4]
        assert trial.value == trial.intermediate_values[4]
        assert 0 < trial.value < 2
    assert found.best_value == min(trial.value for trial in found.trials)
    assert len({trial.value for trial in found.trials}) == 3


def test_a_pruned_trial_is_saved_and_ends(objective):
    found = study(optuna.pruners.ThresholdPruner(upper=0.0))
    found.optimize(objective, n_trials=1)
    (trial,) = found.trials
    assert trial.state.name == "PRUNED"
    assert list(trial.intermediate_values) == [2]
    assert math.isfinite(trial.intermediate_values[2])
    assert (objective.folders[0] / "checkpoints" / "last" / "2").is_dir()


def runner_of(folder, env: str = "commands:Walk", **options) -> OnPolicyRunner:
    config = settings(folder, **({"eval_interval": 2, "num_eval_envs": 8} | options))
    config["env"]["name"] = env
    return OnPolicyRunner(None, from_dict(config)[0], None, mesh=make_mesh(jax.devices()[:1]))


def optimize(runner: OnPolicyRunner, direction: str | list[str], iterations: int = 2) -> optuna.Study:
    """One trial whose value is the mean return."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    several = isinstance(direction, list)
    found = optuna.create_study(**{"directions" if several else "direction": direction})

    def run(trial) -> float:
        runner.learn(iterations, trial=trial)
        return runner.metrics_return

    try:
        found.optimize(run, n_trials=1)
    finally:
        runner.close()
    return found


def test_an_environment_without_tracking_error_is_optimised_by_its_return(tmp_path):
    found = optimize(runner_of(tmp_path, "probe:constant", eval_interval=1), "maximize")
    assert found.trials[0].intermediate_values == {1: 1.0, 2: 1.0}
    assert found.best_value == 1.0


FAULTS = {
    "no evaluations": ({"eval_interval": 0}, "minimize", 2, ("runner.eval_interval", "0", ">= 1")),
    "no iteration": ({}, "minimize", 0, ("num_learning_iterations", "runner.max_env_steps")),
    "error, maximised": ({}, "maximize", 2, ("maximize", "tracking_error", "direction='minimize'")),
    "return, minimised": ({"env": "probe:constant"}, "minimize", 2, ("mean_return", "direction='maximize'")),
    "two values": ({}, ["minimize", "minimize"], 2, ("2 directions", "tracking_error")),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_trial_that_cannot_be_optimised_is_one_line(fault, tmp_path):
    options, direction, iterations, parts = FAULTS[fault]
    runner = runner_of(tmp_path, **options)
    with pytest.raises(ConfigError) as caught:
        optimize(runner, direction, iterations)
    one_line(caught.value, *parts)
    assert runner.train_state is None


def test_a_budget_that_leaves_no_iteration(tmp_path):
    runner = runner_of(tmp_path, max_env_steps=16)
    runner.learn(1)
    with pytest.raises(ConfigError) as caught:
        optimize(runner, "minimize")
    one_line(caught.value, "runner.max_env_steps")
