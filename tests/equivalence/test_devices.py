"""One update on one device and on four, from the same samples, is the same update."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from tiny import make_algorithm, make_outputs, make_rollout_state, make_state

from strl_jax.algorithms.finish import finish
from strl_jax.algorithms.update import update
from strl_jax.sharding import AXIS, make_mesh, shard_jit

SHARDS, T, B = 4, 6, 8
EPOCHS, MINIBATCHES = 2, 3
LOCAL = T * B // SHARDS


def local_plans() -> np.ndarray:
    """Sample indices of every shard, ``[shard, update, M]``: another shuffle on each."""
    rng = np.random.default_rng(3)
    plans = [[rng.permutation(LOCAL).reshape(MINIBATCHES, -1) for _ in range(EPOCHS)] for _ in range(SHARDS)]
    return np.asarray(plans, np.int32).reshape(SHARDS, EPOCHS * MINIBATCHES, -1)


ORDERED = ("episode_reward", "episode_length")  # they depend on the order of environments


def global_plan(local: np.ndarray) -> np.ndarray:
    """The same minibatches in the indices of the whole rollout, ``[update, SHARDS * M]``."""
    envs = B // SHARDS
    step, env = local // envs, local % envs + envs * np.arange(SHARDS)[:, None, None]
    return np.concatenate(step * B + env, axis=-1)


def uneven_valid() -> np.ndarray:
    """bool[T, B]: shard 0 has not one valid step, shard 1 lacks three, shard 3 one."""
    valid = np.ones((T, B), bool)
    valid[:, :2] = False
    valid[[0, 2, 3], [2, 3, 3]] = False
    valid[5, 7] = False
    return valid


def run(algorithm, devices: int, plan):
    """One iteration on so many devices, from the end of the steps to new weights.

    Returns:
        The first train state; then the new one with all metrics that do not depend
        on the order of environments, and the episode sums.
    """
    train_state, states = make_state(algorithm), (make_rollout_state(5, B), make_rollout_state(6, B))
    outputs = make_outputs(algorithm, train_state, 7, T, B, jnp.asarray(uneven_valid()))
    key = jax.random.key(0)

    def iteration(train_state, states, outputs, plan):
        train_state, end, data, metrics = finish(algorithm, train_state, *states, train_state.stats, outputs, AXIS)
        train_state, summary = update(algorithm, train_state, data, key, plan=plan[0], axis_name=AXIS)
        shared = {name: value for name, value in vars(metrics).items() if name not in ORDERED}
        return (train_state, summary | shared), (end.episode, end.discounted)

    step = shard_jit(
        iteration,
        make_mesh(jax.devices()[:devices]),
        in_specs=(P(), P(AXIS), P(None, AXIS), P(AXIS)),
        out_specs=(P(), P(AXIS)),
    )
    return train_state, step(train_state, states, outputs, jnp.asarray(plan))


@pytest.fixture(scope="module")
def results():
    """Start, then the iteration's results on one device and on four."""
    algorithm = make_algorithm(
        num_learning_epochs=EPOCHS,
        num_mini_batches=MINIBATCHES,
        schedule="adaptive",
        desired_kl=1e-3,
        entropy_coef=0.01,
        max_grad_norm=0.5,
        empirical_normalization=True,
        normalize_rewards=True,
    )
    local = local_plans()
    start, one = run(algorithm, 1, global_plan(local)[None])
    _, four = run(algorithm, SHARDS, local)
    return start, one, four


def test_one_device_is_four(results):
    _, one, four = results
    leaves = zip(jax.tree.leaves_with_path(one), jax.tree.leaves(four), strict=True)
    for (path, a), b in leaves:
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=jax.tree_util.keystr(path))


def test_the_comparison_covers_everything(results):
    """Every weight, the learning rate and every statistic has moved; invalid steps were left out."""
    start, ((state, metrics), _), _ = results
    lost = 12 + 3 + 1
    assert metrics["invalid"] == lost
    for stats in (*state.stats["actor"].values(), *state.stats["critic"].values(), state.stats["reward"]):
        assert stats.count == T * B - lost
    moved = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), start.params, state.params)
    assert all(jax.tree.leaves(moved))
    assert state.learning_rate["policy"] != start.learning_rate["policy"]
    assert 0 < metrics["grad_norm"] < jnp.inf
    assert metrics["skipped"] == 0


def test_every_shard_holds_the_same_state(results):
    *_, ((state, _), _) = results
    for leaf in jax.tree.leaves(state):
        first, *others = [np.asarray(shard.data) for shard in leaf.addressable_shards]
        assert len(others) == SHARDS - 1
        for other in others:
            np.testing.assert_array_equal(first, other)
