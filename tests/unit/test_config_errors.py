"""Bad input gives one line for each fault: key, value, what is allowed, nearest name."""

import pytest

from strl_jax.algorithms.optimizers import OPTIMIZERS
from strl_jax.config import ConfigError, from_dict, load
from strl_jax.config.errors import raised, show
from strl_jax.config.policy import ACTIVATION_NAMES, FIELDS
from strl_jax.config.sections import ALGORITHMS

ENV = {"name": "probe:constant"}


def message(data: dict) -> str:
    with pytest.raises(ConfigError) as caught:
        from_dict({"env": ENV, **data})
    return str(caught.value)


REFUSED = [
    # path of the key, its values, what is allowed
    ("algorithm.gamma", [1.5], "<= 1"),
    ("algorithm.gamma", [True, None], "a number"),
    ("algorithm.learning_rate", [0], ">= 1e-30"),
    ("algorithm.learning_rate", [1e39], "<= 1000"),
    ("algorithm.learning_rate", [float("inf"), float("nan")], "a finite number"),
    ("algorithm.learning_rate", ["abc"], "a number"),
    ("algorithm.entropy_coef", [float("nan")], "a finite number"),
    ("algorithm.entropy_coef", [1e300], "<= 1e+30 or a mapping"),
    ("algorithm.value_loss_coef", [True], "a number or a mapping"),
    ("algorithm.clip_min_std", ["x"], "a number or a list"),
    ("algorithm.num_mini_batches", [True, 2.5], "an integer"),
    ("algorithm.num_mini_batches", [2**31], "<= 2147483646"),
    ("algorithm.num_learning_epochs", [10**30], "<= 2147483646"),
    ("algorithm.use_clipped_value_loss", [1, "true"], "true or false"),
    ("algorithm.rnd_cfg.weight", ["x"], "a number or a mapping"),
    ("policy", [[1]], "a mapping"),
    ("policy.actor_hidden_dims", [8], "a list"),
    ("env.name", [3], "a string"),
    ("env.name", [""], "not empty"),
    ("env.num_envs", [10**30], "<= 2147483646"),
    ("env.num_envs", [0], ">= 1"),
    ("env.pool_fraction", [0], "> 0"),
    ("env.groups.actor", [[]], "not empty"),
    ("env.kwargs", [[1]], "a mapping"),
    ("env.kwargs", [{"x": [{1: 2}]}, {"x": b"y"}], "numbers, strings, true, false, null"),
    ("runner.run_name", ["a/b"], "without a /"),
    ("runner.eval_interval", [-1], ">= 0"),
    ("seed", [2**32], "< 4294967296"),
    ("seed", ["x"], "an integer"),
]


def nested(path: str, value) -> dict:
    """``a.b`` and a value as ``{"a": {"b": value}}``."""
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


def message_of(path: str, value) -> str:
    data = nested(path, value)
    return message(data | {"env": ENV | data["env"]} if "env" in data else data)


@pytest.mark.parametrize(
    ("path", "value", "allowed"), [(path, value, allowed) for path, values, allowed in REFUSED for value in values]
)
def test_a_value(path, value, allowed):
    found = message_of(path, value)
    assert found.startswith(f"{path}: {show(value)} is not allowed; it must ")
    assert allowed in found
    assert "\n" not in found


@pytest.mark.parametrize(
    ("path", "values", "wrong", "shown"),
    [
        ("algorithm.clip_min_std", [1, -1], 1, "-1"),
        ("policy.actor_hidden_dims", [8, True], 1, "true"),
        ("runner.logger", ["none", "wand"], 1, "'wand'"),
    ],
)
def test_an_entry_of_a_list(path, values, wrong, shown):
    assert message_of(path, values).startswith(f"{path}.{wrong}: {shown} is not allowed; it must be ")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("algorithm.lerning_rate", "nearest is learning_rate"),
        ("algorithm.num_envs", "nearest is env.num_envs"),
        ("runner.Max_Iterations", "nearest is max_iterations"),
        ("policy.rnn_type", "known are actor_hidden_dims, critic_hidden_dims, "),
        ("env.groups.acter", "nearest is actor"),
        ("compat.linear", "nearest is linear_std"),
        ("algorithm.rnd_cfg.wieght", "nearest is weight"),
        ("algorithm.rnd_cfg.weight.vale", "nearest is value"),
    ],
)
def test_an_unknown_key(path, allowed):
    schedule = {"name": "constant", "value": 1} if path.endswith("vale") else {}
    data = nested(path, 1)
    if schedule:
        data["algorithm"]["rnd_cfg"]["weight"] |= schedule
    found = message(data | {"env": ENV | data.get("env", {})})
    assert found.startswith(f"{path}: unknown key; {allowed}")


@pytest.mark.parametrize("key", [3, None])
def test_a_key_that_is_no_string(key):
    assert message({"runner": {key: 1}}).startswith(f"runner.{key}: unknown key; known are runner_class_name, ")


def test_a_missing_key():
    assert message({"env": {}}) == "env.name: it is missing and has no default"


@pytest.mark.parametrize(
    ("path", "name", "known", "near"),
    [
        ("algorithm.optimizer_class_name", "adam", ", ".join(OPTIMIZERS), "Adam"),
        ("algorithm.schedule", "adaptiv", "fixed, adaptive or a mapping", "adaptive"),
        ("policy.activation", "rellu", ", ".join(ACTIVATION_NAMES), "relu"),
        ("policy.mu_activation", "tan", ", ".join(ACTIVATION_NAMES), "tanh"),
        ("policy.initialization", "torsch", "torch, orthogonal", "torch"),
        ("runner.logger", "wand", "tensorboard, wandb, none or an import path pkg.mod:Class", "wandb"),
        ("runner.runner_class_name", "OnPolicyRuner", "OnPolicyRunner", "OnPolicyRunner"),
        ("runner.policy_class_name", "ActorCritc", ", ".join(FIELDS), "ActorCritic"),
        ("runner.algorithm_class_name", "PPPO", ", ".join(ALGORITHMS), "PPO"),
        ("compat", "strl", "default, st_rl or a mapping", "st_rl"),
    ],
)
def test_an_unknown_name(path, name, known, near):
    expected = f"{path}: '{name}' is not allowed; it must be one of {known}; nearest is {near}"
    assert message_of(path, name) == expected


def test_a_manipulator_is_an_import_path():
    found = message_of("runner.ckpt_manipulator", "by_name")
    assert found.startswith("runner.ckpt_manipulator: 'by_name' is not allowed; ")
    assert "by_component or an import path pkg.mod:function" in found


def test_every_fault_of_schedules_has_its_line():
    lines = message({"algorithm": {"schedule": {"name": "linear", "x": 1}, "rnd_cfg": {"weight": {}, "y": 1}}})
    assert sorted(line.split(":")[0] for line in lines.split("\n")) == [
        "algorithm.rnd_cfg.weight.name",
        "algorithm.rnd_cfg.y",
        "algorithm.schedule.end_value",
        "algorithm.schedule.init_value",
        "algorithm.schedule.transition_steps",
        "algorithm.schedule.x",
    ]


def test_minibatches_must_divide_the_samples():
    # 3 steps x 4 environments = 12 samples
    data = {"env": {**ENV, "num_envs": 4}, "runner": {"num_steps_per_env": 3}, "algorithm": {"num_mini_batches": 5}}
    found = message(data)
    assert found.startswith("algorithm.num_mini_batches: 5 is not allowed; ")
    assert "12 samples (3 steps x 4 environments)" in found
    assert found.endswith(": 1, 2, 3, 4, 6, 12")
    assert from_dict({**data, "compat": "st_rl"})[0].algorithm.num_mini_batches == 5


def test_minibatches_cannot_be_more_than_the_samples():
    data = {"env": {**ENV, "num_envs": 2}, "runner": {"num_steps_per_env": 3}, "algorithm": {"num_mini_batches": 7}}
    found = message({**data, "compat": "st_rl"})
    assert found.startswith("algorithm.num_mini_batches: 7 is not allowed; ")
    assert "at most the 6 samples" in found


def test_every_fault_has_its_line():
    lines = message({"algorithm": {"gama": 1, "lam": 2}, "policy": {"activation": 1}, "speed": 3}).split("\n")
    assert sorted(line.split(":")[0] for line in lines) == [
        "algorithm.gama",
        "algorithm.lam",
        "policy.activation",
        "speed",
    ]


def test_at_most_ten_lines():
    lines = message({"algorithm": {f"key_{i}": i for i in range(13)}}).split("\n")
    assert len(lines) == 10
    # 9 are told, 13 - 9 = 4 are not
    assert lines[-1] == "... and 4 more"


def test_long_values_and_line_ends_stay_on_one_line():
    found = message({"algorithm": {"gamma": "a\nb" * 200}})
    assert "\n" not in found
    assert len(found) < 200


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("x" * 78, f"'{'x' * 78}'"),  # 80 characters
        ("x" * 79, f"'{'x' * 75}...'"),
        ("it's" + "x" * 99, f'"it\'s{"x" * 71}..."'),
        ([1] * 40, f"[{'1, ' * 25}...]"),
        ({"a": "x" * 99}, f"{{'a': '{'x' * 69}...}}"),
        (10**90, "1" + "0" * 76 + "..."),
    ],
)
def test_a_shortened_value_is_closed(value, expected):
    assert show(value) == expected
    assert len(show(value)) == 80


def test_a_shortened_override_is_closed(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("env: {name: 'probe:constant'}")
    with pytest.raises(ConfigError) as caught:
        load(path, [f"runner.logger=[{'none, ' * 50}nine]"])
    start = "override 'runner.logger=["
    assert str(caught.value).startswith(
        f"{start}{('none, ' * 50)[: 77 - len(start) + 8]}...': runner.logger.50: 'nine'"
    )


def test_a_shortened_exception_says_so():
    assert raised(ValueError("x" * 300)) == f"ValueError: {'x' * 300}"
    assert raised(ValueError("x" * 301)) == f"ValueError: {'x' * 297}..."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ": a config is a mapping of sections (env, policy, algorithm, runner); this is empty"),
        ("- 1\n- 2\n", "this is a list"),
        ("just words", "this is a string"),
        ("3", "this is a number"),
        ("2026-03-01", "this is a single value"),
        ("env:\n  name: a\nseed: [1,\n", ", line 4: not valid YAML: expected the node content, but found"),
        ("env:\n  name: a\n  num_envs: 1\n  name: b\n", ", line 4: not valid YAML: key 'name' is given twice"),
        ("seed: 1\n---\nseed: 2\n", ", line 2: not valid YAML: but found another document"),
        ("seed: !!python/object:os.system 1\n", ", line 1: not valid YAML: could not determine a constructor"),
        ("seed: 1\nname: \x07\n", ", line 2: not valid YAML: special characters are not allowed"),
        ("seed: 2020-13-45\n", ": not valid YAML: month must be in 1..12"),
        ("seed: &a [*a]\n", ": not valid YAML: maximum recursion depth exceeded"),
        ('runner: {log_root: ["a\\0b"]}\n', "null character"),
        ('"a\\0b": 1\n', "null character"),
        ("? [1, 2]\n: 3\n", "line 1: not valid YAML: found unhashable key"),
    ],
)
def test_bad_files(tmp_path, text, expected):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(caught.value).startswith(str(path))
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "quickstart.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"quikstart.yaml: no such file; nearest is quickstart.yaml$"):
        load(tmp_path / "quikstart.yaml")
    with pytest.raises(ConfigError, match=r"missing/a.yaml: no such file$"):
        load(tmp_path / "missing" / "a.yaml")
    with pytest.raises(ConfigError, match=r"cannot be read: Is a directory$"):
        load(tmp_path)
    with pytest.raises(ConfigError, match=r"quickstart.yaml: not a text file in UTF-8$"):
        load(tmp_path / "quickstart.yaml")


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("seed", "override 'seed': it must be section.key=VALUE"),
        ("=3", "override '=3': it must be section.key=VALUE"),
        ("algorithm..gamma=1", "override 'algorithm..gamma=1': it must be section.key=VALUE"),
        ("seed=[1", "override 'seed=[1', line 1: not valid YAML: expected ',' or ']'"),
        ("seed={a: 1, a: 2}", "override 'seed={a: 1, a: 2}', line 1: not valid YAML: key 'a' is given twice"),
        ("seed.x=1", "override 'seed.x=1': seed is 3, not a mapping"),
        ("compat.linear_std=true", "override 'compat.linear_std=true': compat is 'st_rl', not a mapping"),
        (
            "algorithm.lerning_rate=1",
            "override 'algorithm.lerning_rate=1': algorithm.lerning_rate: unknown key; nearest is learning_rate",
        ),
        ("algorithm.gamma=2", "override 'algorithm.gamma=2': algorithm.gamma: 2 is not allowed; it must be <= 1"),
        (
            "policy.actor_hidden_dims=[8, x]",
            "override 'policy.actor_hidden_dims=[8, x]': policy.actor_hidden_dims.1: 'x",
        ),
        ("runner.run_name=a/b", "runner.run_name: 'a/b' is not allowed; it must be a string without a /"),
        ("gamma=0.9", "override 'gamma=0.9': gamma: unknown key; nearest is algorithm.gamma"),
        ("env=", "env.name: it is missing and has no default"),
    ],
)
def test_bad_overrides(tmp_path, override, expected):
    path = tmp_path / "config.yaml"
    path.write_text("{seed: 3, compat: st_rl, env: {name: 'probe:constant'}}")
    with pytest.raises(ConfigError) as caught:
        load(path, [override])
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_fault_of_the_whole_config_names_the_override(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("env: {name: 'probe:constant', num_envs: 4}")
    with pytest.raises(ConfigError) as caught:
        load(path, ["seed=3", "algorithm.num_mini_batches=7"])  # 24 steps x 4 environments = 96 samples
    expected = "override 'algorithm.num_mini_batches=7': algorithm.num_mini_batches: 7 is not allowed; "
    assert str(caught.value).startswith(expected)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ({}, "it is missing; it must be an integer >= 1"),
        ({"decay_steps": 1.5}, "1.5 is not allowed; it must be an integer >= 1 and <= 1000000000"),
    ],
)
def test_a_number_that_is_missing_or_of_another_type_comes_with_its_bounds(schedule, expected):
    with pytest.raises(ConfigError) as caught:
        from_dict(
            {
                "env": {"name": "probe:action"},
                "algorithm": {"schedule": {"name": "cosine_decay", "init_value": 1e-3} | schedule},
            }
        )
    assert caught.value.lines[0].startswith(f"algorithm.schedule.decay_steps: {expected}")
