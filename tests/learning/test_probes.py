"""PPO trained on each probe environment finds the exact answer.

The learning rate falls to 0, so that what remains is the answer and not the last steps' noise.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from one_of import OneOf

from strl_jax.algorithms import ppo
from strl_jax.algorithms.compat import Compat
from strl_jax.algorithms.train_step import init_states, make_train_step
from strl_jax.envs import probe
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.modules.policy import Policy
from strl_jax.observations import Segments
from strl_jax.sharding import make_mesh

NUM_ENVS, NUM_STEPS, ITERATIONS, GAMMA = 128, 8, 120, 0.5
OPPOSITE = [[-1.0], [1.0]]


class Trainer:
    """A small network, and PPO on it as one compiled program."""

    def __init__(self, env, *, compat=None, critic=("state",)):
        compat = compat or Compat()
        falling = {"name": "linear", "init_value": 1e-2, "end_value": 0.0, "transition_steps": ITERATIONS}
        config = ppo.PPOConfig(
            num_learning_epochs=2, num_mini_batches=2, gamma=GAMMA, schedule=falling, use_clipped_value_loss=False
        )
        actor = Segments.select_from(env.env.observation_shapes, ["state"])
        critic = Segments.select_from(env.env.observation_shapes, critic)
        policy = Policy(env.env.action_size, (32,), (32,), log_std=not compat.linear_std)
        self.algorithm = ppo.make(config, policy, actor, critic, compat)
        mesh = make_mesh(jax.devices()[:1])
        self.env = env
        self.init = lambda: init_states(env, self.algorithm, mesh, jax.random.key(0), NUM_ENVS)
        self.step = make_train_step(env, self.algorithm, mesh, NUM_STEPS)

    def train(self, name=None):
        """Trained from scratch, on probe ``name`` of a ``OneOf``: the train state, and the number of steps with NaN."""
        train_state, state = self.init()
        if name is not None:
            state = state.replace(env=state.env.replace(env=self.env.env.turn_to(name, state.env.env)))
        invalid = []
        for _ in range(ITERATIONS):
            train_state, state, metrics = self.step(train_state, state, {})
            invalid.append(metrics.invalid)
            assert metrics.update["skipped"] == 0
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((train_state, state.episode)))
        return train_state, float(sum(invalid))


@pytest.fixture(scope="module")
def trainer():
    """A time limit of two steps: every second step a time-out, and ``discounted`` still gets to its end."""
    names = ("constant", "observed_reward", "discounted", "action", "state_action", "timeout", "cycle")
    return Trainer(EpisodeEnv(OneOf(names), 2))


@pytest.fixture(scope="module")
def st_rl_trainer():
    return Trainer(EpisodeEnv(OneOf(("state_action", "cycle")), 1), compat=Compat.st_rl())


def _answers(trainer, train_state, state, hidden=None):
    """Values and mean actions for observations ``[N, 1]``, and the standard deviation."""
    obs = {"state": state} if hidden is None else {"state": state, "hidden": hidden}
    obs = {name: jnp.array(value, jnp.float32) for name, value in obs.items()}
    groups = trainer.algorithm.pack(train_state.stats, obs)
    output = trainer.algorithm.policy.apply(train_state.params["policy"], groups, {}, jnp.zeros(len(state), bool))
    return np.array(output.value), np.array(output.mean[:, 0]), float(output.std[0, 0])


@pytest.mark.slow
def test_constant_reward_is_the_value(trainer):
    value, _, _ = _answers(trainer, trainer.train("constant")[0], [[0.0]])
    np.testing.assert_allclose(value, [1.0], atol=0.05)


@pytest.mark.slow
def test_value_depends_on_the_observation(trainer):
    value, _, _ = _answers(trainer, trainer.train("observed_reward")[0], OPPOSITE)
    np.testing.assert_allclose(value, [-1.0, 1.0], atol=0.05)


def test_reward_is_discounted_once_over_two_steps(trainer):
    value, _, _ = _answers(trainer, trainer.train("discounted")[0], [[0.0], [1.0]])
    np.testing.assert_allclose(value, [GAMMA, 1.0], atol=0.05)


def test_action_finds_its_target(trainer):
    value, mean, std = _answers(trainer, trainer.train("action")[0], [[0.0]])
    np.testing.assert_allclose(mean, [0.5], atol=0.1)
    np.testing.assert_allclose(value, [-(std**2)], atol=0.05)  # E[(a - target)^2] = std^2 at the target


@pytest.mark.parametrize("fixture", ["trainer", pytest.param("st_rl_trainer", marks=pytest.mark.slow)])
def test_action_depends_on_the_observation(fixture, request):
    trainer = request.getfixturevalue(fixture)
    _, mean, std = _answers(trainer, trainer.train("state_action")[0], OPPOSITE)
    np.testing.assert_allclose(mean, [-1.0, 1.0], atol=0.1)
    assert std < 0.5  # started at 1


def test_timeout_is_no_end(trainer):
    value, _, _ = _answers(trainer, trainer.train("timeout")[0], [[0.0]])
    np.testing.assert_allclose(value, [2.0], atol=0.05)  # 1 / (1 - 0.5); 4 / 3 were every second step an end


def test_timeout_credits_the_terminal_observation(trainer):
    value, _, _ = _answers(trainer, trainer.train("cycle")[0], OPPOSITE)
    # V(1) = 1 / (1 - 0.5^2), V(-1) = 0.5 V(1)
    np.testing.assert_allclose(value, [2 / 3, 4 / 3], atol=0.05)


@pytest.mark.slow
def test_st_rl_credits_the_observation_before_the_timeout(st_rl_trainer):
    value, _, _ = _answers(st_rl_trainer, st_rl_trainer.train("cycle")[0], OPPOSITE)
    # One-step episodes: V(1) = 1 + 0.5 V(1), V(-1) = 0 + 0.5 V(-1)
    np.testing.assert_allclose(value, [0.0, 2.0], atol=0.05)


def test_nan_is_contained_and_counted():
    trainer = Trainer(EpisodeEnv(probe.make("nan"), 2))
    train_state, invalid = trainer.train()
    _, mean, _ = _answers(trainer, train_state, OPPOSITE)
    np.testing.assert_allclose(mean, [-1.0, 1.0], atol=0.1)
    # A tenth of 120 * 8 * 128 = 122880 steps. The 32 states of a pool decide it for all:
    # of 120 * 32 = 3840 draws a tenth has a standard deviation of 0.005.
    assert abs(invalid / 122880 - 0.1) < 0.02


@pytest.mark.slow
def test_critic_sees_what_the_actor_does_not():
    trainer = Trainer(EpisodeEnv(probe.make("two_groups"), 2), critic=("state", "hidden"))
    state, hidden = np.array([-1.0, -1.0, 1.0, 1.0]), np.array([-1.0, 1.0, -1.0, 1.0])
    value, mean, std = _answers(trainer, trainer.train()[0], state[:, None], hidden[:, None])
    np.testing.assert_allclose(mean, state, atol=0.1)
    # hidden - E[(a - state - hidden / 2)^2] = hidden - (std^2 + 1 / 4)
    np.testing.assert_allclose(value, hidden - std**2 - 0.25, atol=0.1)
