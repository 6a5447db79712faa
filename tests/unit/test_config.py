"""The config: names and defaults, what it accepts, what it gives back."""

import json
import subprocess
import sys
from typing import Annotated

import pytest
import yaml
from pydantic import BaseModel, Field, ValidationError

from strl_jax import config as config_module
from strl_jax.algorithms.compat import Compat
from strl_jax.algorithms.schedules import Schedule
from strl_jax.config import Config, from_dict, json_schema, load, to_dict, to_yaml
from strl_jax.config.policy import FIELDS, policy_config
from strl_jax.config.sections import ALGORITHMS, any_config
from strl_jax.envs.legged.config import LeggedConfig

MINIMAL = {"env": {"name": "probe:constant"}}

# st_rl: PPO.__init__(self, actor_critic, ...)
REFERENCE = [
    ("num_learning_epochs", 1),
    ("num_mini_batches", 1),
    ("clip_param", 0.2),
    ("gamma", 0.998),
    ("lam", 0.95),
    ("value_loss_coef", 1.0),
    ("entropy_coef", 0.0),
    ("learning_rate", 1e-3),
    ("max_grad_norm", 1.0),
    ("use_clipped_value_loss", True),
    ("clip_min_std", 1e-15),
    ("optimizer_class_name", "Adam"),
    ("schedule", "fixed"),
    ("desired_kl", 0.01),
    ("empirical_normalization", False),
]


def make(**sections) -> Config:
    """A config that must give no warning."""
    config, warnings = from_dict({**MINIMAL, **sections})
    assert warnings == []
    return config


def write(tmp_path, text: str):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return path


def test_ppo_has_the_reference_names_and_defaults():
    config = make().algorithm
    values = [(name, getattr(config, name)) for name, _ in REFERENCE]
    assert values == REFERENCE
    assert [type(value) for _, value in values] == [type(value) for _, value in REFERENCE]
    assert make(algorithm=dict(REFERENCE)).algorithm == config


def test_sections_have_their_defaults():
    config = make()
    assert config.seed == 1
    assert config.env.num_envs == 4096
    assert config.env.episode_length is None
    assert config.env.groups.actor is None
    assert config.policy.actor_hidden_dims == (256, 256, 256)
    assert config.policy.activation == "elu"
    assert config.runner.num_steps_per_env == 24
    assert config.runner.max_iterations == 1500
    assert config.runner.save_interval == 50
    assert config.runner.logger == "tensorboard"


def test_the_config_is_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        make().runner.max_iterations = 3


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("default", Compat()),
        ("st_rl", Compat.st_rl()),
        ({"linear_std": True, "kl_log_eps": "1e-5"}, Compat(linear_std=True, kl_log_eps=1e-5)),
    ],
)
def test_compat_resolves(given, expected):
    assert make(compat=given).resolved_compat == expected


@pytest.mark.parametrize(
    ("section", "key", "given", "expected"),
    [
        ("algorithm", "learning_rate", "1e-3", 0.001),
        ("algorithm", "learning_rate", "3.e-4", 0.0003),
        ("algorithm", "gamma", 1, 1.0),
        ("algorithm", "clip_min_std", ["1e-3", 0.5], (0.001, 0.5)),
        ("algorithm", "clip_min_std", "1e-3", 0.001),
        ("algorithm", "num_mini_batches", "4", 4),
        ("algorithm", "entropy_coef", "1e-2", 0.01),
        ("policy", "actor_hidden_dims", [32, "16"], (32, 16)),
        ("policy", "critic_hidden_dims", [], ()),
        ("runner", "max_env_steps", "1e9", 1_000_000_000),
        ("runner", "max_iterations", 1e4, 10_000),
        ("runner", "logger", ["wandb", "my.tracker:Writer"], ("wandb", "my.tracker:Writer")),
        ("runner", "run_name", "1e-3", "1e-3"),
    ],
)
def test_values_take_the_type_of_their_field(section, key, given, expected):
    value = getattr(getattr(make(**{section: {key: given}}), section), key)
    assert value == expected
    assert type(value) is type(expected)


def test_numbers_inside_a_schedule_are_numbers():
    given = {"name": "piecewise_constant", "init_value": "1e-3", "boundaries_and_scales": {"100": "0.5", 200: 1}}
    expected = {"name": "piecewise_constant", "init_value": 0.001, "boundaries_and_scales": {100: 0.5, 200: 1}}
    assert to_dict(make(algorithm={"schedule": given}))["algorithm"]["schedule"] == expected


def test_arguments_of_the_environment_keep_their_types():
    kwargs = {"label": "1e-3", "flag": True, "nested": {"list": [1, "2", None]}}
    assert make(env={"name": "probe:constant", "kwargs": kwargs}).env.kwargs == kwargs


EVERYTHING = {
    "seed": 7,
    "compat": {"linear_std": True},
    "env": {"name": "a.b:c", "num_envs": 8, "kwargs": {"x": [1, {"y": 2}]}, "groups": {"actor": ["b", "a"]}},
    "policy": {"actor_hidden_dims": [8, 4], "mu_activation": "tanh"},
    "algorithm": {"clip_min_std": [0.1, 1e-15], "schedule": {"name": "linear", "init_value": 1e-3, "end_value": 0.0,
                                                             "transition_steps": 10}},
    "runner": {"logger": ["tensorboard", "wandb"], "git_repos": ["."], "max_env_steps": 5},
}  # fmt: skip


@pytest.mark.parametrize("data", [MINIMAL, EVERYTHING], ids=["defaults", "everything"])
def test_dict_json_and_yaml_give_the_config_back(data, tmp_path):
    config = from_dict(data)[0]
    assert from_dict(to_dict(config)) == (config, [])
    assert from_dict(json.loads(json.dumps(to_dict(config)))) == (config, [])
    assert from_dict(yaml.safe_load(to_yaml(config))) == (config, [])
    assert load(write(tmp_path, to_yaml(config))) == (config, [])


def test_json_keeps_the_steps_of_a_piecewise_schedule():
    schedule = {"name": "piecewise_constant", "init_value": 1.0, "boundaries_and_scales": {100: 0.5}}
    config = make(algorithm={"entropy_coef": schedule})
    assert from_dict(json.loads(json.dumps(to_dict(config))))[0] == config


def test_from_dict_leaves_its_argument():
    data = {"env": {"name": "a.b:c", "kwargs": {"x": [1]}}, "device": "cpu", "policy": {"class_name": "ActorCritic"}}
    before = json.dumps(data)
    config, _ = from_dict(data)
    config.env.kwargs["x"].append(2)
    assert json.dumps(data) == before


def test_a_file_with_overrides(tmp_path):
    path = write(tmp_path, "seed: 2\nenv: {name: 'probe:constant'}\nalgorithm:\n  learning_rate: 1e-3\nrunner:\n")
    config, warnings = load(
        path,
        [
            "seed=7",
            "algorithm.learning_rate=3e-4",
            "policy.actor_hidden_dims=[8, 8]",
            "env.kwargs.depth.x=1e-3",
            "algorithm.schedule={name: constant, value: 1e-3}",
            "num_steps_per_env=3",
            "env.name=brax:ant:mjx",
            "seed=8",
        ],
    )
    assert warnings == []
    assert config.seed == 8
    assert config.algorithm.learning_rate == 3e-4
    assert config.policy.actor_hidden_dims == (8, 8)
    assert config.env.kwargs == {"depth": {"x": 1e-3}}
    assert config.algorithm.schedule.value == 1e-3
    assert config.runner.num_steps_per_env == 3
    assert config.env.name == "brax:ant:mjx"


def test_an_override_does_not_reach_through_an_alias(tmp_path):
    text = "env: {name: 'probe:constant', kwargs: {a: &x {n: 1}, b: *x}}"
    assert load(write(tmp_path, text), ["env.kwargs.a.n=2"])[0].env.kwargs == {"a": {"n": 2}, "b": {"n": 1}}


def test_yaml_merge_keys_may_be_overwritten(tmp_path):
    text = "env: {name: 'probe:constant', kwargs: {a: &x {n: 1, m: 2}, b: {<<: *x, n: 3}}}"
    assert load(write(tmp_path, text))[0].env.kwargs["b"] == {"n": 3, "m": 2}


def properties(schema: dict) -> list[tuple[str, dict]]:
    models = [schema, *schema["$defs"].values()]
    return [(f"{model['title']}.{name}", entry) for model in models for name, entry in model["properties"].items()]


def test_schema_describes_every_key_and_forbids_others():
    schema = json_schema()
    classes = {policy_config(name).__name__ for name in FIELDS} | {kind.__name__ for kind in ALGORITHMS.values()}
    parts = {schedule.__name__ for schedule in Schedule.__subclasses__()} | {
        "RNDConfig",
        "WeightSchedule",
        "MlpKwargs",
        "EncoderKwargs",
        "DiscriminatorConfig",
        "EnvConfig",
        "GroupsConfig",
        "RunnerConfig",
        "Compat",
    }
    assert {*schema["$defs"]} == classes | parts
    for model in (schema, *schema["$defs"].values()):
        assert model["additionalProperties"] is False
    assert [name for name, entry in properties(schema) if len(entry.get("description", "")) < 10] == []
    assert schema["required"] == ["env"]
    assert schema["$defs"]["EnvConfig"]["required"] == ["name"]


def models(root: type[BaseModel]) -> dict[str, dict]:
    """Schemas of a model and of all models in it."""
    schema = root.model_json_schema()
    return {**schema.pop("$defs", {}), schema["title"]: schema}


def unbounded(schema, where: str = "") -> list[str]:
    """Where in a schema a number has no least or no greatest value."""
    if isinstance(schema, list):
        return [found for i, part in enumerate(schema) for found in unbounded(part, f"{where}/{i}")]
    if not isinstance(schema, dict):
        return []
    found = [found for key, part in schema.items() for found in unbounded(part, f"{where}/{key}")]
    number = schema.get("type") in ("number", "integer")
    ends = {"minimum", "exclusiveMinimum"} & schema.keys(), {"maximum", "exclusiveMaximum"} & schema.keys()
    return [*found, where] if number and not all(ends) else found


@pytest.mark.parametrize(("name", "schema"), (models(any_config()) | models(LeggedConfig)).items())
def test_every_number_has_bounds(name, schema):
    # A budget is compared on the host, with integers of any size; one beyond all steps is none.
    assert unbounded(schema) == (["/properties/max_env_steps/anyOf/0"] if name == "RunnerConfig" else [])


def test_numbers_without_bounds_are_seen():
    class Inner(BaseModel):
        low: float = Field(ge=0)
        some: dict[str, int] | None
        three: tuple[Annotated[float, Field(gt=0, lt=1)], float, bool]
        fine: int = Field(ge=0, le=1)

    class Outer(BaseModel):
        inner: Inner

    assert {name: unbounded(schema) for name, schema in models(Outer).items()} == {
        "Inner": [
            "/properties/low",
            "/properties/some/anyOf/0/additionalProperties",
            "/properties/three/prefixItems/1",
        ],
        "Outer": [],
    }


def test_schema_offers_the_choices():
    found = dict(properties(json_schema()))
    assert "elu" in found["PolicyConfig.activation"]["enum"]
    assert found["PPOConfig.gamma"]["default"] == 0.998
    assert found["PPOConfig.gamma"]["description"] == "discount factor, and lambda of GAE."
    assert found["PPOConfig.optimizer_class_name"]["enum"][0] == "Adam"


def test_reading_a_config_starts_no_backend():
    """jax.distributed must be able to start after it."""
    schedules = [
        {"name": "constant", "value": 1.0},
        {"name": "linear", "init_value": 1.0, "end_value": 0.0, "transition_steps": 5},
        {"name": "polynomial", "init_value": 1.0, "end_value": 0.0, "power": 2, "transition_steps": 5},
        {"name": "cosine_decay", "init_value": 1.0, "decay_steps": 5},
        {"name": "exponential_decay", "init_value": 1.0, "transition_steps": 5, "decay_rate": 0.5, "staircase": True},
        {"name": "warmup_cosine_decay", "init_value": 0.0, "peak_value": 1.0, "warmup_steps": 2, "decay_steps": 5},
        {"name": "piecewise_constant", "init_value": 1.0, "boundaries_and_scales": {2: 0.5}},
    ]
    program = (
        "import sys, json, jax\n"
        "from strl_jax import config\n"
        "for schedule in json.loads(sys.argv[1]):\n"
        "    config.from_dict({'env': {'name': 'probe:constant'}, 'algorithm': {'schedule': schedule}})\n"
        "jax.config.update('jax_platforms', 'none_of_these')\n"
        "jax.numpy.zeros(1)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, json.dumps(schedules)], capture_output=True, text=True, check=False
    )
    # Only the last line needs a backend, and it finds none: one that ran already would have served it.
    assert result.returncode == 1
    assert "none_of_these" in result.stderr
    assert ", line 6, in <module>" in result.stderr


def test_public_names_exist():
    assert [name for name in config_module.__all__ if not hasattr(config_module, name)] == []
