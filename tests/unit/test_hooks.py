"""Hooks of one's own: base classes with default methods, and what a subclass must define."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import make_algorithm, make_outputs, make_rollout_state, make_state

from strl_jax.algorithms.finish import finish
from strl_jax.algorithms.hooks import ActHook, Rewarded, RewardHook


@dataclass(frozen=True)
class Bonus(RewardHook):
    """Adds ``size`` to every reward."""

    name = "bonus"
    size: float = 1.0

    def reward(self, collected, stats, reward):
        return Rewarded(reward + self.size, stats, {}, {"Episode_Reward/bonus": jnp.float32(self.size)})


def test_a_hook_with_one_method():
    """The other methods do nothing; hooks apply in their order."""
    plain = make_algorithm()
    state, end = make_state(plain), make_rollout_state(2, 4)
    outputs = make_outputs(plain, state, 1, 3, 4, jnp.ones((3, 4), bool))

    def rewards(*hooks):
        algorithm = replace(plain, reward_hooks=hooks)
        run = jax.jit(lambda *args: finish(algorithm, state, *args, key=jax.random.key(0))[2:])
        rollout, metrics = run(end, end, state.stats, outputs)
        return np.asarray(rollout.steps.reward), metrics.hooks

    first, log = rewards(Bonus(), Bonus(0.5))
    np.testing.assert_allclose(first, outputs.reward + 1.5, rtol=1e-6)
    assert log.pop("Episode_Reward/bonus") == 0.5
    ((name, mean),) = log.items()
    assert name == "Train/mean_learned_reward_each_timestep"
    np.testing.assert_allclose(mean, (outputs.reward + 1.5).mean(), rtol=1e-6)
    assert rewards()[1] == {}  # equal to the environment's reward, which is logged in any case


def test_a_hook_that_defines_ends_ends_episodes():
    class Ends(RewardHook):
        name = "ends"

        def ends(self, params, stats, obs, env_state):
            return env_state.reward > 0

    assert Ends().ends_episodes
    assert not Bonus().ends_episodes


@pytest.mark.parametrize("base", [ActHook, RewardHook])
def test_a_hook_needs_a_name(base):
    with pytest.raises(TypeError, match="Nameless needs a class attribute name"):
        type("Nameless", (base,), {})


def test_a_hook_with_a_memory_fills_it():
    with pytest.raises(TypeError, match="must define remember and recall"):
        type("Keeps", (RewardHook,), {"name": "keeps", "memory_size": 7})
