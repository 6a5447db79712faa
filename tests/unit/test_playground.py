"""The adapter of MuJoCo Playground's environments."""

import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import log
from flax import struct

from strl_jax import train
from strl_jax.builders import environment
from strl_jax.config import ConfigError, EnvConfig
from strl_jax.envs import contract
from strl_jax.envs.episode import EpisodeEnv


def line_of(name, **kwargs):
    """The error of a config with this environment."""
    with pytest.raises(ConfigError) as caught:
        environment.make_env(EnvConfig(name=f"playground:{name}", kwargs=kwargs))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco_playground", None)  # what is None cannot be imported
    monkeypatch.delitem(sys.modules, "strl_jax.envs.playground", raising=False)
    line = line_of("CheetahRun")
    assert line.startswith("env.name: 'playground:CheetahRun' is not allowed; MuJoCo Playground cannot be imported (")
    assert line.endswith("): pip install 'strl_jax[playground]'")


def test_it_is_imported_only_where_it_is_used():
    code = "import sys; from strl_jax.builders import environment as e; e.make_env(e.EnvConfig(name='probe:action'))"
    subprocess.run([sys.executable, "-c", f"{code}; assert 'mujoco_playground' not in sys.modules"], check=True)


@pytest.fixture(scope="module")
def playground():
    """The adapter's module; importing it takes ten seconds."""
    pytest.importorskip("mujoco_playground", reason="needs pip install 'strl_jax[playground]'")
    from strl_jax.envs import playground

    return playground


@struct.dataclass
class Data:
    qpos: jax.Array
    qvel: jax.Array


@pytest.fixture(params=[1, 2], ids=["one step", "two steps"])
def walker(request, playground, monkeypatch):
    """An environment in Playground's manner, on a line: it ends beyond 1, or by a strong push in its first step."""
    from ml_collections import config_dict
    from mujoco_playground import MjxEnv, State

    class Walker(MjxEnv):
        action_size, xml_path, mj_model, mjx_model = 1, "", None, None

        def reset(self, rng):
            position = jax.random.uniform(rng, (1,), maxval=0.1)
            info = {"command": position, "steps": 0, "rng": rng}
            reward, done = jnp.zeros(2)
            return State(Data(position, jnp.zeros(1)), self._obs(position, info), reward, done, {"far": reward}, info)

        def step(self, state, action):
            position = state.data.qpos + self.dt * action
            state.info["steps"] += 1  # in place, as many of Playground's do
            state.metrics["far"] = position[0]
            tripped = (state.info["steps"] == 1) & (action[0] > 0.75)
            done = ((jnp.abs(position[0]) > 1.0) | tripped).astype(float)
            obs = self._obs(position, state.info)
            return State(Data(position, action), obs, action[0], done, state.metrics, state.info)

        def _obs(self, position, info):
            return {"state": position, "privileged_state": jnp.append(info["command"], info["steps"])}

    def default():
        numbers = {"ctrl_dt": 0.5, "sim_dt": 0.5, "episode_length": 5, "action_repeat": request.param, "vision": False}
        return config_dict.create(**numbers, impl="warp", reward_config=config_dict.create(scales=[1.0, 2.0]))

    from mujoco_playground import dm_control_suite

    monkeypatch.setitem(dm_control_suite._envs, "Walker", Walker)
    monkeypatch.setitem(dm_control_suite._cfgs, "Walker", default)
    return playground.PlaygroundEnv("Walker"), request.param


def test_what_it_offers(walker):
    env, repeat = walker
    contract.check(env)
    assert env.observation_shapes == {"state": (1,), "privileged_state": (2,)}
    assert env.action_size == 1
    assert env.dt == 0.5 * repeat
    assert env.episode_length == {1: 5, 2: 3}[repeat]  # 5 / 2, rounded up


def test_a_repeated_action(walker):
    """Its rewards add up, and an end in any of its steps counts. Actions are clipped to 1."""
    env, repeat = walker
    start = env.reset(jax.random.split(jax.random.key(0), 4))
    after = env.step(start, jnp.array([[0.25], [-0.5], [0.8], [9.0]]))
    np.testing.assert_allclose(after.reward, np.array([0.25, -0.5, 0.8, 1.0]) * repeat)
    command = start.obs["privileged_state"][:, 0]
    expected = command + 0.5 * repeat * np.array([0.25, -0.5, 0.8, 1.0])  # ctrl_dt is 0.5
    np.testing.assert_allclose(after.obs["state"][:, 0], expected, rtol=1e-6)
    np.testing.assert_allclose(after.metrics["far"], expected, rtol=1e-6)
    assert after.obs["privileged_state"][:, 1].tolist() == [repeat] * 4
    assert after.terminated.tolist() == [False, False, True, True]
    assert after.obs["state"][2, 0] < 1.0  # it tripped on the way
    assert not after.timeout.any()
    assert env.finite(after).all()


def test_episodes_start_again_from_the_pool(walker):
    env, _ = walker
    episodes = EpisodeEnv(env, 2)
    state, _ = episodes.init(jax.random.split(jax.random.key(0), 2), False)
    pool = episodes.pool(jax.random.key(1), 2)
    draw = jnp.array([0.0, 0.999])
    state, first = episodes.step(state, jnp.zeros((2, 1)), pool, draw)
    assert not first.done.any()
    state, second = episodes.step(state, jnp.array([[0.25], [jnp.nan]]), pool, draw)
    assert second.timeout.tolist() == [True, False]
    assert second.valid.tolist() == [True, False]
    assert second.done.all()
    np.testing.assert_array_equal(state.env.obs["state"], pool.obs["state"][jnp.array([0, -1])])
    assert (state.env.obs["privileged_state"][:, 1] == 0).all()  # steps, of the info
    assert np.isfinite(second.reward).all()


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        ({"impl": "c"}, "env.kwargs.impl: 'c' is not allowed; it must be one of jax, warp"),
        ({"colour": 1}, "env.kwargs.colour: unknown key; known are impl, config_overrides"),
        ({"config_overrides": 3}, "env.kwargs.config_overrides: 3 is not allowed; it must be a mapping"),
        ({"config_overrides": {"impl": "jax"}}, "env.kwargs.config_overrides.impl: this key is not allowed; use "),
        ({"config_overrides": {"ctrl_td": 1}}, "env.kwargs.config_overrides.ctrl_td: unknown key; nearest is ctrl_dt"),
        (
            {"config_overrides": {"reward_config": {"scale": 1}}},
            "env.kwargs.config_overrides.reward_config.scale: unknown key; nearest is reward_config.scales",
        ),
        (
            {"config_overrides": {"scales": 1}},
            "env.kwargs.config_overrides.scales: unknown key; nearest is reward_config.scales",
        ),
        (
            {"config_overrides": {"zzz": 1}},
            "env.kwargs.config_overrides.zzz: unknown key; known are action_repeat, ",
        ),
        (
            {"config_overrides": {"episode_length": 2.5}},
            "env.kwargs.config_overrides.episode_length: 2.5 is not allowed; it must have the type int, for example 5",
        ),
        (
            {"config_overrides": {"action_repeat": 0}},
            "env.kwargs.config_overrides.action_repeat: 0 is not allowed; it must be above 0",
        ),
        ({"config_overrides": {"vision": True}}, "env.kwargs.config_overrides.vision: True is not allowed; "),
        *(
            (
                {"config_overrides": {"ctrl_dt": dt}},
                f"env.kwargs.config_overrides.ctrl_dt: {dt} is not allowed; it must be a multiple of sim_dt, 0.5",
            )
            for dt in (0.1, 0.3, 0.7, 1.25)
        ),
        (
            {"config_overrides": {"sim_dt": 0.0}},
            "env.kwargs.config_overrides.sim_dt: 0.0 is not allowed; it must be above 0",
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("walker", [1], indirect=True)
def test_keywords_that_do_not_fit(walker, kwargs, expected):
    assert line_of("Walker", **kwargs).startswith(expected)


@pytest.mark.parametrize("walker", [1], indirect=True)
def test_overrides_reach_the_environment(walker):
    overrides = {"ctrl_dt": 1, "reward_config": {"scales": [3.0, 4.0]}, "episode_length": 9}
    env = environment.make_env(EnvConfig(name="playground:Walker", kwargs={"config_overrides": overrides}))
    assert env.dt == 1.0
    assert env.episode_length == 9
    assert env._env._config.reward_config.scales == [3.0, 4.0]
    assert env._env._config.impl == "jax"
    dotted = environment.make_env(
        EnvConfig(
            name="playground:Walker",
            kwargs={"config_overrides": {"reward_config.scales": [5.0, 6.0]}, "impl": "warp"},
        )
    )
    assert dotted._env._config.reward_config.scales == [5.0, 6.0]
    assert dotted._env._config.impl == "warp"


@pytest.mark.parametrize("walker", [1], indirect=True)
@pytest.mark.parametrize("function", ["reset", "step", "__init__"])
def test_an_environment_that_fails(walker, function, monkeypatch):
    from mujoco_playground import dm_control_suite

    class Old(dm_control_suite._envs["Walker"]):
        """Written for another jax."""

    def fail(*arguments, **keywords):
        raise RuntimeError("warp-lang is not installed.\nmore")

    monkeypatch.setattr(Old, function, fail)
    monkeypatch.setitem(dm_control_suite._envs, "Walker", Old)
    assert line_of("Walker", impl="warp") == (
        "env.name: 'playground:Walker' is not allowed; MuJoCo Playground environment 'Walker' on 'warp' "
        "does not work: RuntimeError: warp-lang is not installed."
    )


def test_unknown_name(playground):
    line = line_of("CheetahRunn")
    assert line.startswith("env.name: 'playground:CheetahRunn' is not allowed; unknown MuJoCo Playground environment")
    assert "known: AcrobotSwingup, " in line
    assert line.endswith("; nearest is CheetahRun")


def test_menagerie_that_cannot_be_downloaded(playground, monkeypatch, tmp_path):
    from mujoco_playground._src import mjx_env

    folder = tmp_path / "external_deps" / "mujoco_menagerie"
    monkeypatch.setattr(mjx_env, "EXTERNAL_DEPS_PATH", folder.parent)
    monkeypatch.setattr(mjx_env, "MENAGERIE_PATH", folder)
    monkeypatch.setenv("PATH", "")  # without git there is no download
    line = line_of("Go1JoystickFlatTerrain")
    assert f"MuJoCo Menagerie, which is not in {folder} and cannot be downloaded ([Errno 2] No such file" in line
    assert f"git clone https://github.com/deepmind/mujoco_menagerie.git {folder} && git -C {folder} checkout " in line

    folder.mkdir()
    line = line_of("Go1JoystickFlatTerrain")
    assert f"'Go1JoystickFlatTerrain' on 'jax' with the robots of {folder} does not work: " in line


def _run_cartpole(env):
    """Four steps of two environments; the last action of the first one is NaN."""
    episodes = EpisodeEnv(env, 3)
    actions = jnp.full((4, 2, 1), 0.5).at[3, 0].set(jnp.nan)

    @jax.jit
    def run(key):
        state, _ = episodes.init(jax.random.split(key, 2), False)
        pool = episodes.pool(key, 2)
        _, timesteps = jax.lax.scan(lambda s, a: episodes.step(s, a, pool, jnp.zeros(2)), state, actions)
        return state, pool, timesteps

    return run(jax.random.key(0))


def test_cartpole(playground):
    env = environment.make_env(EnvConfig(name="playground:CartpoleBalance"))
    contract.check(env)
    # Position, cosine and sine of the angle, two velocities.
    assert env.observation_shapes == {"state": (5,)}
    assert env.action_size == 1
    assert env.dt == pytest.approx(0.01)
    assert env.episode_length == 1000
    assert sum(env._leaves.live) < 20
    state, pool, timesteps = _run_cartpole(env)
    assert timesteps.timeout.tolist() == [[False] * 2] * 2 + [[True] * 2] + [[False] * 2]
    assert timesteps.valid.tolist() == [[True] * 2] * 3 + [[False, True]]
    assert timesteps.done[3].tolist() == [True, False]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(timesteps))
    np.testing.assert_array_equal(timesteps.obs["state"][2], jnp.stack([pool.obs["state"][0]] * 2))
    # A push of the cart to the right from near rest, near the upright.
    start, after = state.env.obs["state"], timesteps.obs["state"][1]
    assert (after[:, 3] > start[:, 3]).all()
    assert (timesteps.reward[:3] > 0.9).all()
    assert (timesteps.metrics["reward/upright"][:3] > 0.99).all()


@pytest.mark.slow
def test_warp_gives_what_jax_gives(playground):
    """On a CPU, where Warp takes a minute to compile; its contacts are shared by all environments."""
    runs = [_run_cartpole(playground.PlaygroundEnv("CartpoleBalance", impl))[2] for impl in ("jax", "warp")]
    for name in ("obs", "reward", "metrics", "done", "terminal_obs"):
        ours, theirs = (jax.tree.leaves(getattr(run, name)) for run in runs)
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a[:3], b[:3], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_it_trains(playground, tmp_path):
    small = ["env.num_envs=4", "runner.num_steps_per_env=2", "algorithm.num_mini_batches=2", "runner.time_split=false"]
    short = ["runner.max_iterations=1", "algorithm.num_learning_epochs=1", "env.episode_length=3"]
    name = ["env.name=playground:CartpoleBalance", "runner.num_eval_envs=4"]
    path = Path(__file__).parents[2] / "experiments" / "playground_cheetah.yaml"
    assert train.main(["--config", str(path), "--log-dir", str(tmp_path / "run"), *small, *short, *name]) == 0
    (line,) = log(tmp_path / "run")
    assert line["Train/invalid_steps"] == 0
    assert line["Eval/mean_length"] == 3
    assert line["Eval/mean_return"] > 2.5  # of 3: the pole starts near the upright
    assert all(np.isfinite(value) for name, value in line.items() if name.startswith("Loss/"))
