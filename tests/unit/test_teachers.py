"""Teachers from run folders, torch files and sub-policies: they label as they act, and say what does not fit."""

import json
import shutil
from collections import OrderedDict
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import settings, write
from course import ACTIONS, SHAPES, UNITS, Course, numbers, write_json
from course import saved as saved_run
from golden.files import FOLDER, Golden
from tiny import make_state, normal
from torch_writer import save

from strl_jax import train
from strl_jax.builders.algorithm import assemble
from strl_jax.builders.teacher import load_teacher
from strl_jax.config import ConfigError, from_dict, to_yaml
from strl_jax.interop import torch_checkpoint
from strl_jax.run_folder import run_dir
from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.sharding import make_mesh

ONE = make_mesh(jax.devices()[:1])
ENVS, STEPS = 3, 4
KEY = "algorithm.teacher_policy.teacher_ac_path"
ESTIMATOR = {
    "estimator_obs_components": ["proprioception"],
    "estimator_target_components": ["height"],
    "estimator_kwargs": {"hidden_sizes": [3]},
    "replace_state_prob": 1.0,
}
ENCODER = {"encoder_component_names": ["height"], "encoder_kwargs": {"hidden_sizes": [3]}, "encoder_output_size": 2}
GRU = {"rnn_type": "gru", "rnn_hidden_size": 3}
SOURCES = {
    "plain": ("ActorCritic", {}, True),
    "not normalised": ("ActorCritic", {}, False),
    "recurrent": ("ActorCriticRecurrent", GRU, True),
    "encoder": ("EncoderActorCriticRecurrent", GRU | ENCODER, True),
    "estimator": ("StateAcRecurrent", GRU | ESTIMATOR, True),
}


def source(path, name="ActorCritic", normalised=True, kinds=("last",), env=None, seed=1, **policy) -> OnPolicyRunner:
    """A run folder whose actor sees height and proprioception, with other weights for each kind; its last state."""
    env = Course() if env is None else env
    values = {
        "env": {
            "name": "course:Course",
            "num_envs": ENVS,
            "groups": {"actor": ["height", "proprioception"]},
        },
        "policy": {"class_name": name, "actor_hidden_dims": [4], "critic_hidden_dims": [4], **policy},
        "algorithm": {"empirical_normalization": normalised, "normalization_eps": 0.25},
        "runner": {"logger": "none"},
    }
    config, _ = from_dict(values)
    runner = OnPolicyRunner(env, config, run_dir.create(path, config, run_dir.units(env)), mesh=ONE)
    for number, kind in enumerate(kinds):
        runner.train_state = make_state(runner.algorithm, seed + number)
        if normalised:
            stats = {
                group: {part: numbers(seed + number, shape) for part, shape in zip(own.names, own.shapes, strict=True)}
                for group, own in runner.algorithm.groups.items()
            }
            runner.train_state = runner.train_state.replace(stats=stats)
        runner.rollout_state = jnp.zeros(2)  # saved, not read
        runner.save(kind)
    runner.close()
    return runner


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return source(tmp_path_factory.mktemp("plain") / "run")


def student(path, groups=None, compat=None, **algorithm) -> dict:
    """The config of a run that learns from the policy at ``path``."""
    section = algorithm.pop("teacher_policy", {})
    section = section if path is None else {"teacher_ac_path": str(path), **section}
    return {
        "env": {"name": "course:Course", "num_envs": 4, "groups": groups or {}},
        "compat": compat or {},
        "policy": {"actor_hidden_dims": [4], "critic_hidden_dims": [4]},
        "algorithm": {"class_name": "TPPO", "teacher_policy": section, **algorithm},
        "runner": {"logger": "none"},
    }


def loaded(values: dict, env=None):
    return load_teacher(from_dict(values)[0], Course() if env is None else env)


def observe(step: int, shapes=SHAPES) -> dict:
    return {name: normal(step, i, (ENVS, *shape)) for i, (name, shape) in enumerate(shapes.items())}


def labels(teacher, data: dict, observations: list[dict], dones: np.ndarray) -> np.ndarray:
    """Mean actions ``[T, B, A]``; a done clears the memory before the next step."""

    @jax.jit
    def act(data, obs, carry, reset):
        mean, _, carry = teacher.policy.apply(
            data["variables"], teacher.pack({"teacher": data}, obs), carry, reset, method="act"
        )
        return mean, carry

    carry, reset, found = teacher.policy.initial_carry(ENVS), np.ones(ENVS, bool), []
    for obs, done in zip(observations, dones, strict=True):
        mean, carry = act(data, obs, carry, reset)
        found.append(mean)
        reset = done
    return np.stack(found)


def actions(policy, observations: list[dict], dones: np.ndarray) -> np.ndarray:
    found = []
    for obs, done in zip(observations, dones, strict=True):
        found.append(policy(obs))
        policy.reset(done)
    return np.stack(found)


DONES = np.array([[0, 1, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0]], bool)


@pytest.mark.parametrize("name", SOURCES)
def test_it_labels_as_its_run_acts(name, tmp_path):
    class_name, policy, normalised = SOURCES[name]
    runner = source(tmp_path / "run", class_name, normalised, **policy)
    teacher, data = loaded(student(tmp_path / "run"))
    assert teacher.groups["actor"] == runner.algorithm.groups["actor"]  # not the student's order
    assert teacher.eps == 0.25
    observations = [observe(step) for step in range(STEPS)]
    found = labels(teacher, data, observations, DONES)
    np.testing.assert_array_equal(found, actions(runner.get_inference_policy(), observations, DONES))
    assert found.std(axis=0).min() > 1e-3
    assert bool(data["stats"]["actor"]) == normalised


def test_the_best_policy_is_taken_before_the_last(tmp_path):
    runner = source(tmp_path / "run", kinds=("last", "best"))
    _, data = loaded(student(tmp_path / "run"))
    jax.tree.map(np.testing.assert_array_equal, data["variables"], runner.train_state.params["policy"])
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "best")
    _, other = loaded(student(tmp_path / "run"))
    kernels = (found["variables"]["params"]["actor"]["layer_0"]["kernel"] for found in (data, other))
    assert np.abs(np.subtract(*kernels)).max() > 1e-2


def test_components_are_named_anew_one_after_the_other(plain):
    """The teacher's height is this environment's scan, its proprioception is called body here."""
    shapes = {"body": (12,), "scan": (2,), "selection": (2,)}
    teacher, data = loaded(student(plain.log_dir, {"teacher": ["scan", "body"]}), Course(tuple(shapes.items())))
    assert teacher.groups["actor"].names == ("scan", "body")
    observations = [observe(step) for step in range(STEPS)]
    renamed = [{"body": obs["proprioception"], "scan": obs["height"]} for obs in observations]
    expected = actions(plain.get_inference_policy(), observations, DONES)
    np.testing.assert_array_equal(labels(teacher, data, renamed, DONES), expected)


def test_a_section_as_the_torch_library_has_it_says_nothing_new(plain):
    section = {"class_name": "ActorCritic", "num_actor_obs": 14, "num_actions": 2, "actor_hidden_dims": [4]}
    _, data = loaded(student(plain.log_dir, teacher_policy=section))
    jax.tree.map(np.testing.assert_array_equal, data["variables"], plain.train_state.params["policy"])


@pytest.mark.parametrize(
    ("told", "line"),
    [
        (
            {"actor_hidden_dims": [5]},
            "its actor_hidden_dims is [4], but algorithm.teacher_policy.actor_hidden_dims is [5]",
        ),
        (
            {"class_name": "StateAc"},
            "its class_name is 'ActorCritic', but algorithm.teacher_policy.class_name is 'StateAc'",
        ),
    ],
)
def test_a_section_that_is_not_that_of_the_run(plain, told, line):
    assert fault(student(plain.log_dir, teacher_policy=told)).endswith(line)


def test_a_run_that_was_killed_before_its_last_checkpoint_has_numbered_ones(plain, tmp_path):
    path = tmp_path / "killed"
    shutil.copytree(plain.log_dir, path)
    numbered, last = path / "checkpoints" / "numbered", path / "checkpoints" / "last"
    if not numbered.exists():
        shutil.copytree(last, numbered)
    shutil.rmtree(last)
    _, data = loaded(student(path))
    jax.tree.map(np.testing.assert_array_equal, data["variables"], plain.train_state.params["policy"])


def fault(values: dict, env=None) -> str:
    """The one line that loading ends with."""
    with pytest.raises(ConfigError) as caught:
        assemble(from_dict(values)[0], Course() if env is None else env)
    assert len(caught.value.lines) == 1, caught.value.lines
    return str(caught.value)


def course(**shapes) -> Course:
    return Course(tuple((SHAPES | shapes).items()))


def test_what_a_run_does_not_fit(plain):
    path = plain.log_dir
    small = Course((("proprioception", (12,)),))
    assert fault(student(path), small) == (
        f"{KEY}: {path}: it observes 'height', which the environment does not offer; env.groups.teacher must name "
        "components in its place, of proprioception"
    )
    trained_on = f"{KEY}: {path}: it was trained on height (2,), proprioception (12,); "
    assert fault(student(path), course(height=(5,))).startswith(trained_on + "height (5,), proprioception (12,) must ")
    swapped = student(path, {"teacher": ["proprioception", "height"]})
    assert fault(swapped).startswith(trained_on + "proprioception (12,), height (2,) must have the same shapes")
    assert fault(student(path, {"teacher": ["height"]})).startswith(trained_on + "height (2,) must have the same ")
    assert fault(student(path, {"teacher": ["height", "proprio"]})) == (
        "env.groups.teacher: 'proprio' is not allowed; it must be one of proprioception, height, selection; "
        "nearest is proprioception"
    )
    assert fault(student(path), Course(action_size=3)) == f"{KEY}: {path}: it has 2 actions, the environment 3"


def test_keys_and_classes(plain):
    path = plain.log_dir
    needed = "it must be the run folder or the torch file of a trained policy"
    assert fault(student(None)) == f"{KEY}: missing; {needed}"
    assert fault(student(None, teacher_policy={"teacher_ac_path": 3})) == f"{KEY}: 3; {needed}"
    assert fault(student(None, teacher_policy={"teacher_ac_pth": "run"})) == (
        "algorithm.teacher_policy.teacher_ac_pth: unknown key of ActorCritic; nearest is teacher_ac_path"
    )
    assert fault(student(path, teacher_policy={"actor_hiden_dims": [4]})) == (
        "algorithm.teacher_policy.actor_hiden_dims: unknown key of ActorCritic; nearest is actor_hidden_dims"
    )
    start = "algorithm.teacher_policy_class_name: 'ActorCritc' is not allowed; it must be one of ActorCritic, "
    assert fault(student(path, teacher_policy_class_name="ActorCritc")).startswith(start)
    for name in ("ActorCritc", ["ActorCritic"], 3):
        line = fault(student(path, teacher_policy={"class_name": name}))
        assert line.startswith(f"algorithm.teacher_policy.class_name: {name!r} is not allowed; it must be one of Actor")


@pytest.mark.parametrize("value", [np.zeros(2), Path("run"), {1: 2}, [object()], b"run"])
def test_values_that_cannot_be_stored(value):
    with pytest.raises(ConfigError) as caught:
        from_dict(student("run", teacher_policy={"activation": value}))
    (line,) = caught.value.lines
    assert line.startswith("algorithm.teacher_policy: {'teacher_ac_path': 'run', 'activation': ")
    assert "is not allowed; it must consist of numbers, strings" in line


# From torch files


def torch_weights(seen: int = 14, actions: int = ACTIONS, **changes) -> OrderedDict:
    """A linear policy whose actions are the first and the last number that it sees, in another unit."""
    actor = np.zeros((actions, seen), np.float32)
    actor[0, 0], actor[-1, -1] = 2.0, 3.0
    found = {
        "std": np.full(actions, 0.5),
        "actor.0.weight": actor,
        "actor.0.bias": np.zeros(actions),
        "critic.0.weight": np.zeros((1, 5)),  # of components that this environment does not have
        "critic.0.bias": np.zeros(1),
    } | changes
    return OrderedDict((name, np.asarray(value, np.float32)) for name, value in found.items())


LINEAR = {"class_name": "ActorCritic", "actor_hidden_dims": [], "critic_hidden_dims": []}
GROUPS = {"actor": ["height"], "critic": ["height", "proprioception"]}


def torch_file(path, **changes):
    return save(path / "model_3.pt", {"model_state_dict": torch_weights(), "iter": 3, "infos": None} | changes)


def test_a_torch_file_sees_what_the_critic_or_the_actor_sees(tmp_path):
    values = student(torch_file(tmp_path), GROUPS, teacher_policy=LINEAR)
    teacher, data = loaded(values)
    assert teacher.groups["actor"].names == ("height", "proprioception")
    obs = observe(0)
    expected = np.stack([2 * obs["height"][:, 0], 3 * obs["proprioception"][:, -1]], axis=1)
    np.testing.assert_allclose(labels(teacher, data, [obs], DONES[:1])[0], expected, rtol=1e-6)
    assert data["stats"] == {"actor": {}}

    file = torch_file(tmp_path, model_state_dict=torch_weights(2))
    values = student(file, GROUPS, label_action_with_critic_obs=False, teacher_policy=LINEAR)
    teacher, data = loaded(values)
    assert teacher.groups["actor"].names == ("height",)
    np.testing.assert_allclose(
        labels(teacher, data, [obs], DONES[:1])[0], obs["height"] * np.array([2.0, 3.0]), rtol=1e-6
    )


def test_a_torch_file_with_statistics_and_a_discriminator(tmp_path):
    """A judge says nothing about how to act; statistics are those of the file."""
    weights = torch_weights(**{"discriminator.trunk.0.weight": np.zeros((3, 4)), "discriminator.what": np.zeros(1)})
    mean = np.arange(14, dtype=np.float32)[None]
    moments = OrderedDict(_mean=mean, _var=mean + 4, _std=np.sqrt(mean + 4), count=np.asarray(9))
    file = torch_file(tmp_path, model_state_dict=weights, obs_norm_state_dict=moments)
    judge = {"amp_discriminator": {"input_dim": 4, "hidden_dims": []}, "num_actor_obs": 14, "num_critic_obs": 5}
    section = LINEAR | judge | {"class_name": "AmpActorCritic"}
    teacher, data = loaded(student(file, GROUPS, teacher_policy=section))
    obs = observe(0)
    # entry 0: mean 0, variance 4; entry 13: mean 13, variance 17; eps 0.01
    first = obs["height"][:, 0] / 2.01
    last = (obs["proprioception"][:, -1] - 13) / (np.sqrt(17) + 0.01)
    found = labels(teacher, data, [obs], DONES[:1])[0]
    np.testing.assert_allclose(found, np.stack([2 * first, 3 * last], axis=1), rtol=1e-5)


@pytest.mark.parametrize("name", ["ac", "acr_lstm", "acr_gru2"])
def test_golden_files_label_as_torch_acts(name):
    golden = Golden(FOLDER / f"ckpt_{name}.npz")
    config, dones = golden.config, golden["in/dones"].astype(bool)
    section = {
        "class_name": config["cls"],
        "actor_hidden_dims": config["hid"],
        "critic_hidden_dims": config["chid"],
        "activation": config["act"],
        **{key: config[key] for key in ("rnn_type", "rnn_hidden_size", "rnn_num_layers") if key in config},
        **{key: config[key] for key in ("num_actor_obs", "num_critic_obs", "num_actions")},
    }
    env = Course((("obs", (config["num_actor_obs"],)), ("more", (2,))), action_size=config["num_actions"])
    values = student(FOLDER / config["file"], {"teacher": ["obs"]}, teacher_policy=section)
    teacher, data = loaded(values, env)

    @jax.jit
    def act(obs, carry, reset):
        groups = teacher.pack({"teacher": data}, {"obs": obs})
        mean, std, carry = teacher.policy.apply(data["variables"], groups, carry, reset, method="act")
        return mean, std, carry

    reset = np.ones(dones.shape[1], bool)
    carry = teacher.policy.initial_carry(reset.size)
    for step, obs in enumerate(golden["in/obs"]):
        mean, std, carry = act(obs, carry, reset)
        np.testing.assert_allclose(mean, golden["exp/action_mean"][step], rtol=1e-4, atol=2e-6)
        np.testing.assert_array_equal(std, np.broadcast_to(golden["param/std"], std.shape))
        reset = dones[step]


def damaged(path):
    path.write_bytes(path.read_bytes()[:-200])


def test_what_a_torch_file_does_not_fit(tmp_path):
    file = torch_file(tmp_path)
    start = f"{KEY}: {file}: "
    values = student(file, GROUPS, teacher_policy=LINEAR)
    assert fault(values, course(height=(5,))) == (
        start + "actor.0.weight: shape [2, 14] in the file, shape [2, 17] in the policy"
    )
    assert fault(values, Course(action_size=3)) == start + "it has 2 actions, the environment 3"
    assert fault(student(file, GROUPS | {"teacher": ["scan"]}, teacher_policy=LINEAR)) == (
        "env.groups.teacher: 'scan' is not allowed; it must be one of proprioception, height, selection"
    )
    assert fault(student(file, GROUPS, teacher_policy=LINEAR | {"activation": "rellu"})).startswith(
        "algorithm.teacher_policy.activation: 'rellu' is not allowed; it must be one of elu, "
    )
    memory = LINEAR | {"class_name": "ActorCriticRecurrent", "rnn_type": "gruu"}
    assert fault(student(file, GROUPS, teacher_policy=memory)).startswith(
        "algorithm.teacher_policy.rnn_type: 'gruu' is not allowed; it must be "
    )
    damaged(file)
    assert fault(values) == start + "damaged: File is not a zip file"
    for content in ({"iter": 3}, {"model_state_dict": 3}):
        save(file, content)
        assert fault(values).startswith(start + "the file has no model_state_dict; it has ")
    save(file, {"model_state_dict": {"critic.0.weight": 3, "actor.0.weight": np.zeros((2, 14), "f4")}})
    assert fault(values) == start + "there is no critic.0.weight in the file"


# From sub-policies


@pytest.fixture(scope="module")
def sub_policies(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mutex")
    runs = [saved_run(folder / str(seed), Course(), "ActorCritic", seed) for seed in (1, 2)]
    for run in runs:
        run.close()
    return runs


ACTOR = ["proprioception", "height"]


def mutex_section(runs, **changes) -> dict:
    paths = [str(run.log_dir) for run in runs]
    return {"class_name": "ActorCriticMutex", "sub_policy_paths": paths, "env_action_scale": 1.0} | changes


def test_sub_policies_teach(sub_policies):
    """Each environment gets the label of the sub-policy that it selects."""
    values = student(None, {"teacher": ACTOR}, teacher_policy=mutex_section(sub_policies))
    teacher, data = loaded(values)
    assert teacher.act_groups == ("actor", "selection")
    picks = np.array([[0, 1, 1], [1, 1, 0]])
    observations = [observe(step) | {"selection": jnp.eye(2)[pick]} for step, pick in enumerate(picks)]
    found = labels(teacher, data, observations, DONES[:2])
    means = np.stack([[run.get_inference_policy()(obs) for run in sub_policies] for obs in observations])
    expected = means[np.arange(2)[:, None], picks, np.arange(ENVS)]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    made = assemble(from_dict(values)[0], Course())
    assert made.references["teacher"]["path"] == ", ".join(str(run.log_dir) for run in sub_policies)


def test_what_sub_policies_do_not_fit(sub_policies, tmp_path):
    groups = {"teacher": ACTOR}
    paths = "algorithm.teacher_policy.sub_policy_paths"

    def line(env=None, groups=groups, **changes) -> str:
        return fault(student(None, groups, teacher_policy=mutex_section(sub_policies, **changes)), env)

    absent = str(tmp_path / "absent")
    assert line(sub_policy_paths=[absent]) == f"{paths}: {absent}: there is no such folder"
    assert line(sub_policy_paths=[]) == f"{paths}: [] is not allowed; it must be a list that is not empty"
    assert fault(student(None, groups, teacher_policy={"class_name": "ActorCriticMutex"})) == (
        f"{paths}: it is missing and has no default"
    )
    assert line(Course(tuple((name, SHAPES[name]) for name in ACTOR))) == (
        "algorithm.teacher_policy: ActorCriticMutex needs the component selection of the environment; it has none"
    )
    assert line(groups={"teacher": ["height"]}).startswith(
        f"{paths}: {sub_policies[0].log_dir}: its actor observes proprio"
    )
    assert line(groups={"teacher": ["heigt"]}).endswith("nearest is height")
    assert line(class_name="ActorCriticFieldMutex").startswith("algorithm.teacher_policy: field needs exactly 5 sub")
    write_json(tmp_path, UNITS | {"policy": {}})
    assert (
        line(sub_policy_paths=[str(tmp_path)]) == f"{paths}: {tmp_path}: it has neither checkpoints/ nor a model_*.pt"
    )


def test_no_torch_file_holds_the_weights_of_sub_policies(sub_policies, tmp_path, capsys):
    values = student(None, {"actor": ACTOR})
    values |= {"policy": mutex_section(sub_policies), "algorithm": {}}
    config, file = write(tmp_path / "config.yaml", values), torch_file(tmp_path)
    assert torch_checkpoint.main([str(file), "--config", str(config), "--out", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: runner.policy_class_name: ActorCriticMutex is not allowed")
    assert line.endswith("policy.sub_policy_paths")
    assert not (tmp_path / "out").exists()


# With the command


def tppo_settings(folder, path, **runner) -> dict:
    """TPPO for ``commands.Walk``, with a linear torch policy of its 3 observations as teacher."""
    values = settings(folder / "logs", **runner)
    values["algorithm"] |= {"class_name": "TPPO", "teacher_policy": {"teacher_ac_path": str(path), **LINEAR}}
    return values


def walk_file(path, factor: float = 1.0):
    weights = torch_weights(3, 1)
    weights["actor.0.weight"] *= np.float32(factor)
    return save(path / "teacher.pt", {"model_state_dict": weights, "iter": 0})


def call(capsys, *arguments) -> tuple[int, list[str]]:
    code = train.main([str(argument) for argument in arguments])
    return code, capsys.readouterr().err.splitlines()


def test_the_command_says_what_is_wrong(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.pt").write_text("weights")
    file = tmp_path / "config.yaml"
    for path, expected in {
        tmp_path / "absent": f"{tmp_path}/absent: no such file or folder",
        "absent": f"absent: no such file or folder in {tmp_path}",
        tmp_path / "empty": f"{tmp_path}/empty: no checkpoint; existing checkpoints: none",
        "empty": "empty: no checkpoint; existing checkpoints: none",
        "./empty": "./empty: no checkpoint; existing checkpoints: none",
        "text.pt": "text.pt: not a torch checkpoint: the file is not a zip archive",
        "./text.pt": "./text.pt: not a torch checkpoint: the file is not a zip archive",
    }.items():
        code, lines = call(capsys, "--config", write(file, tppo_settings(tmp_path, path)))
        assert (code, lines) == (2, [f"error: {KEY}: {expected}"])
    assert not (tmp_path / "logs").exists()


def test_a_damaged_run_teaches_nobody(plain, tmp_path, capsys):
    shutil.copytree(plain.log_dir, tmp_path / "run")
    folder = tmp_path / "run" / "checkpoints"
    (folder / "best" / "7").mkdir(parents=True)  # the last is tried after it
    shutil.rmtree(folder / "last" / "0" / "train")
    values = tppo_settings(tmp_path, tmp_path / "run")
    code, lines = call(capsys, "--config", write(tmp_path / "config.yaml", values))
    last = "checkpoints/last/0: damaged: train/manifest.ocdbt is missing"
    fault = f"error: {KEY}: {tmp_path}/run: none of the 2 checkpoints is readable; the last: {last}"
    assert (code, lines[1:]) == (2, [fault])
    assert lines[0].startswith(f"warning: {folder}/best/7: damaged: ")
    assert lines[0].endswith("; skipped")
    assert not (tmp_path / "logs").exists()


@pytest.mark.slow
def test_a_teacher_that_moves_or_changes_before_a_resume(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = walk_file(tmp_path)
    config = write(tmp_path / "config.yaml", tppo_settings(tmp_path, "teacher.pt", max_iterations=1))
    run = tmp_path / "run"
    code, lines = call(capsys, "--config", config, "--log-dir", run)
    assert (code, lines) == (0, [])
    assert (
        json.loads((run / "config.json").read_text())["algorithm"]["teacher_policy"]["teacher_ac_path"] == "teacher.pt"
    )

    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    before = sorted(path.name for path in run.iterdir())
    code, lines = call(capsys, "--resume", run, "runner.max_iterations=2")
    assert (code, lines) == (2, [f"error: {KEY}: teacher.pt: no such file or folder in {other}"])
    assert sorted(path.name for path in run.iterdir()) == before
    code, lines = call(capsys, "--resume", run, "runner.max_iterations=2", f"{KEY}={file}")
    assert (code, lines) == (0, [])

    walk_file(tmp_path, factor=2.0)
    code, lines = call(capsys, "--resume", run, "runner.max_iterations=3")
    assert (code, lines) == (0, [f"note: teacher: the numbers in {file} have changed since the run was saved"])
    moved = file.rename(other / "moved.pt")
    code, lines = call(capsys, "--resume", run, "runner.max_iterations=4", f"{KEY}={moved}")
    assert (code, lines) == (0, [])
    walk_file(tmp_path, factor=3.0)
    code, lines = call(capsys, "--resume", run, "runner.max_iterations=5", f"{KEY}={file}")
    assert (code, lines) == (0, [f"note: teacher: {moved} when the run was saved, {file} now"])
    file.unlink()
    code, lines = call(capsys, "--resume", run, "runner.max_iterations=6")
    assert (code, lines) == (2, [f"error: {KEY}: {file}: no such file or folder"])


def test_a_stored_config_is_read_as_it_was(plain):
    values = student(plain.log_dir, teacher_policy={"class_name": "ActorCritic", "actor_hidden_dims": (4,)})
    config, _ = from_dict(values)
    assert "actor_hidden_dims:\n    - 4\n" in to_yaml(config)
