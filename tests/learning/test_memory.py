"""PPO with a memory learns what no policy without one can: a sign that is seen once and asked for later."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from strl_jax.algorithms import ppo
from strl_jax.algorithms.train_step import init_states, make_train_step
from strl_jax.envs import probe
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.modules.policy import Policy
from strl_jax.modules.stages import MemoryStage
from strl_jax.observations import Segments
from strl_jax.sharding import make_mesh

NUM_ENVS, NUM_STEPS, ITERATIONS, GAMMA = 128, 10, 150, 0.9
DELAY = 4


def train(memory):
    """A policy trained from scratch: algorithm, train state, and the mean return of the last iteration."""
    env = EpisodeEnv(probe.make("remember", delay=DELAY), DELAY + 1)
    falling = {"name": "linear", "init_value": 1e-2, "end_value": 0.0, "transition_steps": ITERATIONS}
    config = ppo.PPOConfig(
        num_learning_epochs=2, num_mini_batches=2, gamma=GAMMA, schedule=falling, use_clipped_value_loss=False
    )
    segments = Segments.select_from(env.env.observation_shapes, ["state"])
    algorithm = ppo.make(config, Policy(1, (16,), (16,), memory=memory), segments, segments)
    mesh = make_mesh(jax.devices()[:1])
    states = init_states(env, algorithm, mesh, jax.random.key(0), NUM_ENVS)
    step = make_train_step(env, algorithm, mesh, NUM_STEPS)
    for _ in range(ITERATIONS):
        *states, metrics = step(*states, {})
        assert metrics.update["skipped"] == 0
    assert metrics.finished == NUM_ENVS * NUM_STEPS / (DELAY + 1)
    return algorithm, states[0], float(metrics.mean_reward_each_timestep) * (DELAY + 1)


def episodes(algorithm, train_state):
    """The policy's output ``[T, B]`` through one episode of each sign, -1 and 1."""
    state = np.zeros((DELAY + 1, 2, 1), np.float32)
    state[0, :, 0] = -1.0, 1.0
    reset = np.zeros((DELAY + 1, 2), bool)
    reset[0] = True
    groups = algorithm.pack(train_state.stats, {"state": jnp.asarray(state)})
    carry = algorithm.policy.initial_carry(2)
    return jax.jit(algorithm.policy.apply)(train_state.params["policy"], groups, carry, reset)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_memory_keeps_the_sign(kind):
    algorithm, train_state, mean_return = train(MemoryStage(kind, 16))
    assert mean_return > -0.05  # the noise of the actions included
    output = episodes(algorithm, train_state)
    np.testing.assert_allclose(output.mean[-1, :, 0], [-1.0, 1.0], atol=0.1)
    std = float(output.std[0, 0, 0])
    assert std < 0.5  # started at 1
    # E[-(action - sign)^2] = -std^2 in the last of 5 steps, gamma of it in the step before ...
    to_go = np.arange(DELAY, -1, -1)[:, None]
    np.testing.assert_allclose(output.value, np.repeat(-(GAMMA**to_go) * std**2, 2, axis=1), atol=0.05)


@pytest.mark.slow
def test_no_memory_loses_the_sign():
    """The best it can do is 0, whose return is -1; and of the steps it tells only the first from the others."""
    algorithm, train_state, mean_return = train(None)
    assert mean_return < -0.8
    output = episodes(algorithm, train_state)
    np.testing.assert_allclose(output.mean[-1, :, 0], [0.0, 0.0], atol=0.2)
