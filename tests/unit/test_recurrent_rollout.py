"""A rollout with memories: what was collected, the batched passes over it and single steps by hand agree."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import Walk
from tiny import make_algorithm, make_state, normal

from strl_jax.algorithms import losses, minibatch, ppo, returns, rollout, update
from strl_jax.algorithms.base import Algorithm, apply_policy
from strl_jax.algorithms.compat import Compat
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.modules.stages import EstimatorStage, MemoryStage
from strl_jax.runners.evaluation import first_episodes
from strl_jax.types import Array, Batch, EpisodeSums, PolicyOutput, Rollout, RolloutState, TrainState

T, B, LIMIT = 9, 16, 4
ENV = EpisodeEnv(Walk(), LIMIT)
ESTIMATOR = EstimatorStage(inputs=("position",), targets=("goal",), hidden_sizes=(8,), replace_prob=0.5)


def make(kind: str, layers: int = 2, *, estimator=None, compat=None) -> Algorithm:
    """PPO with a memory over all of ``Walk``, observations normalised."""
    plain = make_algorithm(compat, env=ENV.env, gamma=0.9, empirical_normalization=True)
    actor, critic = plain.groups["actor"], plain.groups["critic"]
    memory = MemoryStage(kind, 8, layers)
    policy = plain.policy.clone(memory=memory, estimator=estimator, actor_obs=actor, critic_obs=critic)
    config = plain.config if estimator is None else ppo.EstimatorPPOConfig(**plain.config.model_dump())
    return ppo.make(config, policy, actor, critic, plain.compat)


def start(algorithm: Algorithm):
    """A train state with statistics that matter, and fresh environments at random ages."""
    train_state = make_state(algorithm)
    train_state = train_state.replace(stats=jax.tree.map(lambda x: x + 0.5, train_state.stats))
    keys = jax.random.split(jax.random.key(0), B)
    episode, metrics = jax.jit(lambda keys: ENV.init(keys, True))(keys)
    sums = EpisodeSums(jnp.zeros(B), jnp.zeros(B, jnp.int32), metrics)
    full = jax.tree.map(lambda x: normal(1, 0, x.shape), algorithm.policy.initial_carry(B))  # must be cleared
    return train_state, RolloutState(episode, full, jnp.ones(B, bool), sums, jnp.zeros(B), {}, {}, keys)


@dataclass
class Collected:
    """One rollout: the states before and after it, and what one compiled program makes of it."""

    algorithm: Algorithm
    train_state: TrainState
    start: RolloutState
    end: RolloutState
    data: Rollout
    batch: Batch
    again: PolicyOutput
    other_masks: PolicyOutput
    terms: dict
    kl: Array


def program(algorithm: Algorithm):
    """Collects, prepares, and applies the policy to the whole batch and to a minibatch of five environments."""

    def run(train_state, state, key):
        pool = ENV.pool(key, B)
        train_state, end, data, _ = rollout.collect(
            algorithm, lambda episode, action, draw: ENV.step(episode, action, pool, draw), train_state, state, key, T
        )
        batch = update.prepare(algorithm, data)
        again = apply_policy(algorithm, train_state.params, batch)
        other = batch.replace(masks={name: ~mask for name, mask in batch.masks.items()})
        sample = minibatch.gather_envs(batch, jnp.array([11, 3, 8, 0, 14]))
        sample = sample.replace(weight=returns.weights(sample.weight, axis_name=None))
        terms, metrics = update.losses(algorithm, train_state.params, sample)
        surrogate = -jnp.sum(sample.weight * sample.advantage)
        other = apply_policy(algorithm, train_state.params, other) if batch.masks else again
        return train_state, end, data, batch, again, other, terms | {"expected": surrogate}, metrics["kl"]

    return jax.jit(run)


CASES = {
    "lstm": lambda: make("lstm"),
    "gru": lambda: make("gru"),
    "estimator": lambda: make("gru", 1, estimator=ESTIMATOR),
    "advance": lambda: make("lstm", 1, compat=Compat(advance_critic_memory=True)),
}


SLOW = ("gru", "estimator", "advance")


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in CASES]
)
def rollouts(request):
    """Two rollouts, one after the other: the second starts in the middle of episodes."""
    algorithm = CASES[request.param]()
    run, (train_state, state) = program(algorithm), start(algorithm)
    found = []
    for seed in (2, 3):
        new, end, *results = run(train_state, state, jax.random.key(seed))
        found.append(Collected(algorithm, train_state, state, end, *results))
        train_state, state = new, end
    return found


def stepper(algorithm: Algorithm, method: str):
    """``(train state, observation [B, ...], carry, masks)`` to the method's results for one step, memory as it is."""

    def step(train_state, obs, carry, masks):
        groups = algorithm.pack(train_state.stats, obs)
        extra = () if method == "value" else (masks,)
        reset = jnp.zeros(groups["actor"].shape[0], bool)
        return algorithm.policy.apply(train_state.params["policy"], groups, carry, reset, *extra, method=method)

    return jax.jit(step)


def cleared(carry: dict, reset) -> dict:
    """Empty memories where ``reset[B]``."""
    return jax.tree.map(lambda x: np.where(np.asarray(reset)[:, None, None], 0.0, x), carry)


def at(tree, t: int):
    return jax.tree.map(lambda x: x[t], tree)


def walked(obs: dict, action) -> dict:
    """What ``Walk`` shows after the action, whether the episode ends or not."""
    position, goal = obs["position"][:, 0] + 0.1 * action[:, 0], obs["goal"][:, 0, 0]
    return {"position": position[:, None], "goal": jnp.stack([goal, position - goal], axis=-1)[:, None]}


def test_episodes_end_inside_the_sequence(rollouts):
    for one in rollouts:
        steps = one.data.steps
        inside = steps.done[:-1]
        assert (inside & steps.timeout[:-1]).any()
        assert (inside & ~steps.timeout[:-1]).any()
        np.testing.assert_array_equal(steps.reset, np.concatenate([one.start.reset[None], inside]))
    first, second = rollouts
    assert first.start.reset.all()
    assert not second.start.reset.all()
    assert np.any(second.start.env.step > 0)


def test_ratio_is_one_before_an_update(rollouts):
    for one in rollouts:
        log_prob = losses.log_prob(one.batch.action, one.again.mean, one.again.std)
        assert log_prob.shape == (T, B)
        np.testing.assert_allclose(np.exp(log_prob - one.batch.log_prob), 1.0, atol=1e-5)
        np.testing.assert_allclose(one.again.mean, one.batch.mean, atol=1e-5)
        np.testing.assert_allclose(one.again.value, one.batch.value, atol=1e-5)
        assert one.kl < 1e-6
        # With a ratio of 1 the surrogate is minus the mean advantage.
        np.testing.assert_allclose(one.terms["surrogate_loss"], one.terms["expected"], atol=1e-5)


def test_masks_are_stored(rollouts):
    """Estimates stood where the masks say; with the opposite masks the ratio is another."""
    for one in rollouts:
        if one.algorithm.policy.estimator is None:
            assert one.batch.masks == {}
            continue
        masks = one.batch.masks["estimator"]
        assert masks.shape == (T, B)
        assert 0.3 < masks.mean() < 0.7  # 144 draws of one half: deviation sqrt(0.25 / 144) = 0.04
        change = np.abs(one.other_masks.mean - one.batch.mean)
        assert np.median(change) > 1e-3


def test_values_are_those_of_single_steps(rollouts):
    """And so are bootstraps, each with the critic's memory after its step, and the last value."""
    step = stepper(rollouts[0].algorithm, "value")
    for one in rollouts:
        steps, carry = one.data.steps, one.start.carry
        for t in range(T):
            carry = cleared(carry, steps.reset[t])
            obs = at(steps.obs, t)
            value, after = step(one.train_state, obs, carry, {})
            np.testing.assert_allclose(steps.value[t], value, atol=1e-5)
            carry = carry | after
            terminal, _ = step(one.train_state, walked(obs, steps.action[t]), carry, {})
            bootstrap = np.where(steps.timeout[t], terminal, 0.0)
            np.testing.assert_allclose(steps.bootstrap[t], bootstrap, atol=1e-5)
        following = cleared(carry, steps.done[-1])
        value, ahead = step(one.train_state, one.end.env.env.obs, following, {})
        np.testing.assert_allclose(one.data.last_value, value, atol=1e-5)
        advances = one.algorithm.compat.advance_critic_memory
        expected = ahead["critic"] if advances else carry["critic"]
        assert np.abs(ahead["critic"]["hidden"] - carry["critic"]["hidden"]).max() > 1e-2
        for name, leaf in expected.items():
            np.testing.assert_allclose(one.end.carry["critic"][name], leaf, atol=1e-5)
        np.testing.assert_array_equal(one.end.reset, np.zeros(B, bool) if advances else steps.done[-1])


def test_means_are_those_of_single_steps(rollouts):
    step = stepper(rollouts[0].algorithm, "act")
    for one in rollouts:
        steps, carry = one.data.steps, one.start.carry
        for t in range(T):
            carry = cleared(carry, steps.reset[t])
            mean, std, carry = step(one.train_state, at(steps.obs, t), carry, at(steps.masks, t))
            np.testing.assert_allclose(steps.mean[t], mean, atol=1e-5)
            np.testing.assert_allclose(steps.std[t], std, rtol=1e-6)
        if one.algorithm.compat.advance_critic_memory:  # it has taken the reset on itself
            carry = cleared(carry, steps.done[-1])
        for name in carry.keys() - {"critic"}:
            for leaf, expected in zip(jax.tree.leaves(one.end.carry[name]), jax.tree.leaves(carry[name]), strict=True):
                np.testing.assert_allclose(leaf, expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_evaluation_is_a_loop_by_hand(kind):
    """Every episode starts with an empty memory, and keeps it from step to step."""
    algorithm = make(kind)
    train_state, _ = start(algorithm)
    keys = jax.random.split(jax.random.key(5), B)
    sums, valid, _ = jax.jit(lambda state: first_episodes(ENV, algorithm, state, keys))(train_state)
    state, _ = jax.jit(lambda keys: ENV.init(keys, False))(keys)
    step = stepper(algorithm, "act")

    def play(forgets: bool):
        obs, carry = state.env.obs, algorithm.policy.initial_carry(B)
        total, length, running = np.zeros(B), np.zeros(B), np.ones(B, bool)
        for _ in range(LIMIT):
            mean, _, carry = step(train_state, obs, carry, {})
            carry = cleared(carry, np.full(B, forgets))
            obs = walked(obs, mean)
            total -= np.where(running, np.abs(obs["goal"][:, 0, 1]), 0.0)
            length += running
            running = running & (np.abs(obs["position"][:, 0]) <= 1.0)
        return total, length

    total, length = play(forgets=False)
    assert valid.all()
    np.testing.assert_allclose(sums.reward, total, rtol=1e-5)
    np.testing.assert_array_equal(sums.length, length)
    assert np.abs(play(forgets=True)[0] - total).max() > 1e-3
