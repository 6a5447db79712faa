"""A ``train_cfg`` of legged_gym, st_rl or rsl_rl moves over by copying it."""

import pytest

from strl_jax.config import ConfigError, from_dict, load

ENV = {"name": "probe:constant"}
RESUME = "ignored; a run is continued with --resume RUN_DIR on the command line"

# The form that legged_gym hands to OnPolicyRunner: class_to_dict of its config classes.
LEGGED_GYM = {
    "seed": 3,
    "runner_class_name": "OnPolicyRunner",
    "init_member_classes": {},
    "policy": {
        "init_noise_std": 0.8,
        "actor_hidden_dims": [512, 256, 128],
        "critic_hidden_dims": [128, 64],
        "activation": "elu",
    },
    "algorithm": {
        "value_loss_coef": 0.5,
        "use_clipped_value_loss": True,
        "clip_param": 0.3,
        "entropy_coef": 0.01,
        "num_learning_epochs": 5,
        "num_mini_batches": 4,
        "learning_rate": 1.0e-3,
        "schedule": "adaptive",
        "gamma": 0.99,
        "lam": 0.9,
        "desired_kl": 0.02,
        "max_grad_norm": 2.0,
    },
    "runner": {
        "policy_class_name": "ActorCritic",
        "algorithm_class_name": "PPO",
        "num_steps_per_env": 48,
        "max_iterations": 300,
        "save_interval": 20,
        "experiment_name": "rough_anymal_c",
        "run_name": "first",
        "resume": False,
        "load_run": -1,
        "checkpoint": -1,
        "resume_path": None,
    },
}


def test_legged_gym():
    config, warnings = from_dict({**LEGGED_GYM, "env": ENV})
    assert config.seed == 3
    assert config.policy.actor_hidden_dims == (512, 256, 128)
    assert config.policy.critic_hidden_dims == (128, 64)
    assert config.policy.init_noise_std == 0.8
    given = LEGGED_GYM["algorithm"]
    assert {name: getattr(config.algorithm, name) for name in given} == given
    assert config.runner.num_steps_per_env == 48
    assert config.runner.max_iterations == 300
    assert config.runner.experiment_name == "rough_anymal_c"
    assert sorted(warnings) == [
        "init_member_classes: ignored; it is a method of legged_gym's config classes",
        f"runner.checkpoint: {RESUME}",
        f"runner.load_run: {RESUME}",
        f"runner.resume: {RESUME}",
        f"runner.resume_path: {RESUME}",
    ]


def test_a_key_within_a_section_of_a_section():
    runner = {"policy_class_name": "AmpActorCritic", "algorithm_class_name": "APPO"}
    data = {"env": ENV, "policy": {"amp_discriminator": {"input_dim": 84, "hidden_dims": [64]}}, "runner": runner}
    config, warnings = from_dict(data)
    assert config.policy.amp_discriminator.hidden_dims == (64,)
    why = "it is the length of the states that the discriminator sees"
    assert warnings == [f"policy.amp_discriminator.input_dim: ignored; {why}"]


def test_flat_rsl_rl():
    data = {
        "env": ENV,
        "device": "cuda:0",
        "num_steps_per_env": 32,
        "max_iterations": 7,
        "empirical_normalization": True,
        "save_interval": 9,
        "experiment_name": "g1",
        "run_name": "x",
        "logger": "wandb",
        "wandb_project": "p",
        "neptune_project": "p",
        "resume": False,
        "load_run": ".*",
        "load_checkpoint": "model_.*.pt",
        "policy": {"class_name": "ActorCriticRecurrent", "activation": "relu"},
        "algorithm": {"class_name": "PPO", "gamma": 0.9},
    }
    config, warnings = from_dict(data)
    runner = config.runner
    assert (runner.num_steps_per_env, runner.max_iterations, runner.save_interval) == (32, 7, 9)
    assert (runner.experiment_name, runner.run_name, runner.logger, runner.wandb_project) == ("g1", "x", "wandb", "p")
    assert (runner.policy_class_name, runner.algorithm_class_name) == ("ActorCriticRecurrent", "PPO")
    assert config.algorithm.empirical_normalization is True
    assert config.policy.activation == "relu"
    names = ["device", "load_checkpoint", "load_run", "neptune_project", "resume"]
    assert sorted(line.split(":")[0] for line in warnings) == names


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ("algorithm", "device"),
        ("algorithm", "ppo"),
        ("runner", "inference_mode_rollout"),
        ("runner", "load_optimizer"),
    ],
)
def test_keys_without_a_meaning_give_one_warning(section, key):
    config, warnings = from_dict({"env": ENV, section: {key: "anything"}})
    assert config == from_dict({"env": ENV})[0]
    assert len(warnings) == 1
    assert warnings[0].startswith(f"{section}.{key}: ignored; ")
    assert "\n" not in warnings[0]


def test_the_same_value_twice_is_no_contradiction():
    data = {"env": ENV, "max_iterations": 7, "runner": {"max_iterations": 7}}
    assert from_dict(data)[0].runner.max_iterations == 7


def test_two_values_for_one_key():
    with pytest.raises(ConfigError, match=r"^max_iterations: 7 contradicts runner.max_iterations, which is 8$"):
        from_dict({"env": ENV, "max_iterations": 7, "runner": {"max_iterations": 8}})


@pytest.mark.parametrize("runner", [None, 3])
def test_a_section_that_is_none_takes_flat_keys_and_a_wrong_one_is_named(runner):
    data = {"env": ENV, "max_iterations": 7, "runner": runner}
    if runner is None:
        assert from_dict(data)[0].runner.max_iterations == 7
        return
    with pytest.raises(ConfigError, match=r"runner: 3 is not allowed; it must be a mapping"):
        from_dict(data)


def test_legacy_names_work_on_the_command_line(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("{env: {name: 'probe:constant'}, runner: {max_iterations: 3}}")
    config, warnings = load(path, ["max_iterations=4", "policy.class_name=ActorCriticRecurrent", "runner.load_run=x"])
    assert config.runner.max_iterations == 4
    assert config.runner.policy_class_name == "ActorCriticRecurrent"
    assert warnings == [f"runner.load_run: {RESUME}"]


def test_legacy_names_work_inside_an_override(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("{env: {name: 'probe:constant'}, policy: {activation: relu}, runner: {run_name: a}}")
    config, warnings = load(path, ["runner={load_run: -1}", "policy={class_name: ActorCriticRecurrent}"])
    assert config.runner.policy_class_name == "ActorCriticRecurrent"
    assert config.policy.activation == "elu"  # an override replaces what it names
    assert config.runner.run_name == ""
    assert warnings == ["runner.load_run: " + RESUME]


AMP = "{env: {name: 'probe:style'}, runner: {policy_class_name: AmpActorCritic, algorithm_class_name: APPO}"


@pytest.mark.parametrize(
    "override",
    [
        "policy.amp_discriminator={input_dim: 3, hidden_dims: [7]}",
        "policy={amp_discriminator: {input_dim: 3, hidden_dims: [7]}}",
    ],
)
def test_a_key_is_removed_at_any_depth_of_an_override_as_in_a_file(override, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(AMP + "}")
    config, warnings = load(path, [override])
    assert config.policy.amp_discriminator.hidden_dims == (7,)
    path.write_text(AMP + ", policy: {amp_discriminator: {input_dim: 3, hidden_dims: [7]}}}")
    assert load(path) == (config, warnings)
    assert [line.split(":")[0] for line in warnings] == ["policy.amp_discriminator.input_dim"]


def test_a_key_in_the_file_and_in_overrides_gives_one_line(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("{env: {name: 'probe:constant'}, runner: {load_run: x}}")
    assert load(path, ["runner.load_run=y", "runner={load_run: z}"])[1] == [f"runner.load_run: {RESUME}"]
