"""Optuna's trials: real studies over short runs."""

import math

import jax
import optuna
import pytest
from commands import settings

from strl_jax.config import from_dict
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
