"""The policy outside of the training: what it acts on, what it remembers, what it keeps."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import SHAPES, make_algorithm, make_state, normal

from strl_jax.algorithms.base import Algorithm
from strl_jax.modules.stages import EstimatorStage, MemoryStage
from strl_jax.runners.inference import InferencePolicy

ENVS, STEPS = 3, 6
PROBABLE = EstimatorStage(inputs=("joints",), targets=("command",), hidden_sizes=(4,), replace_prob=0.5)


def make(**stages) -> tuple[Algorithm, dict, dict]:
    """An algorithm over ``SHAPES``, weights and statistics that matter."""
    plain = make_algorithm(empirical_normalization=True)
    actor, critic = plain.groups["actor"], plain.groups["critic"]
    algorithm = replace(plain, policy=plain.policy.clone(actor_obs=actor, critic_obs=critic, **stages))
    state = make_state(algorithm)
    stats = jax.tree.map(lambda x: x + 0.5, state.stats)
    return algorithm, state.params["policy"], stats


def observe(step: int, envs: int = ENVS) -> dict:
    return {name: normal(step, i, (envs, *shape)) for i, (name, shape) in enumerate(SHAPES.items())}


def by_hand(algorithm: Algorithm, variables: dict, stats: dict, dones: np.ndarray) -> np.ndarray:
    """Mean actions ``[T, B, A]`` of observations 0 to T - 1; ``dones[T, B]`` clear memories after each step."""

    @jax.jit
    def act(obs, carry, reset):
        groups = algorithm.pack(stats, obs, ("actor",))
        return algorithm.policy.apply(variables, groups, carry, reset, method="act")

    carry, reset, means = algorithm.policy.initial_carry(ENVS), jnp.ones(ENVS, bool), []
    for step, done in enumerate(dones):
        mean, _, carry = act(observe(step), carry, reset)
        carry = jax.tree.map(lambda leaf, done=done: jnp.where(done[:, None, None], 0.0, leaf), carry)
        reset = jnp.zeros(ENVS, bool)
        means.append(mean)
    return np.stack(means)


DONES = np.array([[0, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 0], [1, 1, 0], [0, 0, 0]], bool)


@pytest.mark.parametrize("kind", [None, "lstm", "gru"])
@pytest.mark.parametrize("dtype", [bool, int, float])
def test_steps_are_those_by_hand(kind, dtype):
    algorithm, variables, stats = make(memory=kind and MemoryStage(kind, 4, 2))
    policy = InferencePolicy(algorithm, variables, stats)
    expected = by_hand(algorithm, variables, stats, DONES)
    for step, done in enumerate(DONES):
        np.testing.assert_allclose(policy(observe(step)), expected[step], rtol=1e-5, atol=1e-6, err_msg=f"step {step}")
        policy.reset(done.astype(dtype))
    never = by_hand(algorithm, variables, stats, np.zeros_like(DONES))
    changed = np.abs(never - expected).max(axis=2) > 1e-4  # what the resets did
    # Of envs 0 and 1 all steps after their first reset, never of env 2.
    assert changed.tolist() == [
        [False, False, False],
        [False, False, False],
        [False, kind is not None, False],
        [kind is not None, kind is not None, False],
        [kind is not None, kind is not None, False],
        [kind is not None, kind is not None, False],
    ]


def test_reset_of_all():
    policy = InferencePolicy(*make(memory=MemoryStage("gru", 4)))
    first, second = policy(observe(0)), policy(observe(0))
    assert np.abs(first - second).max() > 1e-4
    policy.reset()
    np.testing.assert_array_equal(policy(observe(0)), first)


def test_marks_of_two_resets_are_added():
    algorithm, variables, stats = make(memory=MemoryStage("gru", 4))
    policies = [InferencePolicy(algorithm, variables, stats) for _ in range(2)]
    for policy in policies:
        policy(observe(0))
    policies[0].reset(np.array([True, False, False]))
    policies[0].reset(np.array([False, True, False]))
    policies[1].reset(np.array([True, True, False]))
    np.testing.assert_array_equal(policies[0](observe(1)), policies[1](observe(1)))


def test_arrays_and_names():
    algorithm, variables, stats = make(memory=MemoryStage("lstm", 4))
    named, flat = (InferencePolicy(algorithm, variables, stats) for _ in range(2))
    assert algorithm.groups["actor"].names == ("joints", "command")
    for step in range(3):
        obs = observe(step)
        array = np.concatenate([obs["joints"], obs["command"]], axis=1)
        unsorted = {name: np.asarray(obs[name]) for name in ("heights", "command", "joints")}
        np.testing.assert_array_equal(named(unsorted), flat(array), err_msg=f"step {step}")


def test_another_number_of_environments():
    algorithm, variables, stats = make(memory=MemoryStage("gru", 4))
    policy = InferencePolicy(algorithm, variables, stats)
    first = policy(observe(0, 2))
    with pytest.raises(ValueError, match=r"^observations of 3 environments, .* of 2; call reset$"):
        policy(observe(0, 3))
    for wrong in (np.zeros(3), np.zeros((2, 1)), np.float32(1.0)):
        with pytest.raises(ValueError, match=r"^dones has shape \(.*\), .* of 2 environments$"):
            policy.reset(wrong)
    policy.reset()
    assert policy(observe(0, 3)).shape == (3, 2)
    policy.reset()
    np.testing.assert_array_equal(policy(observe(0, 2)), first)


def test_without_memories_any_number_of_environments():
    policy = InferencePolicy(*make())
    obs = observe(0)
    whole = policy(obs)
    one = policy({name: value[1:2] for name, value in obs.items()})
    np.testing.assert_allclose(one, whole[1:2], rtol=1e-6)
    np.testing.assert_array_equal(policy(obs), whole)


def test_reset_before_the_first_step():
    algorithm, variables, stats = make(memory=MemoryStage("gru", 4))
    early, plain = (InferencePolicy(algorithm, variables, stats) for _ in range(2))
    early.reset(np.array([True, False]))
    np.testing.assert_array_equal(early(observe(0)), plain(observe(0)))


@pytest.mark.parametrize("memory", [None, MemoryStage("gru", 4)])
def test_weights_and_statistics_are_of_the_moment_it_was_made(memory):
    algorithm, variables, stats = make(memory=memory)
    before, now = (InferencePolicy(algorithm, variables, stats) for _ in range(2))
    expected = now(observe(0))
    for leaf in jax.tree.leaves((variables, stats)):
        leaf.delete()  # as a donated buffer is
    np.testing.assert_array_equal(before(observe(0)), expected)


def test_an_estimate_always_takes_the_place_of_the_truth():
    """Nobody draws masks here: a robot does not know the truth."""
    algorithm, variables, stats = make(estimator=PROBABLE)
    policy, obs = InferencePolicy(algorithm, variables, stats), observe(0)
    np.testing.assert_array_equal(policy(obs), policy(obs | {"command": obs["command"] + 7.0}))
    assert np.abs(policy(obs) - policy(obs | {"joints": obs["joints"] + 1.0})).max() > 1e-4


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_bad_observation_harms_no_later_episode(kind):
    policy = InferencePolicy(*make(memory=MemoryStage(kind, 4)))
    broken = observe(0)
    broken["joints"] = broken["joints"].at[1].set(jnp.nan)
    assert np.isnan(policy(broken)).any(axis=1).tolist() == [False, True, False]
    policy.reset(np.array([0, 1, 0]))
    assert np.isfinite(policy(observe(1))).all()


@pytest.mark.parametrize(
    ("obs", "message"),
    [
        (np.zeros((2, 9)), r"an observation array is \[B, 3\], not \[2, 9\]"),
        (np.zeros(3), r"an observation array is \[B, 3\], not \[3\]"),
        ({"joints": np.zeros((2, 2))}, "component 'command' is missing .* joints"),
        ({"joints": np.zeros((2, 3)), "command": np.zeros((2, 1))}, r"'joints' is \[B, \*\(2,\)\], not \[2, 3\]"),
        ({"joints": np.zeros((2, 2)), "command": np.zeros((3, 1))}, r"'command' is \[B, \*\(1,\)\], not \[3, 1\]"),
    ],
)
def test_observations_that_do_not_fit(obs, message):
    with pytest.raises(ValueError, match=message):
        InferencePolicy(*make())(obs)
