"""A key without an effect gives one line that names it, and really changes no program; a default never gives a line."""

import contextlib
import io
from pathlib import Path

import effects_bases
import pytest
import yaml
from commands import call, settings, write
from effects import ONE, Run, changed, lines
from effects_keys import CASES

from strl_jax import train
from strl_jax.builders.effects.rules import unused, without_effect
from strl_jax.config import ConfigError, from_dict, load, to_dict
from strl_jax.envs import probe
from strl_jax.runners.on_policy import OnPolicyRunner

EXPERIMENTS = sorted((Path(__file__).parents[2] / "experiments").glob("*.yaml"))
NO_PPO = {"algorithm.using_ppo": False}
RUN = {"algorithm.teacher_policy": {"teacher_ac_path": "HERE/first"}}
COSINE = {"name": "cosine_decay", "init_value": 1e-3, "decay_steps": 5}
# Base config, changes that remove the effect, then the keys that have none; their values are those of effects_keys.
UNUSED = {
    "no teacher, discriminator or RND": (
        "plain",
        {},
        ["env.groups.teacher", "env.groups.amp", "env.groups.rnd", "algorithm.desired_kl"],
    ),
    "no normalisation": (
        "plain",
        {},
        [f"algorithm.{name}" for name in ("normalized_reward_clamp_value", "normalization_eps", "normalization_until")],
    ),
    "few environments": ("plain", {"env.num_envs": 16}, ["env.pool_fraction"]),
    "a schedule": ("plain", {"algorithm.schedule": COSINE}, ["algorithm.learning_rate"]),
    "no hidden layers": (
        "plain",
        {"policy.actor_hidden_dims": [], "policy.critic_hidden_dims": []},
        ["policy.activation"],
    ),
    "no hidden layers of RND": (
        "rnd",
        {"algorithm.rnd_cfg": {"predictor_hidden_dims": [], "target_hidden_dims": []}},
        ["algorithm.rnd_cfg.activation"],
    ),
    "no hidden layers of estimators": (
        "adaptor",
        {"policy.estimator_kwargs.hidden_sizes": [], "policy.adaptor_kwargs.hidden_sizes": []},
        ["policy.estimator_kwargs.nonlinearity", "policy.adaptor_kwargs.nonlinearity"],
    ),
    "no strides": (
        "image",
        {"policy.encoder_kwargs.strides": [1], "policy.critic_encoder_kwargs.strides": [1]},
        ["policy.encoder_kwargs.use_maxpool", "policy.critic_encoder_kwargs.use_maxpool"],
    ),
    "no strides of a visual policy": (
        "visual",
        {"policy.visual_kwargs.strides": [1]},
        ["policy.visual_kwargs.use_maxpool"],
    ),
    "no losses of PPO": (
        "teacher",
        NO_PPO,
        [
            f"algorithm.{name}"
            for name in (
                "clip_param",
                "use_clipped_value_loss",
                "value_loss_coef",
                "entropy_coef",
                "surrogate_loss_coef",
            )
        ],
    ),
    "a constant probability": ("teacher", {"algorithm.teacher_act_prob": 0.5}, ["algorithm.update_times_scale"]),
    "no latents": ("teacher", {}, ["algorithm.distill_latent_coef", "algorithm.distill_latent_target"]),
    "a named class": (
        "teacher",
        {"algorithm.teacher_policy.class_name": "ActorCritic"},
        ["algorithm.teacher_policy_class_name"],
    ),
    "the teacher's group": (
        "teacher",
        {"env.groups.teacher": ["state", "hidden"]},
        ["algorithm.label_action_with_critic_obs"],
    ),
    "mimic": ("style", {}, ["algorithm.mimic_loss_coef"]),
    "a weight of the task": ("style", {"algorithm.task_reward_w": 0.5}, ["policy.amp_discriminator.task_reward_lerp"]),
    "one optimiser": (
        "style",
        {"compat.discriminator_with_policy": True},
        [f"algorithm.discriminator_{name}" for name in ("learning_rate", "max_grad_norm", "optimizer_class_name")],
    ),
    "the whole batch": (
        "style",
        {"compat.whole_discriminator_batch": True},
        ["algorithm.discriminator_batch_fraction"],
    ),
    "no adaptor": ("estimator with SGD", {}, ["algorithm.adaptor_loss_coef"]),
    "a mutex policy": (
        "mutex",
        {},
        ["policy.sub_policy_class_name", *(f"policy.{name}" for name in ("activation", "init_noise_std"))],
    ),
    "a mutex policy's other keys": (
        "field mutex",
        {},
        [f"policy.{name}" for name in ("actor_hidden_dims", "critic_hidden_dims", "mu_activation", "initialization")],
    ),
    "compat of others": (
        "reuse",
        {},
        [
            f"compat.{name}"
            for name in (
                "contiguous_envs",
                "advance_critic_memory",
                "redraw_replacement",
                "zero_mutex_buffer",
                "normalize_while_collecting",
                "sample_log_prob",
                "executed_labels",
                "looped_returns",
                "tan_statistic",
                "discriminator_with_policy",
                "whole_discriminator_batch",
                "separate_amp_normalizers",
                "amp_after_reset",
                "mimic_in_loss",
            )
        ],
    ),
    "compat of a teacher": ("teacher", {}, ["compat.looped_returns", "compat.tan_statistic", "compat.executed_labels"]),
    "compat of a discriminator": (
        "style",
        {"algorithm.discriminator_batch_fraction": 1.0},
        ["compat.mimic_in_loss", "compat.whole_discriminator_batch", "compat.executed_labels"],
    ),
}
# Their programs differ in what is not used, or in which of two equal values is used.
DEAD = {"compat.redraw_replacement", "compat.sample_log_prob"}
EACH = [(name, key) for name, (_, _, keys) in UNUSED.items() for key in keys]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("files")
    effects_bases.write_files(path)
    return path


def with_changes(name: str, changes: dict) -> dict:
    data = effects_bases.BASES[name]
    for key, value in changes.items():
        data = changed(data, key, value)
    return data


@pytest.mark.parametrize(("name", "key"), EACH)
def test_a_key_without_effect_has_a_line(name, key, folder):
    base, changes, _ = UNUSED[name]
    data = with_changes(base, changes)
    assert lines(effects_bases.placed(data, folder)) == []
    found = lines(effects_bases.placed(changed(data, key, CASES[key].value), folder))
    assert [line.split(": no effect; ")[0] for line in found] == [key]


@pytest.mark.slow  # 20 s; the fast test of the lines runs always
@pytest.mark.parametrize("name", UNUSED)
def test_a_key_without_effect_changes_no_program(name, folder):
    base, changes, keys = UNUSED[name]
    data = with_changes(base, changes)
    run = Run(effects_bases.placed(data, folder))
    for key in keys:
        other = Run(effects_bases.placed(changed(data, key, CASES[key].value), folder))
        assert run.error is other.error is None
        assert key in DEAD or run.differs(other) is None, key


WITH_POLICY = {"compat.discriminator_with_policy": True}
CANCELLED = {  # the programs differ in a number that changes nothing but the clip of a gradient
    "discriminator": ("style", {}, "algorithm.discriminator_loss_coef"),
    "discriminator with the policy": ("style", WITH_POLICY, "algorithm.discriminator_loss_coef"),
    "estimator": ("estimator", {}, "algorithm.estimator_loss_coef"),
    "adaptor": ("adaptor", {"algorithm.optimizer_class_name": "Adam"}, "algorithm.adaptor_loss_coef"),
    "actor": ("teacher", NO_PPO, "algorithm.distillation_loss_coef"),
}


@pytest.mark.parametrize("name", CANCELLED)
def test_the_factor_of_the_only_loss_of_a_network(name, folder):
    base, changes, key = CANCELLED[name]
    data = with_changes(base, changes)
    schedule = {"name": "linear", "init_value": 1.0, "end_value": 0.5, "transition_steps": 9}
    for value, expected in ((0.5, [key]), (schedule, [key]), (0.0, []), (schedule | {"end_value": 0.0}, []), (1.0, [])):
        found = lines(effects_bases.placed(changed(data, key, value), folder))
        assert [line.split(":")[0] for line in found] == expected
        assert all("clip" in line or "switch" in line for line in found)


@pytest.mark.parametrize("key", ["gamma", "lam", "normalize_rewards", "normalized_reward_clamp_value"])
def test_without_ppo_nothing_is_learned_from_rewards(key, folder):
    data = changed(with_changes("teacher", NO_PPO), f"algorithm.{key}", CASES[f"algorithm.{key}"].value)
    (line,) = lines(effects_bases.placed(data, folder))
    assert line.startswith(f"algorithm.{key}: no effect; ")


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        (RUN | {"algorithm.teacher_policy_class_name": "StateAc"}, ["algorithm.teacher_policy_class_name"]),
        (RUN | {"algorithm.label_action_with_critic_obs": False}, ["algorithm.label_action_with_critic_obs"]),
        (
            {"algorithm.teacher_policy.num_actions": 1, "algorithm.teacher_policy.amp_discriminator": {}},
            ["algorithm.teacher_policy.num_actions", "algorithm.teacher_policy.amp_discriminator"],
        ),
        ({"algorithm.teacher_policy.init_noise_std": 0.5}, ["algorithm.teacher_policy.init_noise_std"]),
        ({"algorithm.teacher_policy.init_noise_std": 1.0}, []),
        (
            {
                "algorithm.teacher_policy": {
                    "class_name": "ActorCriticMutex",
                    "sub_policy_paths": ["HERE/first", "HERE/second"],
                    "sub_policy_class_name": "StateAc",
                    "activation": "relu",
                },
                "algorithm.action_labels_from_sample": True,
            },
            [
                "algorithm.action_labels_from_sample",
                "algorithm.teacher_policy.activation",
                "algorithm.teacher_policy.sub_policy_class_name",
            ],
        ),
    ],
)
def test_keys_of_a_teacher(changes, keys, folder):
    found = lines(effects_bases.placed(with_changes("teacher", changes), folder))
    assert [line.split(":")[0] for line in found] == keys


@pytest.mark.parametrize(
    ("runner", "key"),
    [
        ({"ckpt_manipulator": "a.b:c"}, "ckpt_manipulator"),
        ({"num_eval_envs": 8}, "num_eval_envs"),
        ({"wandb_project": "robots", "logger": ["tensorboard"]}, "wandb_project"),
        ({"ckpt_manipulator": "a.b:c", "init_from": "run"}, None),
        ({"num_eval_envs": 8, "eval_interval": 5}, None),
        ({"wandb_project": "robots", "logger": ["tensorboard", "wandb"]}, None),
        ({"wandb_project": "robots", "logger": "my.writers:Csv"}, None),
    ],
)
def test_keys_of_the_runner(runner, key):
    found = lines({"env": {"name": "probe:action"}, "runner": runner})
    assert [line.split(":")[0] for line in found] == ([f"runner.{key}"] if key else [])


def test_every_rule_is_tested(folder):
    """A key that a rule can name, in any of the base configs, is in one of the tables of this file."""
    named = {key for _, key in EACH} | {key for *_, key in CANCELLED.values()}
    named |= {f"algorithm.{key}" for key in ("gamma", "lam", "normalize_rewards")}
    named |= {f"runner.{key}" for key in ("ckpt_manipulator", "num_eval_envs", "wandb_project")}
    named |= {"algorithm.action_labels_from_sample", "env.kwargs"}
    for base in effects_bases.BASES:
        config, _ = from_dict(effects_bases.config(base, folder))
        assert {key for key, _ in unused(config, env_is_given=True)} <= named


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_experiments_have_no_key_without_effect(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs" / "teacher").mkdir(parents=True)  # a run folder of a teacher
    config, found = load(path)
    assert found + without_effect(config) == []


def test_a_stored_config_lists_all_defaults_without_a_line(folder):
    config, _ = from_dict(effects_bases.config("plain", folder))
    again, found = from_dict(to_dict(config))
    assert found + without_effect(again) == []


def test_the_name_of_all_compat_keys_gives_no_line(folder):
    assert lines(effects_bases.config("plain", folder) | {"compat": "st_rl"}) == []


def test_the_command_prints_each_line_once(tmp_path, capsys):
    data = settings(tmp_path / "logs", ckpt_manipulator="effects:lines") | {"device": "cpu"}
    path = write(tmp_path / "config.yaml", data)
    overrides = ["runner.max_iterations=1", "policy.amp_discriminator={input_dim: 3}", "device=gpu"]
    with pytest.raises(ConfigError):
        load(path, overrides)  # the policy has no discriminator
    code, found = call(capsys, lambda argv: _quiet(train.main, argv), "--config", path, overrides[0], "device=gpu")
    assert code == 0
    keys = [line.removeprefix("warning: ").split(":")[0] for line in found if line.startswith("warning: ")]
    assert keys == ["device", "runner.ckpt_manipulator"]
    (run,) = (tmp_path / "logs" / "default").iterdir()
    code, found = call(capsys, lambda argv: _quiet(train.main, argv), "--resume", run, "runner.max_iterations=2")
    assert code == 0
    assert [line for line in found if "ckpt_manipulator" in line] == [line for line in found if "warning" in line]
    assert len([line for line in found if "warning" in line]) == 1


def _quiet(main, argv) -> int:
    """``main`` without its stdout."""
    with contextlib.redirect_stdout(io.StringIO()):
        return main(argv)


def test_print_config_prints_the_lines(tmp_path, capsys):
    path = write(tmp_path / "config.yaml", settings(tmp_path, ckpt_manipulator="a.b:c"))
    assert train.main(["--config", str(path), "--print-config"]) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith("warning: runner.ckpt_manipulator: no effect; ")
    assert yaml.safe_load(captured.out)["runner"]["ckpt_manipulator"] == "a.b:c"


def test_a_runner_with_an_environment_does_not_use_its_arguments(tmp_path):
    config, _ = from_dict({"env": {"name": "probe:action", "num_envs": 4, "kwargs": {"target": 0.1}}})
    with pytest.warns(UserWarning, match=r"^env\.kwargs: no effect; "):
        OnPolicyRunner(probe.make("action"), config, None, ONE).close()
