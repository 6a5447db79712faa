"""Play with the legged robot itself: the runner's numbers, commands that it only gets, pictures."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import settings
from PIL import Image
from tiny import make_state

from strl_jax import play
from strl_jax.config import ConfigError, from_dict
from strl_jax.envs.legged.env import LeggedEnv
from strl_jax.run_folder import run_dir
from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.sharding import make_mesh
from strl_jax.viewer import video
from strl_jax.viewer.recording import CommandedEnv

pytestmark = pytest.mark.slow  # MJX takes a minute to compile
ENVS, STEPS = 4, 60


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    """A run folder with a policy whose action is always 0, as its best."""
    path = tmp_path_factory.mktemp("run")
    data = settings(path, num_eval_envs=ENVS)
    still = {"joint_noise": 0.0, "velocity_noise": 0.0}
    data["env"] = {"name": "legged:flat", "num_envs": 4, "episode_length": STEPS, "kwargs": {"episode": still}}
    config, _ = from_dict(data)
    run_dir.write_config(path, config)
    runner = OnPolicyRunner(None, config, path, mesh=make_mesh(jax.devices()[:1]))
    runner.train_state = jax.tree.map(lambda x: 0 * x, make_state(runner.algorithm))
    runner.progress.iteration = 7
    runner.save("best")
    runner.checkpointer.wait()
    yield runner
    runner.close()


def test_numbers_are_those_of_the_runner(runner, tmp_path, capsys):
    file = tmp_path / "numbers.json"
    assert play.main([str(runner.log_dir), "--num-envs", str(ENVS), "--out", str(file)]) == 0
    found = json.loads(file.read_text())["evaluation"]
    expected = {name.removeprefix("Eval/"): x for name, x in runner.evaluation().items()}
    assert found == pytest.approx(expected, rel=1e-4)
    assert 0 < found["metric/tracking_error"] < 2
    assert "velocity RMSD, m/s" in capsys.readouterr().out


def test_everything_that_can_be_seen(runner, tmp_path, capsys):
    names = {"--html": "x.html", "--plot": "x.png", "--out": "x.json"}
    try:
        video.find_gl()
        names["--video"] = "x.mp4"
    except ConfigError as error:
        print(f"no video: {error}")
    paths = [text for option, name in names.items() for text in (option, str(tmp_path / name))]
    arguments = [str(runner.log_dir), "--num-envs", "4", "--command", "-1.5,0.1,0.2", "--table", *paths]
    assert play.main(arguments) == 0
    captured = capsys.readouterr()
    outside = "lin_vel_x -1.5 is outside of [-1, 1], the range that the policy was trained in"
    assert captured.err == f"warning: --command: {outside}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names.values())
    assert Image.open(tmp_path / "x.png").width == 15 * 120  # inches, dots per inch

    found = json.loads((tmp_path / "x.json").read_text())
    assert found["command"] == [-1.5, 0.1, 0.2]
    # It stands, so the error is about the command.
    assert found["evaluation"]["metric/tracking_error"] == pytest.approx(np.hypot(1.5, 0.1), rel=0.1)
    assert found["evaluation"]["metric/yaw_error"] == pytest.approx(0.2, abs=0.1)
    rows = {tuple(row["command"]): row for row in found["table"]}
    assert len(rows) == 13  # standing, two shares of both ends of three ranges
    for command, row in rows.items():
        assert row["survival"] == 1.0
        assert row["velocity"] == pytest.approx([0, 0, 0], abs=0.1)
        assert row["velocity_rmsd"] == pytest.approx(np.hypot(*command[:2]), abs=0.15)


def test_robots_see_the_commands_that_they_are_given():
    given = jnp.array([[1.5, 0.0, -0.7], [0.05, -0.1, 0.0]])
    env = CommandedEnv(LeggedEnv().evaluated(), given, 1000)
    state = jax.jit(env.reset)(jax.random.split(jax.random.key(0), 2))
    # legged_gym's scales: 2 for m/s, 0.25 for rad/s.
    expected = given * jnp.array([2.0, 2.0, 0.25])
    np.testing.assert_allclose(state.obs["proprioception"][:, 9:12], expected, rtol=1e-6)
    assert env.env.config.steps(env.env.config.commands.resampling_time) > 1000
