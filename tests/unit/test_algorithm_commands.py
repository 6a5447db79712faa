"""The commands with teachers, queues, discriminators and replays: ``bench``, the timed update, what a log holds."""

import json

import jax
import pytest
from commands import log, settings, write

from strl_jax import bench
from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.sharding import make_mesh

TIMED = 5  # iterations; the update is timed once the third is on its way


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("commands")


@pytest.fixture(scope="module")
def teacher(folder):
    """The run folder of a teacher on ``style``; one iteration."""
    return train(config_of(folder, "PPO", "ActorCritic"), folder, "teacher", 1).log_dir


def config_of(folder, algorithm: str, policy_class: str, **options) -> dict:
    """A tiny config on the probe ``style``."""
    config = settings(folder, algorithm_class_name=algorithm, policy_class_name=policy_class)
    config["env"] = {"name": "probe:style", "num_envs": 8}
    config["algorithm"] |= options
    if "Amp" in policy_class:
        config["policy"]["amp_discriminator"] = {"hidden_dims": [4], "task_reward_lerp": 0.5}
    return config


def taught(teacher) -> dict:
    return {"teacher_policy": {"teacher_ac_path": str(teacher)}, "buffer_dilation_ratio": 1.5}


def train(config: dict, folder, name: str, iterations: int) -> OnPolicyRunner:
    runner = OnPolicyRunner(None, config, folder / name, mesh=make_mesh(jax.devices()[:1]))
    runner.learn(iterations)
    runner.close()
    return runner


@pytest.mark.slow
@pytest.mark.parametrize("name", ["APPO", "TPPO"])
def test_bench(name, folder, teacher, capsys):
    """On all four devices, with overrides of the command line."""
    path = write(folder / f"{name}.yaml", config_of(folder, "PPO", "ActorCritic"))
    overrides = {
        "APPO": [
            "runner.policy_class_name=AmpActorCritic",
            "policy.amp_discriminator={hidden_dims: [4]}",
            "algorithm.amp_replay_size=8",
        ],
        "TPPO": [
            f"algorithm.teacher_policy={{teacher_ac_path: {teacher}}}",
            "algorithm.buffer_dilation_ratio=1.5",
        ],
    }[name]
    out = folder / f"{name}.json"
    arguments = ["--config", str(path), "--repeats", "2", "--warmup", "1", "--out", str(out)]
    assert bench.main([*arguments, f"runner.algorithm_class_name={name}", *overrides]) == 0
    assert f"written: {out}" in capsys.readouterr().out
    result = json.loads(out.read_text())
    assert result["devices"] == 4
    assert result["seconds"].keys() == {"fused", "collect", "update", "physics_only"}
    assert min(result["seconds"].values()) > 0
    assert result["config"]["runner"]["algorithm_class_name"] == name


@pytest.mark.slow
def test_log_and_time_split(folder, teacher):
    """ATPPO with a queue and a replay, whose update is timed on its own."""
    options = taught(teacher) | {"amp_replay_size": 8, "teacher_act_prob": 0.0}
    config = config_of(folder, "ATPPO", "AmpActorCritic", **options)
    config["runner"] |= {"time_split": True, "last_interval": 3}  # what is saved has been logged
    runner = OnPolicyRunner(None, config, folder / "run", mesh=make_mesh(jax.devices()[:1]))
    runner.programs.get("update")  # else the training may end before it is compiled
    runner.learn(TIMED)
    runner.close()
    lines = log(folder / "run")
    assert [line["iteration"] for line in lines] == list(range(1, TIMED + 1))
    assert ["Perf/learning_time" in line for line in lines] == [False, False, False, True, True]
    for line in lines:
        for name in ("style_reward", "task_reward"):
            assert line[f"Episode_Reward/{name}"] is not None
        assert line["Discriminator/saturated"] in (0.0, 1.0)
        assert line["Loss/distillation_loss"] > 0
        assert 0 <= line["Loss/expert_accuracy"] <= 1
        assert line["Loss/skipped_updates"] == 0
    # All follow the teacher in their first episode, which has one step of four; nobody does later.
    assert [line["Train/teacher_acting"] for line in lines] == [0.25, 0.0, 0.0, 0.0, 0.0]
