"""Policies with a memory: any number of devices, a loop or a scan, stopped or not, it is the same training."""

import jax
import pytest
from commands import Walk, log, same, settings, untimed
from equivalent import B, T, call_thrice, same_in_both_loops, some, with_memory
from tiny import make_algorithm, make_env, make_state, normal

from strl_jax.algorithms import train_step
from strl_jax.algorithms.compat import Compat
from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.sharding import make_mesh

ONE = make_mesh(jax.devices()[:1])


@pytest.mark.parametrize(
    ("kind", "compat"),
    [("lstm", Compat()), ("gru", Compat.st_rl())],
    ids=["default", "st_rl"],
)
@pytest.mark.slow
def test_host_loop_is_scan(kind, compat):
    """With episodes that end, time out and break."""
    env = make_env("nan", 2, probability=0.3)
    algorithm = with_memory(make_algorithm(compat, env=env.env), kind)
    _, state = train_step.init_states(env, algorithm, ONE, jax.random.key(0), B)
    carry = jax.tree.map(lambda x: normal(6, 0, x.shape), state.carry)
    state = state.replace(carry=carry, reset=some(5, (B,)))
    pool = jax.jit(lambda key: env.pool(key, 16 * B))(jax.random.key(1))
    env_step = jax.jit(lambda episode, action, key: env.step(episode, action, pool, key))
    arguments = (make_state(algorithm), state, jax.random.key(2))

    _, end, data, metrics = same_in_both_loops(algorithm, env_step, arguments, T)
    assert metrics.invalid > 0
    assert 0 < data.steps.reset.mean() < 1
    for name in ("actor", "critic"):
        assert (end.carry[name]["hidden"] != carry[name]["hidden"]).all()


@pytest.mark.slow
def test_resumed_run_is_the_straight_run(tmp_path):
    """Four iterations, saved with the memories as they are in the middle of episodes, and two more."""
    config = settings(tmp_path, eval_interval=2, policy_class_name="ActorCriticRecurrent")
    config["policy"] |= {"rnn_type": "lstm", "rnn_hidden_size": 4}

    def learn(name: str, iterations: int, resume: bool = False) -> OnPolicyRunner:
        runner = OnPolicyRunner(Walk(), config, tmp_path / name, mesh=ONE)
        if resume:
            assert runner.load(tmp_path / name) == []
        runner.learn(iterations)
        runner.close()
        return runner

    straight = learn("straight", 6)
    stopped = learn("stopped", 4)
    resumed = learn("stopped", 2, resume=True)
    assert straight.progress.iteration == resumed.progress.iteration == 6
    assert same(straight.train_state, resumed.train_state)
    assert same(straight.rollout_state, resumed.rollout_state)
    assert untimed(log(straight.log_dir)) == untimed(log(resumed.log_dir))
    memories = [leaf for name in ("actor", "critic") for leaf in jax.tree.leaves(stopped.rollout_state.carry[name])]
    assert all(leaf.any() for leaf in memories)
    assert not stopped.rollout_state.reset.all()


@pytest.mark.slow
def test_later_iterations_compile_nothing():
    """On two devices; one compilation with the first call."""
    env = make_env("remember", 3, delay=2)
    algorithm = with_memory(make_algorithm(env=env.env, schedule="adaptive", num_mini_batches=2))
    mesh = make_mesh(jax.devices()[:2])
    states = train_step.init_states(env, algorithm, mesh, jax.random.key(0), B)
    step = train_step.make_train_step(env, algorithm, mesh, 4)
    states, _ = call_thrice(step, states)
    assert int(states[0].iteration) == 3
