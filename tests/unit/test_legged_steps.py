"""The quadruped's episodes on flat and on rough ground: it stands, falls freely, lands, and starts again."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from strl_jax.builders.environment import make_env
from strl_jax.config.sections import EnvConfig
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.envs.legged.state import body_velocities

STEPS, LENGTH = 64, 60  # of 0.02 s; time limit of an episode
STANDING, LIFTED, TURNED, BROKEN = range(4)  # how the environments start
ASIDE, DROP, LIFT = 2.2, 0.02, 0.1  # m; all robots are beside the flat platform in the middle of a field
ROUGH = {
    "num_rows": 1,
    "num_cols": 1,
    "border_size": 1.0,
    "curriculum": False,
    "rough_height": [0.03, 0.03],
    "terrain_proportions": dict.fromkeys(("flat", "slope_up", "slope_down", "stairs_up", "stairs_down"), 0.0)
    | dict.fromkeys(("gaps", "blocks_up", "blocks_down"), 0.0),
}
KWARGS = {"sim": {"iterations": 4, "ls_iterations": 8}, "noise": {"add_noise": False}}
GRAVITY, SUBSTEP = 9.81, 0.005


def start(env, pool):
    """Four robots at their default pose and at rest; see the constants."""
    state = jax.tree.map(lambda leaf: leaf[:4], pool)
    motion = state.physics.motion
    qpos = motion.qpos.at[:, env.robot.qpos].set(env.robot.default)
    qpos = qpos.at[:, 0].add(ASIDE).at[:, 2].add(DROP).at[LIFTED, 2].add(LIFT)
    qpos = qpos.at[TURNED, 3:7].set(jnp.array([0.0, 1.0, 0.0, 0.0]))  # on its back
    qvel = jnp.zeros_like(motion.qvel).at[BROKEN, 6].set(jnp.nan)
    return state.replace(physics=state.physics.replace(motion=motion.replace(qpos=qpos, qvel=qvel)))


@pytest.fixture(scope="module", params=["flat", "rough"])
def played(request):
    """Before the first and after each of ``STEPS`` steps without an action, ``[STEPS + 1, 4, ...]``; the pool."""
    kwargs = KWARGS | ({"terrain": ROUGH} if request.param == "rough" else {})
    env = make_env(EnvConfig(name=f"legged:{request.param}", kwargs=kwargs))
    episodes = EpisodeEnv(env, LENGTH)

    def measure(state):
        motion = state.env.physics.motion
        return {
            "qpos": motion.qpos,
            "height": env.ground.clearance(motion.qpos),
            "velocity": motion.qvel[:, :3],
            "gravity": body_velocities(motion)[2],
            "feet": state.env.physics.feet,
            "contact": state.env.physics.contact,
            "step": state.step,
        }

    @jax.jit
    def run(key):
        pool = episodes.pool(key, 4)
        first, _ = episodes.init(jax.random.split(key, 4), random_lengths=False)
        first = first.replace(env=start(env, pool))

        def advance(state, draw):
            state, timestep = episodes.step(state, jnp.zeros((4, env.action_size)), pool, draw)
            return state, (measure(state), timestep)

        _, (after, timesteps) = jax.lax.scan(advance, first, jax.random.uniform(key, (STEPS, 4)))
        states = jax.tree.map(lambda one, more: jnp.concatenate([one[None], more]), measure(first), after)
        return states, timesteps, pool.physics.motion.qpos

    states, timesteps, pool = jax.device_get(run(jax.random.key(0)))
    return SimpleNamespace(**states, timesteps=timesteps, pool=pool, rough=env.terrain is not None)


def test_only_the_broken_robot_is_invalid(played):
    """For one step; what the learner sees is finite also then."""
    steps = played.timesteps
    assert np.argwhere(~steps.valid).tolist() == [[0, BROKEN]]
    for leaf in jax.tree.leaves((steps.obs, steps.terminal_obs, steps.reward, steps.metrics, played.qpos[1:])):
        assert np.isfinite(leaf).all()


def test_episodes_end_for_the_right_reason(played):
    """By their time limit; of the robot on its back and of the broken one also in the first step."""
    done, timeout = (np.argwhere(x).tolist() for x in (played.timesteps.done, played.timesteps.timeout))
    last = [[LENGTH - 1, STANDING], [LENGTH - 1, LIFTED]]
    assert done == [[0, TURNED], [0, BROKEN], *last, [LENGTH, TURNED], [LENGTH, BROKEN]]
    assert timeout == [*last, [LENGTH, TURNED], [LENGTH, BROKEN]]


def test_a_robot_in_the_air_falls_freely(played):
    """By g h^2 n (n + 1) / 2 after n substeps of h seconds, the sum of semi-implicit Euler steps."""
    substeps = 4 * np.arange(6)
    way = played.qpos[0, LIFTED, 2] - played.qpos[:6, LIFTED, 2]
    np.testing.assert_allclose(way, GRAVITY * SUBSTEP**2 * substeps * (substeps + 1) / 2, atol=1e-3)
    assert not played.contact[1:6, LIFTED].any()


@pytest.mark.parametrize("robot", [STANDING, LIFTED], ids=["standing", "lifted"])
def test_it_lands_and_stands(played, robot):
    """At the end of its episode: upright, on its feet, at rest, where it came down, 0.2 to 0.35 m over the ground."""
    end = LENGTH - 1
    assert 0.2 < played.height[end, robot] < 0.35
    assert played.gravity[end, robot, 2] < -0.98
    assert played.contact[end, robot].sum() >= 3
    assert np.abs(played.velocity[end, robot]).max() < 0.1
    assert np.linalg.norm(played.qpos[end, robot, :2] - played.qpos[0, robot, :2]) < 0.1
    assert (np.ptp(played.feet[end, robot, :, 2]) > 0.005) == played.rough


@pytest.mark.parametrize(("step", "robot"), [(LENGTH, STANDING), (LENGTH, LIFTED), (1, TURNED), (1, BROKEN)])
def test_the_next_episode_starts_from_the_pool(played, step, robot):
    joints = played.qpos[step, robot, 7:]
    assert (joints == played.pool[:, 7:]).all(axis=1).any()
    assert played.step[step, robot] == 0
    assert played.gravity[step, robot, 2] < -0.98
    assert 0.2 < played.height[step, robot] < 0.4
