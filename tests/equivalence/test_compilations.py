"""The second and third call of the train step compile nothing, on two devices."""

import jax
import jax.numpy as jnp
import pytest
from equivalent import call_thrice
from tiny import make_algorithm

from strl_jax.algorithms import train_step
from strl_jax.algorithms.compat import Compat
from strl_jax.envs import probe
from strl_jax.envs.base import Env
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.sharding import make_mesh


def check(env, compat, num_envs: int, num_steps: int):
    """One compilation with the first call, none with the two after it."""
    mesh = make_mesh(jax.devices()[:2])
    algorithm = make_algorithm(
        compat,
        env=env.env,
        schedule="adaptive",
        empirical_normalization=True,
        normalize_rewards=True,
        num_mini_batches=2,
    )
    states = train_step.init_states(env, algorithm, mesh, jax.random.key(0), num_envs)
    step = train_step.make_train_step(env, algorithm, mesh, num_steps)
    states, metrics = call_thrice(step, states)
    assert int(states[0].iteration) == 3
    assert metrics.update["skipped"] == 0


class EmptyLeaf(Env):
    """The probe ``nan`` with a physics leaf of size zero, as MJX has them.

    XLA forgets the sharding of such a leaf: left to itself, jit gets it back replicated and compiles again.
    """

    def __init__(self):
        self.probe = probe.make("nan")
        self.observation_shapes = self.probe.observation_shapes
        self.action_size, self.dt = self.probe.action_size, self.probe.dt
        self.episode_length = self.probe.episode_length

    def reset(self, key):
        return self._with_empty(self.probe.reset(key))

    def step(self, state, action):
        physics, empty = state.physics
        return self._with_empty(self.probe.step(state.replace(physics=physics), action), empty)

    def _with_empty(self, state, empty=None):
        empty = jnp.zeros((state.reward.shape[0], 0)) if empty is None else empty + 1.0
        return state.replace(physics=(state.physics, empty))


@pytest.mark.skipif(
    jax.__version__.startswith("0.11."),
    reason="XLA's CPU compiler crashes on sharded leaves of size zero in jaxlib 0.11",
)
@pytest.mark.parametrize(
    "compat", [Compat(), pytest.param(Compat.st_rl(), marks=pytest.mark.slow)], ids=["default", "st_rl"]
)
def test_probe(compat):
    check(EpisodeEnv(EmptyLeaf(), 3), compat, num_envs=8, num_steps=2)


@pytest.mark.slow
def test_mjx():
    from strl_jax.envs.brax import BraxEnv  # takes seconds to import

    check(EpisodeEnv(BraxEnv("inverted_pendulum", "mjx"), 5), Compat(), num_envs=4, num_steps=2)
