"""A run with torch's and rsl_rl's names that keeps a state for them: stopped and loaded, it is the run that was not."""

import numpy as np
import pytest
from commands import log, same, settings, untimed
from sessions import learn

from strl_jax.runners.on_policy import OnPolicyRunner

SCHEDULER = {"patience": 0, "factor": 0.5, "threshold": 0.9, "min_lr": 1e-4}  # every iteration but the first is bad
RND = {
    "weight": 5.0,
    "weight_schedule": {"mode": "linear", "initial_step": 2, "final_step": 10, "final_value": 0.5},
    "num_outputs": 1,
    "predictor_hidden_dims": [-1],
    "target_hidden_dims": [-1],
    "reward_normalization": True,
}


def config(folder, **algorithm) -> dict:
    values = settings(folder, algorithm_class_name="TPPO", policy_class_name="ActorCriticRecurrent", save_interval=0)
    values["env"] = {"name": "probe:teacher", "num_envs": 4}
    values["policy"] |= {"rnn_type": "GRU", "rnn_hidden_size": 3, "activation": "Mish"}
    values["algorithm"] |= {
        "learning_rate": 1e-3,
        "schedule": "fixed",
        "empirical_normalization": True,
        "normalization_until": None,
        **algorithm,
    }
    return values


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    folder = tmp_path_factory.mktemp("teacher")
    values = config(folder)
    values["runner"]["algorithm_class_name"] = "PPO"
    learn(values, folder / "run", 1)
    # names in another case are the same
    return {
        "teacher_ac_path": str(folder / "run"),
        "class_name": "ActorCriticRecurrent",
        "rnn_type": "gru",
        "activation": "mish",
    }


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:algorithm.rnd_cfg")
def test_plateau_adagrad_and_the_bonus_of_rsl_rl(teacher, tmp_path):
    values = config(
        tmp_path,
        teacher_policy=teacher,
        optimizer_class_name="Adagrad",
        lr_scheduler_class_name="ReduceLROnPlateau",
        lr_scheduler=SCHEDULER,
        rnd_cfg=RND,
    )
    straight = learn(values, tmp_path / "straight", 6)
    stopped = learn(values, tmp_path / "stopped", 3)
    assert stopped.train_state.lr_scheduler.keys() == {"best", "bad", "cooldown"}
    assert stopped.rollout_state.hooks["rnd"]["discounted"].shape == (4,)
    assert np.abs(stopped.rollout_state.hooks["rnd"]["discounted"]).min() > 0
    resumed = learn(values, tmp_path / "stopped", 3, resume=True)
    assert same(straight.train_state, resumed.train_state)
    assert same(straight.rollout_state, resumed.rollout_state)
    lines = untimed(log(straight.log_dir))
    assert untimed(log(resumed.log_dir)) == lines
    # 1e-3 in the first two iterations, then halved down to 1e-4
    rates = [line["Loss/learning_rate"] for line in lines]
    np.testing.assert_allclose(rates, [1e-3, 1e-3, 5e-4, 2.5e-4, 1.25e-4, 1e-4], rtol=1e-5)
    for run, iterations in ((straight, [6]), (resumed, [3, 6])):
        assert iterations_of(run, "numbered") == iterations


def iterations_of(run: OnPolicyRunner, kind: str) -> list[int]:
    """Iterations of a run's checkpoints of one kind."""
    return sorted(int(path.name) for path in (run.log_dir / "checkpoints" / kind).iterdir() if path.name.isdigit())


@pytest.mark.slow
def test_one_cycle_with_its_momentum(teacher, tmp_path):
    """The same seed: without the momentum's cycle the weights differ."""
    weights = []
    for cycle in (True, False):
        values = config(
            tmp_path,
            teacher_policy=teacher,
            lr_scheduler_class_name="OneCycleLR",
            lr_scheduler={"max_lr": 1e-2, "total_steps": 4, "cycle_momentum": cycle},
        )
        runner = learn(values, tmp_path / str(cycle), 4)
        rates = [line["Loss/learning_rate"] for line in log(runner.log_dir)]
        np.testing.assert_allclose(rates[0], 1e-2 / 25, rtol=1e-5)
        np.testing.assert_allclose(rates[-1], 1e-2 / 25 / 1e4, rtol=1e-5)
        weights.append(runner.train_state.params)
    assert not same(*weights)
