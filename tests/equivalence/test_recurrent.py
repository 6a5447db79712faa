"""Policies with a memory: any number of devices, a loop or a scan, stopped or not, it is the same training."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import Walk, log, same, settings, untimed
from jax.sharding import PartitionSpec as P
from test_compilations import call_thrice
from test_host_loop import same_in_both_loops
from tiny import ACTION_SIZE, make_algorithm, make_env, make_obs, make_state, normal

from strl_jax.algorithms import losses, train_step
from strl_jax.algorithms.base import Algorithm
from strl_jax.algorithms.compat import Compat
from strl_jax.algorithms.update import update
from strl_jax.modules.stages import MemoryStage
from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.sharding import AXIS, make_mesh, shard_jit
from strl_jax.types import Rollout, Transition

SHARDS, T, B = 4, 6, 8
ONE = make_mesh(jax.devices()[:1])


def with_memory(algorithm: Algorithm, kind: str = "lstm", layers: int = 1) -> Algorithm:
    """The same algorithm over a policy with a memory."""
    return replace(algorithm, policy=algorithm.policy.clone(memory=MemoryStage(kind, 8, layers)))


def some(seed: int, shape: tuple[int, ...]):
    """bool, true in about a sixth of the places."""
    return normal(seed, 0, shape) > 1.0


def made_up(algorithm: Algorithm, train_state) -> Rollout:
    """A rollout of made-up numbers with ends, time-outs, invalid steps and memories that are not empty."""
    batch, actions = (T, B), (T, B, ACTION_SIZE)
    valid = jnp.asarray(np.arange(T * B).reshape(batch) % 11 != 4)
    done = some(1, batch) | ~valid
    mean, std = normal(2, 0, actions), jnp.full(actions, 1.5)
    action = mean + std * normal(2, 1, actions)
    steps = Transition(
        obs=make_obs(3, batch),
        action=action,
        log_prob=losses.log_prob(action, mean, std),
        value=normal(2, 2, batch),
        mean=mean,
        std=std,
        reward=jnp.where(valid, normal(2, 3, batch), 0.0),
        done=done,
        timeout=done & valid & some(4, batch),
        bootstrap=normal(2, 4, batch),
        valid=valid,
        reset=jnp.concatenate([some(5, (1, B)), done[:-1]]),
        masks={},
        extras={},
    )
    carry = jax.tree.map(lambda x: normal(6, 0, x.shape), algorithm.policy.initial_carry(B))
    return Rollout(steps=steps, carry0=carry, last_value=normal(7, 0, (B,)), stats=train_state.stats)


def run(algorithm: Algorithm, devices: int, plan):
    """Train state and metrics after one update on so many devices with ``plan[shard, update, M]``."""

    def step(train_state, data, plan):
        return update(algorithm, train_state, data, jax.random.key(0), plan=plan[0], axis_name=AXIS)

    train_state = make_state(algorithm)
    specs = (P(), train_step.ROLLOUT_SPECS, P(AXIS))
    step = shard_jit(step, make_mesh(jax.devices()[:devices]), in_specs=specs, out_specs=P())
    return step(train_state, made_up(algorithm, train_state), jnp.asarray(plan))


@pytest.mark.parametrize(("kind", "layers"), [("lstm", 1), pytest.param("gru", 2, marks=pytest.mark.slow)])
def test_one_device_is_four(kind, layers):
    """Two environments a shard, one in each minibatch, in another order on each; two epochs."""
    algorithm = with_memory(
        make_algorithm(schedule="adaptive", empirical_normalization=True, num_mini_batches=2, num_learning_epochs=2),
        kind,
        layers,
    )
    local = np.array([[0, 1, 1, 0], [1, 0, 0, 1], [0, 1, 0, 1], [1, 0, 1, 0]], np.int32)[:, :, None]
    whole = (local[:, :, 0] + B // SHARDS * np.arange(SHARDS)[:, None]).T  # [update, environments of all shards]
    one, four = run(algorithm, 1, whole[None]), run(algorithm, SHARDS, local)
    for (path, a), b in zip(jax.tree.leaves_with_path(one), jax.tree.leaves(four), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=jax.tree_util.keystr(path))

    state, metrics = one
    moved = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), make_state(algorithm).params, state.params)
    assert all(jax.tree.leaves(moved))
    lost = 4  # of the places 0 ... 47 those with remainder 4 by 11: 4, 15, 26, 37
    assert state.stats["actor"]["joints"].count == T * B - lost
    assert metrics["skipped"] == 0


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
    assert metrics["invalid"] > 0
    assert 0 < data.steps.reset.mean() < 1
    for name in ("actor", "critic"):
        assert (end.carry[name]["hidden"] != carry[name]["hidden"]).all()


@pytest.mark.slow
def test_resumed_run_is_the_straight_run(tmp_path):
    """Four iterations, saved with the memories as they are in the middle of episodes, and two more."""
    config = settings(tmp_path, eval_interval=2, policy_class_name="ActorCriticRecurrent")
    config["policy"] |= {"rnn_type": "lstm", "rnn_hidden_size": 4}

    def learn(name: str, iterations: int, resume: bool = False) -> OnPolicyRunner:
        runner = OnPolicyRunner(Walk(), config, tmp_path / name, ONE)
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
