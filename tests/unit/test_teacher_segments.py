"""A teacher with st_rl's ``obs_segments``: what it observes, and what its critic observed."""

from collections import OrderedDict

import jax
import numpy as np
import pytest
from course import SHAPES, Course, saved
from tiny import normal
from torch_writer import save

from strl_jax.builders.teacher import load_teacher
from strl_jax.config import ConfigError, from_dict, to_dict

KEY = "algorithm.teacher_policy"
GROUPS = {"actor": ["selection"], "critic": ["selection"]}  # not what the teacher observes
ENVS = 3


def weights(sizes: dict[str, tuple[int, ...]]) -> OrderedDict:
    """Linear layers and memories of these shapes, ``OUT x IN``."""
    rng = np.random.default_rng(3)
    found = OrderedDict(std=np.full(2, 0.5, np.float32))
    for name, shape in sizes.items():
        found[f"{name}.weight"] = rng.normal(size=shape).astype(np.float32)
        found[f"{name}.bias"] = rng.normal(size=shape[:1]).astype(np.float32)
    return found


def file(path, critic: int = 5, **more):
    model = weights({"actor.0": (2, 14), "critic.0": (1, critic)})
    return save(path / "model_3.pt", {"model_state_dict": model, "iter": 3, "infos": None} | more), model


def config(path, groups=None, **section):
    section = {"actor_hidden_dims": [], "critic_hidden_dims": [], "class_name": "ActorCritic"} | section
    section |= {} if path is None else {"teacher_ac_path": str(path)}
    return from_dict(
        {
            "env": {"name": "course:Course", "groups": GROUPS | (groups or {})},
            "algorithm": {"class_name": "TPPO", "teacher_policy": section},
        }
    )[0]


def label(teacher, data, obs: dict) -> np.ndarray:
    flat, carry = teacher.pack({"teacher": data}, obs), teacher.policy.initial_carry(ENVS)
    act = jax.jit(lambda *args: teacher.policy.apply(*args, method="act")[0])
    return act(data["variables"], flat, carry, np.ones(ENVS, bool))


def observe() -> dict:
    return {name: normal(1, i, (ENVS, *shape)) for i, (name, shape) in enumerate(SHAPES.items())}


SEGMENTS = OrderedDict([("height", (2,)), ("proprioception", (12,))])


@pytest.mark.parametrize("segments", [SEGMENTS, {"height": [2], "proprioception": 12}], ids=["st_rl", "yaml"])
def test_the_teacher_observes_its_segments_in_their_order(segments, tmp_path):
    path, model = file(tmp_path)
    made = config(path, obs_segments=segments)
    teacher, data = load_teacher(made, Course())
    obs = observe()
    flat = np.concatenate([obs["height"], obs["proprioception"]], axis=1)
    expected = flat @ model["actor.0.weight"].T + model["actor.0.bias"]
    np.testing.assert_allclose(label(teacher, data, obs), expected, rtol=1e-4, atol=1e-5)
    assert from_dict(to_dict(made))[0] == made  # the order of the components is kept


def test_other_names_here_are_those_of_the_group(tmp_path):
    """The teacher's scan is the height of this environment, its body the proprioception; with their statistics."""
    mean = np.arange(14, dtype=np.float32)[None]
    moments = OrderedDict(_mean=mean, _var=mean + 4, _std=np.sqrt(mean + 4), count=np.asarray(9))
    path, model = file(tmp_path, obs_norm_state_dict=moments)
    segments = {"scan": [2], "body": [12]}
    made = config(path, {"teacher": ["height", "proprioception"]}, obs_segments=segments)
    teacher, data = load_teacher(made, Course())
    assert data["stats"]["actor"].keys() == {"height", "proprioception"}
    obs = observe()
    flat = np.concatenate([obs["height"], obs["proprioception"]], axis=1)
    flat = (flat - mean) / (np.sqrt(mean + 4) + 0.01)
    expected = flat @ model["actor.0.weight"].T + model["actor.0.bias"]
    np.testing.assert_allclose(label(teacher, data, obs), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("key", ["privileged_obs_segments", "critic_obs_segments"])
def test_the_critic_of_the_teacher_may_have_seen_what_there_is_not_here(key, tmp_path):
    """The target of an estimator is a component of the critic, with its size."""
    model = weights({"actor.0": (2, 14), "critic.0": (1, 9), "state_estimator.0": (3, 2), "state_estimator.2": (4, 3)})
    path, _ = file(tmp_path, model_state_dict=model)
    section = {
        "class_name": "StateAc",
        "obs_segments": SEGMENTS,
        "estimator_obs_components": ["height"],
        "estimator_target_components": ["friction"],
        "estimator_kwargs": {"hidden_sizes": [3]},
    }
    critic = {"height": [2], "friction": [4], "mass": [3]}
    teacher, _ = load_teacher(config(path, **section, **{key: critic}), Course())
    assert teacher.policy.critic_obs.names == ("height", "friction", "mass")
    line = fault(config(path, **section))
    assert "friction" in line
    line = fault(config(path, **section, **{key: {"friction": [5], "mass": [4]}}))
    assert "state_estimator.2.weight" in line


def fault(made, env=None) -> str:
    with pytest.raises(ConfigError) as caught:
        load_teacher(made, Course() if env is None else env)
    return str(caught.value)


def test_what_segments_do_not_fit(tmp_path):
    path, _ = file(tmp_path)
    for wrong in ([], {}, 3, {"height": "2"}, {"height": [0]}, {"height": [True]}, [["height", [2]]]):
        line = fault(config(path, obs_segments=wrong))
        assert line.startswith(f"{KEY}.obs_segments: ")
        assert "components to shapes" in line
    line = fault(config(path, obs_segments={"scan": [2], "proprioception": [12]}))
    assert "'scan'" in line
    assert "env.groups.teacher must name components in its place" in line
    line = fault(config(path, obs_segments={"height": [3], "proprioception": [12]}))
    assert "height (3,), proprioception (12,)" in line
    assert "height (2,), proprioception (12,) must have the same shapes" in line
    line = fault(config(path, obs_segments=SEGMENTS, privileged_obs_segments={"height": [2]}))
    assert "critic.0.weight: shape [1, 5] in the file, shape [1, 2] in the policy" in line
    both = {"privileged_obs_segments": {"height": [2]}, "critic_obs_segments": {"height": [3]}}
    line = fault(config(path, obs_segments=SEGMENTS, **both))
    assert line.startswith(f"{KEY}.critic_obs_segments: height (3,) contradicts privileged_obs_segments")


def test_segments_of_a_run_are_those_of_its_training(tmp_path):
    runner = saved(tmp_path / "run", Course(), "ActorCritic", 1, actor=tuple(SEGMENTS))
    runner.close()
    sizes = {"actor_hidden_dims": [4], "critic_hidden_dims": [4]}
    for key, layout in (("obs_segments", SEGMENTS), ("privileged_obs_segments", SHAPES)):
        teacher, _ = load_teacher(config(tmp_path / "run", **sizes, **{key: layout}), Course())
        assert teacher.groups["actor"] == runner.algorithm.groups["actor"]
        line = fault(config(tmp_path / "run", **sizes, **{key: {"height": [2]}}))
        assert f"but {KEY}.{key} is height (2,)" in line


def test_segments_of_a_mutex_teacher(tmp_path):
    runs = [saved(tmp_path / str(seed), Course(), "ActorCritic", seed, actor=tuple(SEGMENTS)) for seed in (1, 2)]
    for run in runs:
        run.close()
    paths = [str(run.log_dir) for run in runs]
    mutex = {"class_name": "ActorCriticMutex", "sub_policy_paths": paths, "env_action_scale": 1.0}
    teacher, _ = load_teacher(config(None, obs_segments=SEGMENTS, **mutex), Course())
    assert teacher.groups["actor"].names == ("height", "proprioception")
