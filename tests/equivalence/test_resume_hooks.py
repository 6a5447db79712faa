"""A run with a teacher, a queue, a replay or a bonus that is stopped and loaded is bit for bit the run that was not."""

import pytest
from commands import leaves, log, same, settings, untimed
from sessions import learn

from strl_jax.runners.on_policy import OnPolicyRunner


def tiny(log_root, env: str, algorithm: str, policy_class: str, policy: dict, **options) -> dict:
    """A config that trains in moments, with an evaluation and the adaptive learning rate on."""
    config = settings(log_root, eval_interval=2, algorithm_class_name=algorithm, policy_class_name=policy_class)
    config["env"] = {"name": env, "num_envs": 4}
    config["policy"] |= policy
    config["algorithm"] |= options
    return config


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("hooks")


def check(config: dict, folder, name: str) -> tuple[OnPolicyRunner, OnPolicyRunner]:
    """Two iterations, saved, and two more are four; the stopped and the resumed runner."""
    straight = learn(config, folder / f"{name}_straight", 4)
    stopped = learn(config, folder / f"{name}_stopped", 2)
    resumed = learn(config, folder / f"{name}_stopped", 2, resume=True)
    assert straight.progress.iteration == resumed.progress.iteration == 4
    assert same(straight.train_state, resumed.train_state)
    assert same(straight.rollout_state, resumed.rollout_state)
    lines = untimed(log(straight.log_dir))
    assert [line["iteration"] for line in lines] == [1, 2, 3, 4]
    assert untimed(log(resumed.log_dir)) == lines
    assert not same(stopped.train_state.params, resumed.train_state.params)
    assert not same(stopped.rollout_state, resumed.rollout_state)
    return stopped, resumed


@pytest.mark.slow
def test_student_with_a_queue_and_a_teacher_with_a_memory(folder):
    """Four steps in episodes of three: what is saved lies in the middle of episodes, and some environments follow."""
    memory = {"rnn_type": "gru", "rnn_hidden_size": 3}
    taught = tiny(folder, "probe:teacher", "PPO", "ActorCriticRecurrent", memory)
    taught["env"]["kwargs"] = {"delay": 2}
    learn(taught, folder / "teacher", 1)
    options = {
        "teacher_policy": {"teacher_ac_path": str(folder / "teacher")},
        "teacher_act_prob": 0.5,
        "buffer_dilation_ratio": 1.5,
        "hidden_state_resample_prob": 0.3,
        "action_labels_from_sample": True,
    }
    config = tiny(folder, "probe:teacher", "TPPO", "ActorCriticRecurrent", memory, **options)
    config["env"] |= {"kwargs": {"delay": 2}, "groups": {"actor": ["state"], "critic": ["sign"]}}
    stopped, resumed = check(config, folder, "student")

    saved = stopped.rollout_state
    assert set(saved.memory) == {"queue", "carries"}
    assert (saved.memory["queue"].count == 6).all()  # int(1.5 * 4)
    assert (saved.memory["queue"].cursor == 2).all()  # 2 * 4 - 6
    assert all(leaf.any() for leaf in leaves(saved.hooks["teacher"]["carry"]["actor"]))
    acting = [line["Train/teacher_acting"] for line in log(resumed.log_dir)]
    assert 0 < min(acting[1:]) < 1


@pytest.mark.slow
def test_discriminator_with_a_replay_and_a_bonus(folder):
    bonus = {"num_outputs": 2, "predictor_hidden_dims": [4], "target_hidden_dims": [4]}
    options = {
        "amp_replay_size": 10,
        "rnd_cfg": bonus | {"state_normalization": True, "reward_normalization": True},
    }
    policy = {"amp_discriminator": {"hidden_dims": [4], "task_reward_lerp": 0.5}}
    config = tiny(folder, "probe:style", "APPO", "AmpActorCritic", policy, **options)
    stopped, resumed = check(config, folder, "style")

    ring = stopped.rollout_state.memory["style"]
    assert (ring.count == 8).all()  # 2 * 4, not yet full
    assert (resumed.rollout_state.memory["style"].cursor == 6).all()  # 4 * 4 - 10
    assert float(resumed.train_state.stats["rnd_state"].count) == 4 * 16
    assert float(resumed.train_state.stats["amp"].count) == 2 * 4 * 16
    for group in ("discriminator", "rnd"):
        assert not same(stopped.train_state.params[group], resumed.train_state.params[group])
    assert same(stopped.train_state.params["rnd_target"], resumed.train_state.params["rnd_target"])
