"""Mutex policies over run folders: they act as their sub-policies do, are not trained, and say what a folder lacks."""

import math
import shutil
from collections import OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from course import ENVS, LIN_VEL, SHAPES, UNITS, Course, saved, write_json
from tiny import normal
from torch_writer import save

from strl_jax import train
from strl_jax.builders.mutex import make_mutex
from strl_jax.config import ConfigError, from_dict
from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.sharding import make_mesh

ONE = make_mesh(jax.devices()[:1])
ACTOR = ["proprioception", "height"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A feed-forward run with one action scale, and a recurrent one with one for each action."""
    folder = tmp_path_factory.mktemp("runs")
    gru = {"rnn_type": "gru", "rnn_hidden_size": 3}
    made = [
        saved(folder / "plain", Course(action_scale=0.25), "ActorCritic", 1),
        saved(folder / "recurrent", Course(action_scale=(0.5, 0.125)), "ActorCriticRecurrent", 2, **gru),
    ]
    yield made
    for runner in made:
        runner.close()


def mutex_config(paths, class_name="ActorCriticMutex", env=None, algorithm=None, **policy) -> dict:
    return {
        "env": {"name": "course:Course", "num_envs": 4, "groups": {"actor": ACTOR}, **(env or {})},
        "policy": {
            "class_name": class_name,
            "sub_policy_paths": [str(path) for path in paths],
            "env_action_scale": 0.5,
            **policy,
        },
        "algorithm": algorithm or {},
        "runner": {"num_eval_envs": 4, "logger": "none"},
    }


@pytest.fixture(scope="module")
def mutex(runs, tmp_path_factory):
    runner = OnPolicyRunner(Course(), mutex_config([run.log_dir for run in runs]), None, mesh=ONE)
    yield runner
    runner.close()


def observe(seed: int) -> dict:
    return {name: normal(seed, i, (ENVS, *SHAPES[name])) for i, name in enumerate(ACTOR)}


def test_it_acts_as_the_selected_sub_policy(runs, mutex):
    own, act = [run.get_inference_policy() for run in runs], mutex.get_inference_policy()
    scales = np.array([[0.25, 0.25], [0.5, 0.125]])
    picks = np.array([[0, 1, 1], [0, 1, 1], [1, 1, 0], [1, 1, 1]])  # of each step, for each environment
    dones = np.array([[0, 0, 1], [0, 1, 0], [0, 0, 0], [0, 0, 0]], bool)
    for step, (pick, done) in enumerate(zip(picks, dones, strict=True)):
        obs = observe(step)
        actions = act(obs | {"selection": jnp.eye(2)[pick]})
        # Its last actions in its own units: x 0.5 / scale; what it does in the environment's: x scale / 0.5.
        last = obs["proprioception"][:, 10:] * 0.5 / scales[pick]
        seen = obs | {"proprioception": obs["proprioception"].at[:, 10:].set(last)}
        means = np.stack([policy(seen) for policy in own])
        expected = means[pick, np.arange(ENVS)] * scales[pick] / 0.5
        np.testing.assert_allclose(actions, expected, rtol=1e-5, atol=1e-6, err_msg=f"step {step}")
        assert np.abs(means[0] - means[1]).max() > 1e-2
        act.reset(done)
        own[1].reset(done | (pick != 1))  # reset_non_selected is "all"


@pytest.mark.parametrize(("said", "expected"), [(None, (0.5, 0.25)), (0.125, 0.125)])
def test_the_action_scale_is_the_environments_unless_told(runs, said, expected):
    config, _ = from_dict(mutex_config([run.log_dir for run in runs], env_action_scale=said))
    assert make_mutex(config, Course(action_scale=(0.5, 0.25))).policy.env_action_scale == expected


def test_statistics_of_the_run_are_used(runs, mutex):
    moments = mutex.algorithm.variables["normalizers"]["submodules_0"]
    stats = runs[0].train_state.stats["actor"]
    for name, where in (("proprioception", slice(0, 12)), ("height", slice(12, 14))):
        np.testing.assert_array_equal(moments["mean"][where], stats[name].mean)
        np.testing.assert_allclose(moments["std"][where], np.sqrt(stats[name].var) + 0.25, rtol=1e-6)


def test_evaluation(runs, mutex):
    values = mutex.evaluation()
    assert all(math.isfinite(value) for value in values.values())
    assert values["Eval/mean_length"] == 2.0
    # Two steps of the same observation: all ones, and the last actions 1 x 0.5 / 0.25 = 2; the action is x 0.25 / 0.5.
    obs = {"proprioception": jnp.ones((1, 12)).at[:, 10:].set(2.0), "height": jnp.ones((1, 2))}
    action = float(runs[0].get_inference_policy()(obs)[0, 0]) * 0.5
    assert abs(action) > 1e-2
    assert values["Eval/mean_return"] == pytest.approx(2 * action, rel=1e-5)


def test_it_is_not_trained(runs, mutex, tmp_path, capsys):
    expected = (
        "runner.algorithm_class_name: PPO is not allowed with the policy class ActorCriticMutex, "
        "whose sub-policies are trained already; this class can only act, be evaluated and teach"
    )
    with pytest.raises(ConfigError) as caught:
        mutex.learn(1)
    assert str(caught.value) == expected
    settings = mutex_config([run.log_dir for run in runs])
    settings["runner"]["log_root"] = str(tmp_path / "logs")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings))
    assert train.main(["--config", str(tmp_path / "config.yaml")]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"error: {expected}\n")
    assert not (tmp_path / "logs").exists()


def test_a_sub_policy_with_an_estimator_from_torch(tmp_path):
    """Its estimate takes the place of the height; the critic's components are this environment's."""
    folder = tmp_path / "torch"
    folder.mkdir()
    estimator = {
        "estimator_obs_components": ["proprioception"],
        "estimator_target_components": ["height"],
        "estimator_kwargs": {"hidden_sizes": [1], "nonlinearity": "ReLU"},
        "replace_state_prob": 1.0,
    }
    policy = {"class_name": "StateAc", "actor_hidden_dims": [], "critic_hidden_dims": []} | estimator
    write_json(folder, {"policy": policy, "control": {"action_scale": 0.5}, **LIN_VEL})
    # Estimates are relu(entry 0) x (2, 3); the actions read the two heights.
    actor, first = np.zeros((2, 14), np.float32), np.zeros((1, 12), np.float32)
    actor[0, 12] = actor[1, 13] = first[0, 0] = 1.0
    weights = {
        "std": np.ones(2),
        "actor.0.weight": actor,
        "actor.0.bias": np.zeros(2),
        "critic.0.weight": np.zeros((1, 14)),
        "critic.0.bias": np.zeros(1),
        "state_estimator.model.0.weight": first,
        "state_estimator.model.0.bias": np.zeros(1),
        "state_estimator.model.2.weight": np.array([[2.0], [3.0]]),
        "state_estimator.model.2.bias": np.zeros(2),
    }
    weights = OrderedDict((name, value.astype(np.float32)) for name, value in weights.items())
    save(folder / "model_0.pt", {"model_state_dict": weights, "iter": 0, "infos": None})
    groups = {"groups": {"actor": ACTOR, "critic": ACTOR}}
    shapes = {**SHAPES, "selection": (1,)}
    runner = OnPolicyRunner(Course(tuple(shapes.items())), mutex_config([folder], env=groups), None, mesh=ONE)
    obs = {name: jnp.full((1, *shape), 5.0) for name, shape in shapes.items()} | {"selection": jnp.ones((1, 1))}
    np.testing.assert_allclose(runner.get_inference_policy()(obs), [[10.0, 15.0]])
    runner.close()


CONTROL = "config.json: control.action_scale"
VELOCITY = "config.json: normalization.obs_scales.lin_vel"


def line(config: dict, env: Course | None = None) -> str:
    """The line of the ``ConfigError`` that a mutex config ends with."""
    with pytest.raises(ConfigError) as caught:
        make_mutex(from_dict(config)[0], Course() if env is None else env)
    assert len(caught.value.lines) == 1, caught.value.lines
    return str(caught.value)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ("[1,", "config.json: not valid JSON: Expecting value: line 1 column 4 (char 3)"),
        ([1], "config.json: it must hold a JSON object"),
        (UNITS, "config.json: policy: it is missing and has no default"),
        (UNITS | {"policy": "ActorCritic"}, "config.json: policy: 'ActorCritic' is not allowed; it must be a mapping"),
        ({"policy": {}, **LIN_VEL}, "config.json: control: it is missing and has no default"),
        ({"policy": {}, **LIN_VEL, "control": 0.5}, "config.json: control: 0.5 is not allowed; it must be a mapping"),
        (
            {"policy": {}, **LIN_VEL, "control": {"action_scale": []}},
            CONTROL + ": [] is not allowed; it must be a number or a list that is not empty",
        ),
        (
            {"policy": {}, **LIN_VEL, "control": {"action_scale": 0}},
            CONTROL + ": 0 is not allowed; it must be >= 1e-06 or a list",
        ),
        (
            {"policy": {}, **LIN_VEL, "control": {"action_scale": [0.5, 1e-40]}},
            CONTROL + ".1: 1e-40 is not allowed; it must be >= 1e-06",
        ),
        (
            {"policy": {}, **LIN_VEL, "control": {"action_scale": [0.5, "0.5"]}},
            CONTROL + ".1: '0.5' is not allowed; it must be a number",
        ),
        (
            {"policy": {}, **LIN_VEL, "control": {"action_scale": True}},
            CONTROL + ": true is not allowed; it must be a number or a list",
        ),
        (
            {"policy": {}, **LIN_VEL, "control": {"action_scale": math.nan}},
            CONTROL + ": nan is not allowed; it must be a finite number or a list",
        ),
        (
            {"policy": {}, **LIN_VEL, "control": {"action_scale": math.inf}},
            CONTROL + ": inf is not allowed; it must be a finite number or a list",
        ),
        (
            {"policy": {}, "control": {"action_scale": 0.5}},
            "config.json: normalization: it is missing and has no default",
        ),
        (
            {"policy": {}, **UNITS, "normalization": {"obs_scales": {"lin_vel": [2.0]}}},
            VELOCITY + ": [2.0] is not allowed; it must be a number",
        ),
        ({"policy": {}, **UNITS}, "it has neither checkpoints/ nor a model_*.pt"),
    ],
)
def test_what_a_folder_lacks(found, expected, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    write_json(folder, found)
    (folder / "model_last.pt").touch()  # no number
    assert line(mutex_config([folder])) == f"policy.sub_policy_paths: {folder}: {expected}"


def test_no_folder_and_no_config(tmp_path):
    place = f"policy.sub_policy_paths: {tmp_path}"
    assert line(mutex_config([tmp_path / "run"])) == f"{place}/run: there is no such folder"
    assert line(mutex_config([tmp_path])) == f"{place}: config.json: cannot be read: No such file or directory"
    (tmp_path / "config.json").write_bytes(b"\xff\xfe")
    assert line(mutex_config([tmp_path])).startswith(
        f"{place}: config.json: not valid JSON: 'utf-8' codec can't decode"
    )
    write_json(tmp_path, UNITS | {"policy": {}})
    (tmp_path / "checkpoints").mkdir()
    assert line(mutex_config([tmp_path])) == f"{place}: no last checkpoint; existing checkpoints: none"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({"rnn_type": "gru"}, "policy.rnn_type: unknown key; known are actor_hidden_dims, critic_hidden_dims, activ"),
        ({"class_name": "ActorCritc"}, "runner.policy_class_name: 'ActorCritc' is not allowed; it must be one of Acto"),
        (
            {"class_name": "StateAc", "estimator_obs_components": ["a"], "estimator_target_components": ["height"]},
            "policy.estimator_obs_components: 'a' is not allowed; it must be one of proprioception, height",
        ),
        (
            {"actor_hidden_dims": [2], "critic_hidden_dims": []},
            "actor/layer_1/bias: in the policy only, shape [2]",
        ),
    ],
)
def test_torch_folders_say_whose_config_it_is(policy, expected, tmp_path):
    write_json(tmp_path, UNITS | {"policy": policy})
    shapes = {"std": (2,), "actor.0.weight": (2, 14), "actor.0.bias": (2,), "critic.0.weight": (1, 5)}
    weights = {name: np.ones(shape, np.float32) for name, shape in (shapes | {"critic.0.bias": (1,)}).items()}
    save(tmp_path / "model_0.pt", {"model_state_dict": OrderedDict(weights), "iter": 0, "infos": None})
    with pytest.raises(ConfigError) as caught:
        make_mutex(from_dict(mutex_config([tmp_path]))[0], Course())
    assert caught.value.lines[0].startswith(f"policy.sub_policy_paths: {tmp_path}: {expected}")
    assert all(text.startswith(f"policy.sub_policy_paths: {tmp_path}: ") for text in caught.value.lines)


def test_other_observations(runs):
    paths = [run.log_dir for run in runs]
    swapped = line(mutex_config(paths, env={"groups": {"actor": ["height", "proprioception"]}}))
    assert swapped == (
        f"policy.sub_policy_paths: {paths[0]}: its actor observes proprioception (12,), height (2,); "
        "all sub-policies must observe height (2,), proprioception (12,)"
    )
    shapes = SHAPES | {"height": (5,)}
    assert line(mutex_config(paths), Course(tuple(shapes.items()))) == (
        f"policy.sub_policy_paths: {paths[0]}: its actor observes proprioception (12,), height (2,); "
        "all sub-policies must observe proprioception (12,), height (5,)"
    )


def test_what_does_not_fit_together(runs):
    paths = [run.log_dir for run in runs]
    assert line(mutex_config(paths), Course(action_size=3)) == ("policy: sub-policy 0 has 2 actions, all must have 3")
    assert line(mutex_config(paths, "ActorCriticFieldMutex")) == (
        "policy: field needs exactly 5 sub-policies (one for each obstacle id), not 2"
    )
    assert line(mutex_config(paths, env_action_scale=[0.5, 0.5, 0.5])) == (
        "policy.env_action_scale: [0.5, 0.5, 0.5] is not allowed; it must be a number, or one for each of 2 actions"
    )
    assert line(mutex_config([paths[0]] * 5, "ActorCriticFieldMutex", cmd_vel_mapping={"7": 1.0})) == (
        "policy: cmd_vel_mapping: 7 is not allowed; it may list the sub-policies 0 to 4, each once"
    )
    assert line(mutex_config([paths[0]] * 5, "ActorCriticFieldMutex")) == (
        "policy: field needs the component 'engaging_block'; the group has proprioception, height"
    )


def test_the_component_selection(runs):
    paths = [run.log_dir for run in runs]
    without = Course(tuple((name, shape) for name, shape in SHAPES.items() if name != "selection"))
    assert line(mutex_config(paths), without) == (
        "policy: ActorCriticMutex needs the component selection of the environment; it has none"
    )
    assert line(mutex_config(paths[:1])) == (
        "policy: component selection has shape (2,); it must be (1,), one column for each sub-policy"
    )


def test_observations_are_normalised_by_the_sub_policies_alone(runs):
    config = mutex_config([run.log_dir for run in runs], algorithm={"empirical_normalization": True})
    assert line(config) == (
        "algorithm.empirical_normalization: true is not allowed with the policy class ActorCriticMutex; "
        "each sub-policy has the statistics of its own run"
    )


def test_a_damaged_run(runs, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(runs[0].log_dir, run)
    part = run / "checkpoints" / "last" / "0" / "train"
    for file in [path for path in part.rglob("*") if path.is_file() and path.name != "manifest.ocdbt"]:
        file.write_bytes(b"")
    place = f"policy.sub_policy_paths: {run}: checkpoints/last/0"
    assert line(mutex_config([run])).startswith(f"{place}/train: damaged: ")
    shutil.rmtree(part)
    assert line(mutex_config([run])) == f"{place}: damaged: train/manifest.ocdbt is missing"
