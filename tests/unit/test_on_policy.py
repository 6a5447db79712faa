"""The runner in Python: learn, evaluate, save, load, act."""

import math
import subprocess
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import Walk, log, same, settings

from strl_jax.config import ConfigError
from strl_jax.run_folder.errors import CheckpointError
from strl_jax.runners import loop
from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.runners.progress import Progress
from strl_jax.sharding import make_mesh

ONE = make_mesh(jax.devices()[:1])
NAMES = {
    "Loss/surrogate_loss",
    "Loss/value_loss",
    "Loss/entropy",
    "Loss/learning_rate",
    "Policy/mean_noise_std",
    "Perf/total_fps",
    "Train/mean_reward",
    "Train/mean_episode_length",
    "Train/mean_reward_each_timestep",
    "Train/env_steps",
    "Train/wall_clock",
}
SPLIT = {"Perf/collection time", "Perf/learning_time"}


class Trial:
    """Records the reports to an Optuna trial."""

    def __init__(self):
        self.reports = []

    def report(self, value, step):
        self.reports.append((value, step))

    def should_prune(self):
        return False


def train_cfg(**runner) -> dict:
    """A config in the style of st_rl: the runner's keys at the top, no environment."""
    config = settings("unused", eval_interval=2, last_interval=2, save_interval=3, time_split=True, **runner)
    del config["runner"]["log_root"]
    config["env"] = {"num_envs": 4}
    flat = {name: config["runner"].pop(name) for name in ("num_steps_per_env", "save_interval", "logger")}
    return config | flat


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    path = tmp_path_factory.mktemp("robot")
    subprocess.run(["git", "init", "-q", path], check=True)
    (path / "gait.py").write_text("trot = 1\n")
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory, repository):
    """A runner after six iterations, its trial, and what ``learn`` returned."""
    runner, trial = OnPolicyRunner(Walk(), train_cfg(), tmp_path_factory.mktemp("run"), mesh=ONE), Trial()
    runner.add_git_repo_to_log(repository / "gait.py")
    runner.programs.get("update")  # otherwise the run can end before the update is compiled
    result = runner.learn(6, init_at_random_ep_len=True, trial=trial)
    yield runner, trial, result
    runner.close()


@pytest.fixture(scope="module")
def second():
    """Another runner with the same config, without a run folder."""
    runner = OnPolicyRunner(Walk(), train_cfg(max_env_steps=40), None, mesh=ONE)
    yield runner
    runner.close()


def test_learn_returns_the_last_evaluation(trained):
    runner, _, result = trained
    lines = log(runner.log_dir)
    assert result == (lines[-1]["Eval/metric/tracking_error"], lines[-1]["Eval/metric/CoT"])
    assert result == (runner.metrics_velrmsd, runner.metrics_CoT)
    assert 0.0 < result[0] < 2.0
    assert 0.0 < result[1] < 2.0
    assert runner.stopped_by is None


def test_trial_gets_every_evaluation(trained):
    runner, trial, _ = trained
    errors = {line["iteration"]: line.get("Eval/metric/tracking_error") for line in log(runner.log_dir)}
    assert trial.reports == [(errors[2], 2), (errors[4], 4), (errors[6], 6)]


def test_log_has_the_names_of_st_rl(trained):
    lines = log(trained[0].log_dir)
    assert [line["iteration"] for line in lines] == [1, 2, 3, 4, 5, 6]
    for line in lines:
        assert line.keys() >= NAMES
        assert ("Eval/mean_return" in line) == (line["iteration"] % 2 == 0)
    assert [line["Train/env_steps"] for line in lines] == [16, 32, 48, 64, 80, 96]  # 4 environments x 4 steps
    clock = [line["Train/wall_clock"] for line in lines]
    assert clock == sorted(clock)


def test_time_is_split_once_the_update_was_timed(trained):
    lines = log(trained[0].log_dir)
    # Timed after the third iteration was dispatched, which was saved and so written by then.
    assert [line.keys() >= SPLIT for line in lines] == [False, False, False, True, True, True]
    last = lines[-1]
    assert last["Perf/collection time"] + last["Perf/learning_time"] == pytest.approx(last["Perf/iteration_time"])
    assert last["Perf/total_fps"] == pytest.approx(16 / last["Perf/iteration_time"])


def test_time_of_an_iteration_ends_when_its_metrics_are_there(tmp_path, monkeypatch):
    """Not when the loop's thread reads them: a call can block it, and before an evaluation it reads two."""
    took, arrivals = [1000.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0], []

    def on_host(metrics):
        arrivals.append((arrivals[-1] if arrivals else time.perf_counter()) + took[len(arrivals)])
        return jax.device_get(metrics), arrivals[-1]

    monkeypatch.setattr(loop, "on_host", on_host)
    config = train_cfg()
    config["runner"] |= {"eval_interval": 4, "last_interval": 1000, "time_split": False}
    runner = OnPolicyRunner(Walk(), config | {"save_interval": 1000}, tmp_path, mesh=ONE)
    runner.learn(7)
    runner.close()
    times = {line["iteration"]: line["Perf/iteration_time"] for line in log(tmp_path)}
    assert {i: times[i] for i in (2, 3, 4, 6, 7)} == pytest.approx({2: 2.0, 3: 4.0, 4: 8.0, 6: 32.0, 7: 64.0})


def test_episode_means_are_of_the_windows(trained):
    runner = trained[0]
    last = log(runner.log_dir)[-1]
    rewards, lengths = runner.progress.rewards.state(), runner.progress.lengths.state()
    assert len(rewards) == len(lengths) >= 4 * 6  # 4 environments, episodes of at most 3 steps, 24 steps each
    assert last["Train/mean_reward"] == sum(rewards) / len(rewards)
    assert last["Train/mean_episode_length"] == sum(lengths) / len(lengths) <= 3.0


def test_git_state_of_the_named_repository_is_kept(trained, repository):
    text = (trained[0].log_dir / "git" / f"{repository.name}.diff").read_text()
    assert "gait.py" in text


def test_checkpoints_of_a_run(trained):
    checkpointer = trained[0].checkpointer
    assert checkpointer.iterations("last") == [4, 6]
    assert checkpointer.iterations("numbered") == [3, 6]
    best = max((line["Eval/mean_return"], -line["iteration"]) for line in log(trained[0].log_dir)[1::2])
    assert checkpointer.iterations("best") == [-best[1]]
    assert trained[0].progress.best_score == best[0]


def test_evaluation_changes_no_state(trained):
    runner = trained[0]
    before = jax.tree.map(jnp.copy, (runner.train_state, runner.rollout_state))
    values = runner.evaluation()
    assert same(before, (runner.train_state, runner.rollout_state))
    assert values == {k: v for k, v in log(runner.log_dir)[-1].items() if k.startswith("Eval/")}


def test_inference_policy(trained):
    runner = trained[0]
    policy = runner.get_inference_policy()
    goal, position = np.array([[0.3], [-0.2]], np.float32), np.array([[0.9], [0.1]], np.float32)
    goal = np.concatenate([goal, position - goal], axis=1)
    action = policy({"goal": goal[:, None, :], "position": position})
    assert action.shape == (2, 1)
    assert action[0, 0] != action[1, 0]
    np.testing.assert_array_equal(action, policy(np.concatenate([position, goal], axis=1)))
    np.testing.assert_array_equal(action[1:], policy({"goal": goal[1:, None], "position": position[1:]}))


def test_load_restores_everything(trained, second):
    runner = trained[0]
    assert second.load(runner.log_dir) == []
    assert same((second.train_state, second.rollout_state), (runner.train_state, runner.rollout_state))
    for name in ("iteration", "env_steps", "best_score", "evaluation", "seconds"):
        assert getattr(second.progress, name) == getattr(runner.progress, name)
    assert second.progress.rewards.state() == runner.progress.rewards.state()
    assert second.progress.lengths.state() == runner.progress.lengths.state()


def test_load_without_optimizer_restores_weights_and_statistics(trained, second):
    state = trained[0].train_state
    assert second.load(trained[0].log_dir, load_optimizer=False) == []
    assert same((second.train_state.params, second.train_state.stats), (state.params, state.stats))
    assert not same(second.train_state.opt_state, state.opt_state)
    assert int(second.train_state.iteration) == second.current_learning_iteration == 6
    assert float(second.train_state.learning_rate["policy"]) == pytest.approx(second.config.algorithm.learning_rate)
    for name in ("iteration", "env_steps", "best_score", "evaluation"):
        assert getattr(second.progress, name) == getattr(trained[0].progress, name)
    assert not same(second.rollout_state, trained[0].rollout_state)


def test_budget_of_env_steps(second):
    second.progress = Progress()
    second.learn(6)
    assert second.progress.env_steps == 48  # 40 are allowed, 16 an iteration
    assert second.progress.iteration == 3
    before = jax.tree.map(jnp.copy, second.train_state)
    second.learn(6)
    assert second.progress.iteration == 3
    assert same(before, second.train_state)


def test_policy_outlives_further_training(second):
    if second.train_state is None:
        second.learn(1)
    policy, observation = second.get_inference_policy(), np.ones((1, 3), np.float32)
    before = policy(observation)
    second.progress = Progress()
    second.learn(1)
    np.testing.assert_array_equal(policy(observation), before)
    assert second.get_inference_policy()(observation) != before


def test_results_are_nan_where_the_environment_has_no_metrics():
    config = train_cfg() | {"env": {"name": "probe:constant", "num_envs": 4}}
    runner = OnPolicyRunner(None, config, None, mesh=ONE)
    assert math.isnan(runner.metrics_velrmsd)
    runner.train_state, _ = runner.fresh_states(False)
    assert runner.evaluation()["Eval/mean_return"] == 1.0
    assert math.isnan(runner.metrics_velrmsd)
    assert math.isnan(runner.metrics_CoT)
    runner.close()


def test_calls_before_there_is_a_policy():
    runner = OnPolicyRunner(Walk(), train_cfg(), None, mesh=ONE)
    for call in (runner.evaluation, runner.get_inference_policy, runner.save):
        with pytest.raises(RuntimeError, match="call learn or load first"):
            call()
    runner.train_state = 0
    with pytest.raises(RuntimeError, match="no log_dir"):
        runner.save()


def test_keys_without_meaning_warn_and_faults_raise():
    with pytest.warns(UserWarning, match=r"^device: ignored"):
        OnPolicyRunner(Walk(), train_cfg() | {"device": "cuda:0"}, None, mesh=ONE)
    with pytest.raises(ConfigError, match="num_envs"):
        OnPolicyRunner(Walk(), train_cfg(), None, mesh=make_mesh(jax.devices()[:3]))
    with pytest.raises(ConfigError, match="gama: unknown key; nearest is gamma"):
        OnPolicyRunner(Walk(), train_cfg() | {"algorithm": {"gama": 0.9}}, None, mesh=ONE)


def test_a_folder_accepts_no_second_run(trained):
    runner = OnPolicyRunner(Walk(), train_cfg(), trained[0].log_dir, mesh=ONE)
    before = log(trained[0].log_dir)
    with pytest.raises(ConfigError, match="contains a run at iteration 6"):
        runner.learn(1)
    runner.load(trained[0].log_dir, kind="numbered", iteration=3)  # older than the newest checkpoint
    with pytest.raises(ConfigError, match="contains a run at iteration 6"):
        runner.learn(1)
    assert log(trained[0].log_dir) == before


@pytest.mark.parametrize("kind", ["best", "numbered", "last"])
def test_every_kind_loads_with_and_without_its_optimizer(trained, kind):
    source = trained[0]
    number = source.checkpointer.latest(kind)
    runner = OnPolicyRunner(Walk(), train_cfg(), mesh=ONE)
    assert runner.load(source.log_dir, kind=kind, iteration=number) == []
    with_moments = runner.train_state
    assert runner.load(source.log_dir, load_optimizer=False, kind=kind) == []
    without = runner.train_state
    assert same(with_moments.params, without.params)
    assert not same(with_moments.opt_state, without.opt_state)
    assert int(with_moments.iteration) == int(without.iteration) == runner.progress.iteration == number
    if number == 6:
        assert same(with_moments, source.train_state)
    config = train_cfg()
    config["algorithm"] = {**config["algorithm"], "optimizer_class_name": "SGD"}
    other = OnPolicyRunner(Walk(), config, mesh=ONE)
    with pytest.raises(CheckpointError, match="load_optimizer=False loads only weights") as caught:
        other.load(source.log_dir, kind=kind)
    assert "\n" not in str(caught.value)
    assert other.train_state is None
    other.load(source.log_dir, load_optimizer=False, kind=kind)
    assert same(other.train_state.params, without.params)
