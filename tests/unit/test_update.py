"""One iteration: floors, skipped updates, schedules, and statistics that stand still while they are used."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import make_algorithm, make_batch, make_env, make_state

from strl_jax.algorithms import losses, rollout, update
from strl_jax.algorithms.base import apply_policy
from strl_jax.algorithms.compat import Compat
from strl_jax.algorithms.train_step import init_states
from strl_jax.sharding import make_mesh

COMPATS = pytest.mark.parametrize("compat", [Compat(), Compat.st_rl()], ids=["default", "st_rl"])
T, B = 4, 6


def run_epochs(algorithm, *, change=lambda state: state, poison=(), plan=None, transforms=()):
    """Epochs over a made-up batch: the state before, the state after, and the metrics of every update.

    Args:
        change: applied to the fresh state.
        poison: samples ``(t, e)`` whose advantage is not a number.
        plan: sample indices of every update.
        transforms: of the minibatches.
    """

    state = change(make_state(algorithm))
    batch = make_batch(algorithm, state, 1, T, B)
    for step, env in poison:
        batch = batch.replace(advantage=batch.advantage.at[step, env].set(jnp.nan))
    key = jax.random.key(0)
    options = {"plan": plan, "transforms": transforms}
    return state, *jax.jit(lambda *args: update.epochs(algorithm, *args, key, **options))(state, batch)


def std_of(algorithm, state):
    """Standard deviation of the actions, ``[A]``."""
    leaves = state.params["policy"]["params"]
    return leaves["std"] if algorithm.compat.linear_std else jnp.exp(leaves["log_std"])


@COMPATS
@pytest.mark.parametrize("least", [3.0, (0.1, 3.0)], ids=["number", "list"])
def test_floor_of_the_deviation(compat, least):
    """Deviations start at 1; a floor of 3 lifts them, one of 0.1 does not."""
    algorithm = make_algorithm(compat, clip_min_std=least, learning_rate=1e-3)
    _, state, _ = run_epochs(algorithm)
    first, second = std_of(algorithm, state)
    np.testing.assert_allclose(second, 3.0, rtol=1e-6)
    np.testing.assert_allclose(first, 3.0 if least == 3.0 else 1.0, rtol=2e-3)


@COMPATS
def test_deviation_comes_back_from_the_floor(compat):
    """At the floor the gradient is alive: a bonus for entropy lifts the deviation above it."""
    algorithm = make_algorithm(compat, clip_min_std=1.0, entropy_coef=1e3, learning_rate=1e-2)
    _, state, _ = run_epochs(algorithm)
    assert (std_of(algorithm, state) > 1.005).all()


def test_gradient_that_is_not_finite_is_skipped_and_counted():
    plan = jnp.arange(T * B, dtype=jnp.int32).reshape(3, 8)
    # Sample (1, 2) is 1 * 6 + 2 = 8, the first of the second minibatch.
    algorithm = make_algorithm()
    start, state, metrics = run_epochs(algorithm, poison=[(1, 2)], plan=plan)
    np.testing.assert_array_equal(metrics["skipped"], [0, 1, 0])
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(state.params))
    _, without, _ = run_epochs(algorithm, plan=plan[jnp.asarray([0, 2])])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), state.params, without.params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), state.opt_state, without.opt_state)

    start, state, metrics = run_epochs(algorithm, poison=[(1, 2)], plan=plan[1:2])
    jax.tree.map(np.testing.assert_array_equal, (state.params, state.opt_state), (start.params, start.opt_state))
    assert metrics["skipped"].sum() == 1


def at_iteration(number):
    return lambda state: state.replace(iteration=jnp.int32(number))


def test_learning_rate_follows_its_schedule():
    schedule = {"name": "linear", "init_value": 1e-3, "end_value": 0.0, "transition_steps": 4}
    algorithm = make_algorithm(schedule=schedule, num_mini_batches=2)
    # 1e-3 * (1 - 3 / 4), all through the iteration
    _, state, metrics = run_epochs(algorithm, change=at_iteration(3))
    np.testing.assert_allclose(metrics["learning_rate"], [2.5e-4, 2.5e-4], rtol=1e-5)
    assert state.iteration == 4


@pytest.mark.slow
def test_entropy_coefficient_follows_its_schedule():
    schedule = {"name": "linear", "init_value": 0.8, "end_value": 0.0, "transition_steps": 4}
    algorithm = make_algorithm(entropy_coef=schedule, value_loss_coef=0.5)
    for number, coef in [(0, 0.8), (1, 0.6), (4, 0.0)]:
        *_, metrics = run_epochs(algorithm, change=at_iteration(number))
        expected = metrics["surrogate_loss"] + 0.5 * metrics["value_loss"] + coef * metrics["entropy"]
        np.testing.assert_allclose(metrics["total_loss"], expected, rtol=1e-5)
        # two actions of deviation 1: 2 * (0.5 + 0.5 ln(2 pi)) = 2.8378771
        np.testing.assert_allclose(metrics["entropy"][0], -2.8378771, rtol=1e-5)


def test_adapted_rate_serves_its_own_minibatch():
    """Fresh weights: the KL of update 0 is 0 and leaves the rate; with a tiny aim the next ones lower it."""
    algorithm = make_algorithm(schedule="adaptive", desired_kl=1e-9, num_mini_batches=3, learning_rate=9e-3)
    _, state, metrics = run_epochs(algorithm)
    # 9e-3, 9e-3 / 1.5, 6e-3 / 1.5
    np.testing.assert_allclose(metrics["learning_rate"][1:], metrics["learning_rate"][:2] / 1.5, rtol=1e-5)
    np.testing.assert_allclose(state.learning_rate["policy"], metrics["learning_rate"][-1])
    assert (metrics["kl"][1:] > 2e-9).all()


def test_number_of_updates_and_plan_from_the_key():
    algorithm = make_algorithm(num_learning_epochs=2, num_mini_batches=3)
    *_, metrics = run_epochs(algorithm)
    assert metrics["kl"].shape == (6,)


def collect_and_update(compat):
    """A policy's second iteration, with normalisation on and NaN steps among its samples.

    Returns:
        algorithm, states before collecting, after collecting, after the epochs and
        after the update; the rollout; the prepared batch.
    """
    algorithm = make_algorithm(
        compat, env=make_env("nan", 3).env, empirical_normalization=True, num_learning_epochs=2, num_mini_batches=2
    )
    env = make_env("nan", 3, probability=0.2)
    train_state, state = init_states(env, algorithm, make_mesh(jax.devices()[:1]), jax.random.key(0), B)
    pool = env.pool(jax.random.key(1), 16 * B)

    @jax.jit
    def iteration(before, state, key):
        def env_step(episode, action, key):
            return env.step(episode, action, pool, key)

        collected, state, data, _ = rollout.collect(algorithm, env_step, before, state, key, T)
        batch = update.prepare(algorithm, data)
        trained, _ = update.epochs(algorithm, collected, batch, key)
        after, _ = update.update(algorithm, collected, data, key)
        return (before, collected, trained, after), state, data, batch

    states, state, *_ = iteration(train_state, state, jax.random.key(2))
    states, _, data, batch = iteration(states[-1], state, jax.random.key(3))
    return algorithm, states, data, batch


@pytest.mark.parametrize(
    "compat", [Compat(), pytest.param(Compat.st_rl(), marks=pytest.mark.slow)], ids=["default", "st_rl"]
)
def test_statistics_and_ratio(compat):
    algorithm, (before, collected, trained, after), data, batch = collect_and_update(compat)
    valid = data.steps.valid
    assert 0 < (~valid).sum() < valid.size // 2

    def same(a, b):
        return all(jax.tree.leaves(jax.tree.map(lambda x, y: bool((x == y).all()), a.stats, b.stats)))

    # Statistics move once: while collecting (st_rl) or after the epochs, and only by the valid samples.
    assert same(collected, trained)
    assert same(before, collected) != compat.normalize_while_collecting
    assert same(trained, after) == compat.normalize_while_collecting
    counts = [s.stats["critic"]["state"].count for s in (before, after)]
    np.testing.assert_allclose(counts[1] - counts[0], valid.sum())

    # The weights have not moved since the rollout: what collected it is what learns from it.
    output = jax.jit(lambda params, batch: apply_policy(algorithm, params, batch))(collected.params, batch)
    log_prob = losses.log_prob(batch.action, output.mean, output.std)
    np.testing.assert_allclose(jnp.exp(log_prob - batch.log_prob)[valid], 1.0, rtol=1e-5)
    np.testing.assert_allclose(output.value[valid], batch.value[valid], rtol=1e-5, atol=1e-6)
    kl = losses.gaussian_kl(batch.mean, batch.std, output.mean, output.std)
    np.testing.assert_allclose(kl[valid], 0.0, atol=1e-6)
    assert jnp.std(batch.groups["actor"]) > 0.1


def test_transforms_change_the_minibatches():
    """A doubled minibatch has the same means: transforms come before the weights. They are applied in order."""
    algorithm = make_algorithm(num_mini_batches=2)

    def double(sample, key):
        return jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf]), sample)

    def add(sample, key):
        return sample.replace(return_=sample.return_ + 1.0)

    def scale(sample, key):
        return sample.replace(return_=2.0 * sample.return_)

    def value_loss(*transforms):
        *_, metrics = run_epochs(algorithm, transforms=transforms)
        return np.asarray(metrics["value_loss"])

    np.testing.assert_allclose(value_loss(double), value_loss(), rtol=1e-5)
    assert (abs(value_loss(add, scale) - value_loss(scale, add)) > 0.1).all()
