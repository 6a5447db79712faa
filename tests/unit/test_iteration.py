"""What depends on the iteration: the environment, and the time limit of episodes."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import Walk, log, same, settings, untimed
from equivalent import counted_compilations

from strl_jax.algorithms import train_step
from strl_jax.config import ConfigError, from_dict
from strl_jax.envs import contract
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.sharding import make_mesh
from strl_jax.viewer import load

TWO = make_mesh(jax.devices()[:2])
RISING = {"name": "linear", "init_value": 2, "end_value": 6, "transition_steps": 2}  # 2, 4, 6, 6 ... steps


@dataclass(frozen=True)
class Wind(Walk):
    """The metric ``wind`` is the iteration; ``start`` is the iteration of the reset."""

    iteration: int | jax.Array = 0

    def at_iteration(self, iteration):
        return replace(self, iteration=iteration)

    def reset(self, key):
        state = super().reset(key)
        start = jnp.full(key.shape, 1.0 * self.iteration)
        return state.replace(physics=(state.physics, start), obs=state.obs | {"start": start[:, None]})

    def step(self, state, action):
        walk, start = state.physics
        after = super().step(state.replace(physics=walk), action)
        wind = jnp.full(start.shape, 1.0 * self.iteration)
        metrics = after.metrics | {"wind": wind, "age": wind - start}
        return after.replace(physics=(after.physics, start), obs=after.obs | {"start": start[:, None]}, metrics=metrics)


def make_runner(folder, env=None, mesh=TWO, length=3, **config):
    config = settings(folder, **config) | {"env": {"num_envs": 4, "episode_length": length}}
    return OnPolicyRunner(env or Wind(), config, folder, mesh=mesh)


def test_the_environment_sees_the_iteration_and_nothing_compiles_again(tmp_path):
    """Also after a resume, and in an evaluation. Four steps of an iteration end an episode of three steps."""
    runner = make_runner(tmp_path, eval_interval=2)
    runner.learn(2)
    with counted_compilations() as compilations:
        runner.learn(2)
    assert compilations == []
    rows = log(tmp_path)
    assert [row["Eval/metric/wind"] for row in rows[1::2]] == [2.0, 4.0]  # finished iterations
    runner.close()
    again = make_runner(tmp_path / "again", eval_interval=2)
    again.load(tmp_path)
    again.learn(1)
    (row,) = log(tmp_path / "again")
    # All environments restarted from the pool of iteration 3 or 4, or of the current one.
    assert 3.0 < row["Episode/wind"] <= 4.0
    assert 0.0 <= row["Episode/age"] <= 1.0
    start = again.rollout_state.obs["start"]
    assert set(np.asarray(start)[:, 0]) <= {3.0, 4.0}
    again.close()


def test_a_resumed_run_of_such_an_environment_is_the_straight_run(tmp_path):
    config = {"eval_interval": 2}
    straight = make_runner(tmp_path / "straight", **config)
    straight.learn(4)
    first, second = make_runner(tmp_path / "first", **config), make_runner(tmp_path / "second", **config)
    first.learn(2)
    second.load(tmp_path / "first")
    second.learn(2)
    assert same((straight.train_state, straight.rollout_state), (second.train_state, second.rollout_state))
    assert untimed(log(tmp_path / "straight"))[2:] == untimed(log(tmp_path / "second"))
    for runner in (straight, first, second):
        runner.close()


def test_an_environment_that_ignores_the_iteration_costs_nothing():
    """The traced programs are equal, with and without the method."""

    def program(env):
        config = from_dict(settings("unused") | {"env": {"name": "unused", "num_envs": 4}})[0]
        runner = OnPolicyRunner(env, config, None, mesh=TWO)
        step = train_step.make_train_step(runner.env, runner.algorithm, TWO, 2)
        return str(step.trace(*runner.programs.states, {}).jaxpr)

    @dataclass(frozen=True)
    class Unmoved(Walk):
        iteration: int = 0

        def at_iteration(self, iteration):
            return replace(self, iteration=iteration)

    assert program(Walk()) == program(Unmoved())


def test_episode_lengths_follow_their_schedule(tmp_path):
    """Up to a resume, too. Evaluations use the length of the config, and no iteration compiles again."""
    config = settings(tmp_path, eval_interval=5, num_steps_per_env=12, init_at_random_ep_len=False)
    config["env"] = {"num_envs": 4, "episode_length": 9, "episode_length_schedule": RISING}

    def make(folder):
        return OnPolicyRunner(Still(), config, folder, mesh=TWO)

    runner = make(tmp_path / "run")
    runner.learn(1)
    with counted_compilations() as compilations:
        runner.learn(1)
    assert compilations == []
    runner.learn(3)
    runner.close()
    rows = log(tmp_path / "run")
    # 6 episodes of 2 steps, 3 of 4, 2 of 6 in 12 steps of each of 4 environments
    assert [row["Train/finished_episodes"] for row in rows] == [24.0, 12.0, 8.0, 8.0, 8.0]
    assert rows[-1]["Eval/max_length"] == rows[-1]["Eval/min_length"] == 9.0
    again = make(tmp_path / "again")
    again.load(tmp_path / "run")
    again.learn(1)
    assert log(tmp_path / "again")[0]["Train/finished_episodes"] == 8.0
    again.close()


class Still(Walk):
    """No episode ends by a fall."""

    def step(self, state, action):
        return super().step(state, 0 * action)


def test_the_first_episodes_start_at_ages_below_the_first_limit():
    env = EpisodeEnv(Still(), 9, length_schedule=lambda iteration: 2 + iteration)
    state, _ = env.at_iteration(jnp.int32(1)).init(jax.random.split(jax.random.key(0), 200), random_lengths=True)
    assert set(np.asarray(state.step)) == {0, 1, 2}
    assert env.evaluated().limit is env.evaluated().length_schedule is None
    shortest = replace(env, length_schedule=lambda iteration: 0.2).at_iteration(jnp.int32(0))
    assert shortest.limit == 1


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ({"name": "linear", "init_value": 0, "end_value": 6, "transition_steps": 2}, ("init_value", "from 1 to")),
        ({"name": "rising"}, ("name", "linear")),
        (100, ("episode_length_schedule", "mapping")),
    ],
)
def test_a_schedule_that_is_not_allowed(schedule, words):
    config = {"env": {"name": "probe:constant", "episode_length_schedule": schedule}}
    with pytest.raises(ConfigError) as error:
        from_dict(config)
    assert all(word in str(error.value) for word in ("env.episode_length_schedule", *words)), error.value


class Grows(Walk):
    """Its observation has another type in an iteration."""

    def at_iteration(self, iteration):
        class Other(Walk):
            def reset(self, key):
                state = super().reset(key)
                return state.replace(obs=state.obs | {"position": jnp.int32(1) * (state.obs["position"] > 0)})

        return Other()


def test_the_environment_of_an_iteration_keeps_its_shapes():
    contract.check(Wind())
    with pytest.raises(
        contract.ContractError, match=r"at_iteration: reset: state.*position.*int32.*without it.*float32"
    ):
        contract.check(Grows())


def test_play_uses_the_iteration_of_the_checkpoint(tmp_path):
    runner = make_runner(tmp_path, mesh=make_mesh(jax.devices()[:1]))
    runner.learn(3)
    runner.close()
    trained = load.load(runner.checkpointer, [("last", 3)], runner.config, runner.env)
    assert int(trained.env.env.iteration) == 3
