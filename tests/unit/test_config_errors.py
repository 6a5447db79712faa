"""Bad input gives one line for each fault: key, value, what is allowed, nearest name."""

import pytest

from strl_jax.config import ConfigError, from_dict, load
from strl_jax.config.errors import raised, show

ENV = {"name": "probe:constant"}
OPTIMIZERS = "Adam, AdamW, Adamax, NAdam, RAdam, RMSprop, SGD"
ACTIVATIONS = (
    "elu, selu, relu, crelu, lrelu, leaky_relu, tanh, sigmoid, silu, swish, gelu, softplus, identity"
)  # fmt: skip


def message(data: dict) -> str:
    with pytest.raises(ConfigError) as caught:
        from_dict({"env": ENV, **data})
    return str(caught.value)


@pytest.mark.parametrize(
    ("section", "values", "expected"),
    [
        # keys
        ("algorithm", {"lerning_rate": 1}, "algorithm.lerning_rate: unknown key; nearest is learning_rate"),
        ("algorithm", {"num_envs": 1}, "algorithm.num_envs: unknown key; nearest is env.num_envs"),
        ("runner", {"Max_Iterations": 1}, "runner.Max_Iterations: unknown key; nearest is max_iterations"),
        ("runner", {3: 1}, "runner.3: unknown key; known are runner_class_name, policy_class_name"),
        ("runner", {None: 1}, "runner.None: unknown key; known are runner_class_name, policy_class_name"),
        ("policy", {"rnn_type": "gru"}, "policy.rnn_type: unknown key; known are actor_hidden_dims, critic_hidden_"),
        ("env", {"name": "a", "groups": {"acter": []}}, "env.groups.acter: unknown key; nearest is actor"),
        ("env", {}, "env.name: it is missing and has no default"),
        ("env", {"name": ""}, "env.name: '' is not allowed; it must be not empty"),
        # ranges
        ("algorithm", {"gamma": 1.5}, "algorithm.gamma: 1.5 is not allowed; it must be <= 1"),
        ("algorithm", {"learning_rate": 0}, "algorithm.learning_rate: 0 is not allowed; it must be >= 1e-30"),
        ("algorithm", {"learning_rate": float("inf")}, "algorithm.learning_rate: inf is not allowed; it must be a fin"),
        ("algorithm", {"entropy_coef": float("nan")}, "algorithm.entropy_coef: nan is not allowed; it must be a fini"),
        ("algorithm", {"clip_min_std": [1, -1]}, "algorithm.clip_min_std.1: -1 is not allowed; it must be >= 1e-30"),
        ("policy", {"actor_hidden_dims": [8, 0]}, "policy.actor_hidden_dims.1: 0 is not allowed; it must be >= 1"),
        ("policy", {"init_noise_std": 0.0}, "policy.init_noise_std: 0.0 is not allowed; it must be >= 1e-30"),
        ("env", {"name": "a", "pool_fraction": 1.1}, "env.pool_fraction: 1.1 is not allowed; it must be <= 1"),
        ("runner", {"run_name": "a/b"}, "runner.run_name: 'a/b' is not allowed; "),
        ("env", {"name": "a", "num_envs": 10**30}, "env.num_envs: 1000000000000000000000000000000 is not allowed; "),
        ("env", {"name": "a", "episode_length": 3 * 10**9}, "env.episode_length: 3000000000 is not allowed; "),
        ("algorithm", {"learning_rate": 1e39}, "algorithm.learning_rate: 1e+39 is not allowed; it must be <= 1000"),
        ("algorithm", {"schedule": {"name": "constant", "value": float("nan")}}, "algorithm.schedule.value: nan is"),
        ("algorithm", {"schedule": {"name": "constant", "value": -1}}, "algorithm.schedule.value: -1 is not allowed; "),
        ("algorithm", {"entropy_coef": {"name": "constant", "value": True}}, "algorithm.entropy_coef.value: true is"),
        ("env", {"name": "a", "pool_fraction": 0}, "env.pool_fraction: 0 is not allowed; it must be > 0"),
        ("env", {"name": "a", "num_envs": 0}, "env.num_envs: 0 is not allowed; it must be >= 1"),
        ("env", {"name": "a", "episode_length": 0}, "env.episode_length: 0 is not allowed; it must be >= 1"),
        ("env", {"name": "a", "groups": {"actor": []}}, "env.groups.actor: [] is not allowed; it must be not empty"),
        ("runner", {"num_eval_envs": 0}, "runner.num_eval_envs: 0 is not allowed; it must be >= 1"),
        ("runner", {"eval_interval": -1}, "runner.eval_interval: -1 is not allowed; it must be >= 0"),
        ("seed", 2**32, "seed: 4294967296 is not allowed; it must be < 4294967296"),
        # types
        ("algorithm", {"learning_rate": "abc"}, "algorithm.learning_rate: 'abc' is not allowed; it must be a number"),
        ("algorithm", {"gamma": True}, "algorithm.gamma: true is not allowed; it must be a number"),
        ("algorithm", {"gamma": None}, "algorithm.gamma: null is not allowed; it must be a number"),
        ("algorithm", {"num_mini_batches": True}, "algorithm.num_mini_batches: true is not allowed; it must be an int"),
        ("algorithm", {"num_mini_batches": 2.5}, "algorithm.num_mini_batches: 2.5 is not allowed; it must be an int"),
        ("algorithm", {"num_mini_batches": "2.5"}, "algorithm.num_mini_batches: 2.5 is not allowed; it must be an in"),
        ("algorithm", {"use_clipped_value_loss": 1}, "algorithm.use_clipped_value_loss: 1 is not allowed; it must be"),
        ("algorithm", {"use_clipped_value_loss": "true"}, "algorithm.use_clipped_value_loss: 'true' is not allowed"),
        ("algorithm", {"clip_min_std": "x"}, "algorithm.clip_min_std: 'x' is not allowed; it must be a number or a l"),
        ("algorithm", {"value_loss_coef": True}, "algorithm.value_loss_coef: true is not allowed; it must be a number"),
        ("policy", {"actor_hidden_dims": 8}, "policy.actor_hidden_dims: 8 is not allowed; it must be a list"),
        ("policy", {"actor_hidden_dims": [8, True]}, "policy.actor_hidden_dims.1: true is not allowed; it must be an "),
        ("env", {"name": 3}, "env.name: 3 is not allowed; it must be a string"),
        ("env", {"name": "a", "kwargs": [1]}, "env.kwargs: [1] is not allowed; it must be a mapping"),
        ("env", {"name": "a", "kwargs": {"x": [{1: 2}]}}, "env.kwargs: {'x': [{1: 2}]} is not allowed; it must hold"),
        ("env", {"name": "a", "kwargs": {"x": b"y"}}, "env.kwargs: {'x': b'y'} is not allowed; it must hold nothing"),
        ("algorithm", {"num_learning_epochs": 1e30}, "algorithm.num_learning_epochs: 10000000000000000198846248386"),
        ("algorithm", {"num_mini_batches": 2**31}, "algorithm.num_mini_batches: 2147483648 is not allowed; it must be"),
        ("algorithm", {"learning_rate": 1e30}, "algorithm.learning_rate: 1e+30 is not allowed; it must be <= 1000"),
        ("policy", [1], "policy: [1] is not allowed; it must be a mapping"),
        ("seed", "x", "seed: 'x' is not allowed; it must be an integer"),
        ("seed", -1, "seed: -1 is not allowed; it must be >= 0"),
        # names
        (
            "algorithm",
            {"optimizer_class_name": "adam"},
            f"algorithm.optimizer_class_name: 'adam' is not allowed; it must be one of {OPTIMIZERS}; nearest is Adam",
        ),
        (
            "algorithm",
            {"schedule": "adaptiv"},
            "algorithm.schedule: 'adaptiv' is not allowed; it must be one of fixed, adaptive or a mapping; nearest is "
            "adaptive",
        ),
        (
            "policy",
            {"activation": "rellu"},
            f"policy.activation: 'rellu' is not allowed; it must be one of {ACTIVATIONS}; nearest is relu",
        ),
        ("policy", {"mu_activation": "tan"}, "policy.mu_activation: 'tan' is not allowed; it must be one of elu, "),
        ("policy", {"initialization": "torsch"}, "policy.initialization: 'torsch' is not allowed; it must be one of"),
        (
            "runner",
            {"logger": ["none", "wand"]},
            "runner.logger.1: 'wand' is not allowed; it must be one of tensorboard, wandb, none or an import path "
            "pkg.mod:Class; nearest is wandb",
        ),
        ("runner", {"logger": "neptune"}, "runner.logger: 'neptune' is not allowed; it must be one of tensorboard, "),
        ("runner_class_name", "OnPolicyRuner", "runner.runner_class_name: 'OnPolicyRuner' is not allowed; it must be"),
        ("policy_class_name", "ActorCritc", "runner.policy_class_name: 'ActorCritc' is not allowed; it must be one of"),
        ("algorithm_class_name", "PPPO", "runner.algorithm_class_name: 'PPPO' is not allowed; it must be one of PPO"),
        ("compat", "strl", "compat: 'strl' is not allowed; it must be one of default, st_rl or a mapping; nearest is "),
        ("compat", {"linear": True}, "compat.linear: unknown key; nearest is linear_std"),
        # schedules
        (
            "algorithm",
            {"schedule": {"name": "cosine", "init_value": 1}},
            "algorithm.schedule.name: 'cosine' is not allowed; it must be one of constant, linear, polynomial, "
            "cosine_decay, exponential_decay, warmup_cosine_decay, piecewise_constant; nearest is cosine_decay",
        ),
        (
            "algorithm",
            {"entropy_coef": {"name": "constant", "value": "high"}},
            "algorithm.entropy_coef.value: 'high' is not allowed; it must be a number",
        ),
        (
            "algorithm",
            {"entropy_coef": {"name": "linear", "init_value": 1, "end_value": 0, "transition_steps": 9, "init": 1}},
            "algorithm.entropy_coef.init: unknown key; linear takes init_value, end_value, transition_steps, "
            "transition_begin; nearest is init_value",
        ),
        (
            "algorithm",
            {"schedule": {"name": "piecewise_constant", "init_value": 1, "boundaries_and_scales": [1]}},
            "algorithm.schedule.boundaries_and_scales: [1] is not allowed; it must be a mapping of iterations from",
        ),
        (
            "algorithm",
            {"schedule": {"name": "linear", "init_value": 1, "end_value": 0}},
            "algorithm.schedule.transition_steps: it is missing; it must be an integer from 1 to 1000000000",
        ),
        (
            "algorithm",
            {"schedule": {"name": "linear", "init_value": 1, "end_value": 0, "transition_steps": 0}},
            "algorithm.schedule.transition_steps: 0 is not allowed; it must be an integer from 1 to 1000000000",
        ),
        (
            "algorithm",
            {"rnd_cfg": {"weight": {"name": "constant", "value": 1e300}}},
            "algorithm.rnd_cfg.weight.value: 1e+300 is not allowed; it must be a number from -1e+30 to 1e+30",
        ),
        (
            "algorithm",
            {"schedule": {"name": "constant", "value": 1e4}},
            "algorithm.schedule.value: 10000.0 is not allowed; it must be a number from 0 to 1000",
        ),
        ("algorithm", {"schedule": {"name": "constant", "value": None}}, "algorithm.schedule.value: null is not allow"),
        ("algorithm", {"schedule": {"value": 1}}, "algorithm.schedule.name: it is missing; it must be one of constant"),
        ("algorithm", {"entropy_coef": 1e300}, "algorithm.entropy_coef: 1e+300 is not allowed; it must be <= 1e+30 or"),
        ("algorithm", {"schedule": {"name": ["linear"]}}, "algorithm.schedule.name: ['linear'] is not allowed; it"),
    ],
)  # fmt: skip
def test_one_line_for_a_fault(section, values, expected):
    found = message({section: values})
    assert found.startswith(expected)
    assert "\n" not in found
    assert len(found) < 600


def test_limits_stand_as_people_write_them():
    assert message({"algorithm": {"gamma": 1.5}}) == "algorithm.gamma: 1.5 is not allowed; it must be <= 1"


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
    assert message(data) == (
        "algorithm.num_mini_batches: 5 does not divide the 12 samples of an iteration "
        "(num_steps_per_env 3 x num_envs 4); up to 64 these do: 1, 2, 3, 4, 6, 12"
    )
    assert from_dict({**data, "compat": "st_rl"})[0].algorithm.num_mini_batches == 5


def test_minibatches_cannot_be_more_than_the_samples():
    data = {"env": {**ENV, "num_envs": 2}, "runner": {"num_steps_per_env": 3}, "algorithm": {"num_mini_batches": 7}}
    assert message({**data, "compat": "st_rl"}).startswith("algorithm.num_mini_batches: 7 is more than the 6 samples")


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
        ("just words", "this is a text"),
        ("3", "this is a number"),
        ("2026-03-01", "this is a single value"),
        ("env:\n  name: a\nseed: [1,\n", ", line 4: not valid YAML: expected the node content, but found"),
        ("env:\n  name: a\n  num_envs: 1\n  name: b\n", ", line 4: not valid YAML: key 'name' stands twice"),
        ("seed: 1\n---\nseed: 2\n", ", line 2: not valid YAML: but found another document"),
        ("seed: !!python/object:os.system 1\n", ", line 1: not valid YAML: could not determine a constructor"),
        ("seed: 1\nname: \x07\n", ", line 2: not valid YAML: special characters are not allowed"),
        ("seed: 2020-13-45\n", ": not valid YAML: month must be in 1..12"),
        ("seed: &a [*a]\n", ": not valid YAML: maximum recursion depth exceeded"),
        ('runner: {log_root: ["a\\0b"]}\n', ": a text in it has a null character, which no name or path may have"),
        ('"a\\0b": 1\n', ": a text in it has a null character, which no name or path may have"),
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
        ("seed={a: 1, a: 2}", "override 'seed={a: 1, a: 2}', line 1: not valid YAML: key 'a' stands twice"),
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
    expected = "override 'algorithm.num_mini_batches=7': algorithm.num_mini_batches: 7 does not divide the 96 samples"
    assert str(caught.value).startswith(expected)
