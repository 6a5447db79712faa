"""A queue of rollouts against a plain one: what the update learns from, with a memory and without."""

from collections import deque
from dataclasses import replace

import jax
import numpy as np
import pytest
from tiny import make_algorithm, make_env, make_state, start_states

from strl_jax.algorithms import memory, rollout, update
from strl_jax.algorithms.base import Algorithm, apply_policy
from strl_jax.algorithms.compat import Compat
from strl_jax.algorithms.prepare import bootstrapped_reward, prepare
from strl_jax.modules.stages import MemoryStage

T, B, ROLLOUTS = 4, 4, 5
FRACTION = 2.5  # of T: 10 steps, the oldest ones in the middle of a rollout


def make(env, ratio: float, kind: str | None = None, compat: Compat | None = None) -> Algorithm:
    """PPO with a queue; the critic sees more than the actor where the environment offers it."""
    algorithm = make_algorithm(compat, env=env.env, gamma=0.9, lam=0.8)
    stage = None if kind is None else MemoryStage(kind, 3, 1)
    return replace(algorithm, policy=algorithm.policy.clone(memory=stage), queue=ratio)


def test_an_update_without_the_memory_is_refused():
    algorithm = replace(make_algorithm(), queue=2.5)
    with pytest.raises(ValueError, match=r"memory=memory\.remember"):
        update.update(algorithm, None, None, jax.random.key(0))


def play(env, algorithm: Algorithm):
    """Every rollout with its own batch, its bootstrapped rewards, what the update gets, and the policy on that."""
    state, pool = start_states(env, algorithm, B, T)

    @jax.jit
    def step(train, state, key):
        def env_step(episode, action, draw):
            return env.step(episode, action, pool, draw)

        train, state, rolled, _ = rollout.collect(algorithm, env_step, train, state, key, T)
        state = state.replace(memory=memory.remember(algorithm, state.memory, rolled))
        batch = memory.recall(algorithm, state.memory, rolled)
        own = prepare(algorithm, rolled)
        again = apply_policy(algorithm, train.params, batch)
        reward = bootstrapped_reward(algorithm, rolled.steps)
        return state, (rolled, own, reward, batch, again)

    train, found = make_state(algorithm), []
    for number in range(ROLLOUTS):
        state, results = step(train, state, jax.random.key(number))
        found.append(jax.device_get(results))
    return found


def rows(tree) -> list:
    """Steps of a tree ``[T, B, ...]``, one by one."""
    return [jax.tree.map(lambda leaf, t=t: leaf[t], tree) for t in range(T)]


def check_row(batch, row: int, wanted, message: str, skip=()):
    """One step of the batch equals the step ``wanted``."""
    actual = jax.tree.map(lambda leaf: leaf[row], batch.replace(carry={}))
    for (path, a), b in zip(jax.tree.leaves_with_path(actual), jax.tree.leaves(wanted), strict=True):
        name = jax.tree_util.keystr(path)
        if name not in skip:
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6, err_msg=f"{message} {name}")


def test_feed_forward():
    """Every rollout keeps the advantages and returns that it had; step n lies in row n % 10."""
    found = play(make_env("teacher", 3, delay=2), make(make_env("teacher", 3, delay=2), FRACTION))
    kept, written = deque(maxlen=10), 0
    for number, (rolled, own, _, batch, _) in enumerate(found):
        for one in rows(own.replace(carry={})):
            kept.append((written % 10, one))
            written += 1
        # 4 steps, 8, and from the third rollout on int(2.5 * 4) = 10
        assert len(kept) == (4, 8, 10, 10, 10)[number]
        assert batch.value.shape == (10, B)
        for row, one in kept:
            check_row(batch, row, one, f"rollout {number} row {row}")
        filled = sorted(row for row, _ in kept)
        np.testing.assert_array_equal(batch.weight.sum(axis=1), [B * (row in filled) for row in range(10)])
        assert 0 < rolled.steps.done.mean() < 1


def reference_carries(algorithm: Algorithm, rollouts: list) -> list[dict]:
    """The policy's memories before every step, by single steps from empty ones."""
    params = make_state(algorithm).params["policy"]
    one = jax.jit(lambda obs, carry, reset: algorithm.policy.apply(params, algorithm.pack({}, obs), carry, reset).carry)
    carry, carries = algorithm.policy.initial_carry(B), []
    for rolled in rollouts:
        for t in range(T):
            carries.append(carry)
            carry = one(jax.tree.map(lambda leaf, t=t: leaf[t], rolled.steps.obs), carry, rolled.steps.reset[t])
    return carries


@pytest.mark.parametrize(
    ("ratio", "kind"), [(FRACTION, "gru"), pytest.param(2, "lstm", marks=pytest.mark.slow)], ids=["fraction", "whole"]
)
def test_recurrent(ratio, kind):
    """In order; it starts from the memory before the oldest step; weights that stay give what was collected."""
    env = make_env("teacher", 3, delay=2)
    algorithm = make(env, ratio, kind)
    found, capacity = play(env, algorithm), int(ratio * T)
    carries = reference_carries(algorithm, [rolled for rolled, *_ in found])
    kept = deque(maxlen=capacity)
    for number, (_, own, _, batch, again) in enumerate(found):
        kept.extend(rows(own.replace(carry={})))
        first = capacity - len(kept)  # rows not written yet lie in front
        for row, one in enumerate(kept, first):
            check_row(batch, row, one, f"rollout {number} row {row}")
        np.testing.assert_array_equal(batch.weight[:first], 0.0)
        np.testing.assert_array_equal(batch.weight[first:], 1.0)
        assert batch.reset[first:].any()
        if first == 0:
            oldest = carries[(number + 1) * T - capacity]
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), batch.carry, oldest)
            moved = (number + 1) * T > capacity  # else it is the run's first step
            assert all(leaf.any() == moved for leaf in jax.tree.leaves(batch.carry))
            assert batch.reset[0].all() == (not moved)  # some start from that memory
        else:
            assert batch.reset[first].all()  # the run's first step
        np.testing.assert_allclose(again.mean[first:], batch.mean[first:], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(again.value[first:], batch.value[first:], rtol=1e-5, atol=1e-6)
    assert number == ROLLOUTS - 1


def looped(steps: list[dict], last_value: np.ndarray, gamma: float, lam: float):
    """Advantages and returns over rows as they lie, written out; invalid steps have delta 0."""
    advantage, after, next_value = np.zeros((len(steps), B)), np.zeros(B), last_value
    for row in reversed(range(len(steps))):
        one = steps[row]
        going = 1.0 - one["done"]
        delta = one["reward"] + gamma * going * next_value - one["value"]
        after = np.where(one["valid"], delta, 0.0) + gamma * lam * going * after
        advantage[row], next_value = after, one["value"]
    return advantage, advantage + np.stack([one["value"] for one in steps])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"), [("nan", None), ("teacher", "gru")], ids=["feed_forward_with_nan", "recurrent"]
)
def test_looped_returns(name, kind):
    """st_rl's returns over the buffer as it was written; recurrent minibatches put the steps in order, not these."""
    options = {"probability": 0.3} if name == "nan" else {"delay": 2}
    env = make_env(name, 3, **options)
    algorithm = make(env, FRACTION, kind, Compat(looped_returns=True))
    lying, cursor, differs = [None] * 10, 0, False
    for rolled, _, reward, batch, _ in play(env, algorithm):
        steps = rolled.steps
        if kind is not None and None not in lying:  # what the minibatches of the last update left behind
            lying, cursor = lying[cursor:] + lying[:cursor], 0
        fields = {"reward": reward, "value": steps.value, "done": steps.done, "valid": steps.valid}
        for one in rows(fields):
            lying[cursor % 10], cursor = one, (cursor + 1) % 10
        buffer = [one for one in lying if one is not None]
        advantage, return_ = looped(buffer, rolled.last_value, 0.9, 0.8)
        valid = np.stack([one["valid"] for one in buffer])
        some = advantage[valid]
        advantage = np.where(valid, (advantage - some.mean()) / (some.std(ddof=1) + 1e-8), 0.0)

        where = slice(0, len(buffer)) if kind is None else slice(10 - len(buffer), 10)
        np.testing.assert_array_equal(batch.weight[where], valid)
        assert batch.weight.sum() == valid.sum()
        np.testing.assert_allclose(batch.advantage[where], advantage, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(batch.return_[where][valid], return_[valid], rtol=1e-4, atol=1e-5)
        differs |= cursor not in (0, len(buffer))  # it has wrapped
    assert differs
    assert name != "nan" or not valid.all()
