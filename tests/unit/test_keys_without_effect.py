"""A key without an effect gives one line that names it, and really changes no program."""

import effects_bases
import pytest
from effects import Run, changed, lines
from effects_keys import CASES
from effects_unused import DEAD, EACH, NO_PPO, RUN, UNUSED, UNUSED_ARGUMENTS, value_of

from strl_jax.builders.effects.rules import unused
from strl_jax.config import from_dict


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
    found = lines(effects_bases.placed(changed(data, key, value_of(key)), folder))
    assert [line.split(": no effect; ")[0] for line in found] == [key]


@pytest.mark.slow  # 20 s; the fast test of the lines runs always
@pytest.mark.parametrize("name", UNUSED)
def test_a_key_without_effect_changes_no_program(name, folder):
    base, changes, keys = UNUSED[name]
    data = with_changes(base, changes)
    run = Run(effects_bases.placed(data, folder))
    for key in keys:
        other = Run(effects_bases.placed(changed(data, key, value_of(key)), folder))
        assert run.error is other.error is None
        assert key in DEAD or run.differs(other) is None, key


def with_arguments(name: str, folder) -> tuple[dict, dict, list[str]]:
    """The config without the additional arguments and with them, and the keys that have no effect."""
    base, changes, key, arguments, more, unused_names = UNUSED_ARGUMENTS[name]
    key = f"algorithm.{key}"
    pair = (with_changes(base, changes | {key: given}) for given in (arguments, arguments | more))
    without, given = (effects_bases.placed(data, folder) for data in pair)
    return without, given, [f"{key}.{each}" for each in unused_names]


@pytest.mark.parametrize("name", UNUSED_ARGUMENTS)
def test_an_argument_without_effect_has_a_line(name, folder):
    without, given, keys = with_arguments(name, folder)
    assert lines(without) == []
    assert [line.split(": no effect; ")[0] for line in lines(given)] == keys


@pytest.mark.slow  # as test_a_key_without_effect_changes_no_program
@pytest.mark.parametrize("name", UNUSED_ARGUMENTS)
def test_an_argument_without_effect_changes_no_program(name, folder):
    without, given, keys = with_arguments(name, folder)
    without, given = Run(without), Run(given)
    assert without.error is given.error is None
    assert (without.differs(given) is None) == (bool(keys) or name == "a default")


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
        (RUN | {"algorithm.teacher_policy.obs_segments": {"state": [1]}}, []),
        (
            {
                "algorithm.teacher_policy": {
                    "class_name": "ActorCriticMutex",
                    "sub_policy_paths": ["HERE/first", "HERE/second"],
                    "sub_policy_class_name": "StateAc",
                    "activation": "relu",
                    "teacher_ac_path": "HERE/teacher.pt",
                    "obs_segments": {"proprioception": [12], "height": [2]},
                    "privileged_obs_segments": {"height": [2]},
                    "critic_obs_segments": {"height": [2]},
                },
                "algorithm.action_labels_from_sample": True,
            },
            [
                "algorithm.action_labels_from_sample",
                "algorithm.teacher_policy.activation",
                "algorithm.teacher_policy.privileged_obs_segments",
                "algorithm.teacher_policy.critic_obs_segments",
                "algorithm.teacher_policy.teacher_ac_path",
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
        ({"best_metric": "Eval/max_return"}, "best_metric"),
        ({"best_direction": "min"}, "best_direction"),
        ({"ckpt_manipulator": "a.b:c", "init_from": "run"}, None),
        ({"num_eval_envs": 8, "eval_interval": 5}, None),
        ({"num_eval_envs": 8, "eval_after_load": True, "init_from": "run"}, None),
        ({"best_metric": "Eval/max_return", "best_direction": "min", "eval_interval": 5}, None),
        ({"best_metric": "Eval/max_return", "best_direction": "min", "eval_after_load": True}, None),
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
    named |= {"runner.best_metric", "runner.best_direction"}
    named |= {"algorithm.action_labels_from_sample", "env.kwargs"}
    for base in effects_bases.BASES:
        config, _ = from_dict(effects_bases.config(base, folder))
        assert {key for key, _ in unused(config, env_is_given=True)} <= named
