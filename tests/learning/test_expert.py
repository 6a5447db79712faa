"""A discriminator tells apart what differs and no more; a policy that it judges takes on the expert's style.

The policy's learning rate falls to 0, so that what remains is the answer and not the last steps' noise.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from strl_jax.algorithms import appo, update
from strl_jax.algorithms.amp_input import AmpInput
from strl_jax.algorithms.hooks import Collected
from strl_jax.algorithms.style import Style
from strl_jax.algorithms.train_step import init_states, make_train_step
from strl_jax.envs import probe
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.envs.probe.style import expert_pairs
from strl_jax.modules.policy import Policy
from strl_jax.observations import Segments
from strl_jax.sharding import make_mesh
from strl_jax.types import Batch

STATE = Segments(("state",), ((1,),))


@pytest.fixture(scope="module")
def discriminate():
    """``shift -> accuracy, metrics``: 300 updates on fresh samples, the metrics of the last 100 in the mean.

    Policy and expert are standard normal in two dimensions, the expert shifted by ``shift`` in the first;
    with None the two are the same samples.
    """
    size, updates = 512, 300
    algorithm = appo.make(
        appo.APPOConfig(discriminator_learning_rate=3e-3),
        Policy(1, (4,), (4,)),
        STATE,
        STATE,
        Style((32,), discriminator_grad_pen=0.1),
        AmpInput(None, True, 2),
    )
    one = jnp.ones((1, size))
    vector = jnp.zeros((1, size, 1))
    scalars = dict.fromkeys(("log_prob", "value", "advantage", "return_"), 0 * one)
    empty = {"reset": one > 1, "masks": {}, "carry": {}, "groups": {"actor": vector, "critic": vector}}

    @jax.jit
    def run(state, shift, same):
        def step(state, key):
            policy_key, expert_key, key = jax.random.split(key, 3)
            policy, expert = (jax.random.normal(k, (1, size, 2)) for k in (policy_key, expert_key))
            expert = jnp.where(same, policy, expert + shift * jnp.array([1.0, 0.0]))
            extras = {"ref_obs": policy, "ref_motion": expert}
            batch = Batch(action=vector, mean=vector, std=vector + 1, **scalars, **empty, weight=one, extras=extras)
            return update.epochs(algorithm, state, batch, key)

        state, metrics = jax.lax.scan(step, state, jax.random.split(jax.random.key(1), updates))
        return {name: value[-100:].mean() for name, value in metrics.items()}

    def found(shift):
        metrics = run(algorithm.init(jax.random.key(0)), shift or 0.0, shift is None)
        return 0.5 * float(metrics["expert_accuracy"] + metrics["policy_accuracy"]), metrics

    return found


@pytest.mark.parametrize(
    "shift", [pytest.param(None, marks=pytest.mark.slow), 0.0], ids=["same samples", "same distribution"]
)
def test_the_same_data_cannot_be_told_apart(discriminate, shift):
    accuracy, metrics = discriminate(shift)
    assert abs(accuracy - 0.5) < 0.02
    # It says 0 of everything: losses of (0 - 1)^2 / 2 and (0 + 1)^2 / 2.
    np.testing.assert_allclose(metrics["discriminator_expert_loss"], 0.5, atol=0.02)
    np.testing.assert_allclose(metrics["discriminator_policy_loss"], 0.5, atol=0.02)


def test_data_a_standard_deviation_apart_is_told_apart_as_well_as_can_be(discriminate):
    accuracy, metrics = discriminate(1.0)
    # The best border lies half a standard deviation from either mean: Phi(0.5)
    assert abs(accuracy - 0.6915) < 0.015
    assert metrics["expert_logit"] > 0.1
    assert metrics["policy_logit"] < -0.1


NUM_ENVS, NUM_STEPS, ITERATIONS = 128, 8, 120


class Trainer:
    """PPO with a discriminator as one compiled program."""

    def __init__(self, env, amp, *, components=("state",), **style):
        falling = {"name": "linear", "init_value": 1e-2, "end_value": 0.0, "transition_steps": ITERATIONS}
        config = appo.APPOConfig(
            num_learning_epochs=2,
            num_mini_batches=2,
            gamma=0.5,
            schedule=falling,
            use_clipped_value_loss=False,
            discriminator_learning_rate=3e-3,
        )
        group = Segments.select_from(env.env.observation_shapes, components)
        self.env = env
        self.algorithm = appo.make(config, Policy(1, (32,), (32,)), group, group, Style((32,), **style), amp)
        self.mesh = make_mesh(jax.devices()[:1])
        self.step = make_train_step(env, self.algorithm, self.mesh, NUM_STEPS)

    def states(self, seed=0):
        """Both states before the first iteration."""
        return init_states(self.env, self.algorithm, self.mesh, jax.random.key(seed), NUM_ENVS)

    def train(self, data, seed=0):
        """The train state after all iterations."""
        states = self.states(seed)
        for _ in range(ITERATIONS):
            *states, metrics = self.step(*states, data)
            assert metrics.update["skipped"] == 0
        assert metrics.hooks["Discriminator/saturated"] == 0
        return states[0]

    def mean(self, train_state, obs):
        """Mean actions ``[N]`` for components ``[N, *shape]``."""
        groups = self.algorithm.pack(train_state.stats, {name: jnp.asarray(x) for name, x in obs.items()})
        batch = groups["actor"].shape[0]
        output = self.algorithm.policy.apply(train_state.params["policy"], groups, {}, jnp.zeros(batch, bool))
        return np.asarray(output.mean[:, 0])


@pytest.fixture(scope="module")
def two_actions():
    """``prefer -> Trainer`` on ``style``, each compiled once."""

    @functools.cache
    def make(prefer):
        env = EpisodeEnv(probe.make("style", prefer=prefer), 1)
        return Trainer(env, AmpInput(None, True, 1), task_reward_lerp=0.5)

    return make


@pytest.mark.slow
@pytest.mark.parametrize("prefer", [1.0, -1.0])
def test_of_two_good_actions_the_expert_decides(two_actions, prefer):
    trainer = two_actions(prefer)
    mean = trainer.mean(trainer.train({}), {"state": [[-1.0], [1.0]]})
    np.testing.assert_allclose(mean, prefer, atol=0.1)


@pytest.mark.slow
def test_what_counts_as_style_changes_with_every_iteration(two_actions):
    trainer = two_actions(1.0)
    states = trainer.states()
    (hook,), fixed = trainer.algorithm.reward_hooks, jnp.linspace(-2, 2, 9).reshape(3, 3, 1)

    def reward(state):
        extras = {"ref_obs": fixed, "ref_motion": fixed}
        zero, valid = fixed[..., 0] * 0, jnp.ones((3, 3), bool)
        seen = Collected({}, {}, {}, fixed, valid, extras, state.iteration, state.params, jax.random.key(0))
        return np.asarray(hook.reward(seen, state.stats, zero).reward)

    before = reward(states[0])
    after = reward(trainer.step(*states, {})[0])
    assert (abs(after - before) > 1e-3).all()


@pytest.mark.slow
def test_gait_that_no_reward_asks_for():
    env = EpisodeEnv(probe.make("gait"), 8)
    phases = Segments.select_from(env.env.observation_shapes, ["phase"])
    trainer = Trainer(env, AmpInput(phases, False, 4), components=("state", "phase"), discriminator_grad_pen=0.2)
    state = trainer.train({"expert": jnp.asarray(expert_pairs(1000, seed=0))})
    angle = np.linspace(-np.pi, np.pi, 8, endpoint=False)
    phase = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    np.testing.assert_allclose(trainer.mean(state, {"state": np.zeros((8, 1)), "phase": phase}), 0.5, atol=0.05)
