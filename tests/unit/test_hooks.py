"""Hooks of one's own: base classes with default methods, and what a subclass must define."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import Walk
from tiny import make_algorithm, make_outputs, make_rollout_state, make_state

from strl_jax.algorithms import ppo, train_step
from strl_jax.algorithms.compat import Compat
from strl_jax.algorithms.finish import finish
from strl_jax.algorithms.hooks import ActHook, ObsHook, Rewarded, RewardHook
from strl_jax.envs.base import where
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.modules.policy import Policy
from strl_jax.observations import Segments
from strl_jax.runners.evaluation import make_evaluate
from strl_jax.sharding import make_mesh


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


@pytest.mark.parametrize("base", [ObsHook, ActHook, RewardHook])
def test_a_hook_needs_a_name(base):
    with pytest.raises(TypeError, match="Nameless needs a class attribute name"):
        type("Nameless", (base,), {})


def test_a_hook_with_a_memory_fills_it():
    with pytest.raises(TypeError, match="must define remember and recall"):
        type("Keeps", (RewardHook,), {"name": "keeps", "memory_size": 7})


@dataclass(frozen=True)
class Skill(ObsHook):
    """Adds a number that each episode draws, and counts the steps of the episode."""

    name = "skill"

    def init(self, key, num_envs):
        return self._draw({"key": jax.random.split(key, num_envs)})

    def components(self, state, obs):
        return {"skill": jnp.stack([state["number"], state["age"]], axis=-1)}

    def observe(self, state, timestep):
        fresh, aged = self._draw(state), state | {"age": state["age"] + 1}
        return where(timestep.done, fresh, aged)

    def _draw(self, state):
        keys = jax.vmap(jax.random.split)(state["key"])
        return {"key": keys[:, 0], "number": jax.vmap(jax.random.uniform)(keys[:, 1]), "age": jnp.zeros(len(keys))}


@pytest.mark.parametrize("compat", [Compat(), Compat.st_rl()], ids=["default", "st_rl"])
def test_a_hook_adds_components_to_the_observation(compat):
    """The networks see them in the rollout, in the update and in evaluations; the next rollout continues them."""
    steps, envs, length = 7, 8, 3
    env = EpisodeEnv(Walk(), length)
    shapes = env.env.observation_shapes | {"skill": (2,)}
    groups = [Segments.select_from(shapes, names) for names in (["position", "skill"], list(shapes))]
    config = ppo.PPOConfig(empirical_normalization=True, num_mini_batches=2)
    policy = Policy(1, (4,), (4,), log_std=not compat.linear_std)
    algorithm = replace(ppo.make(config, policy, *groups, compat), obs_hook=Skill())
    mesh = make_mesh(jax.devices()[:2])
    train, state = train_step.init_states(env, algorithm, mesh, jax.random.key(0), envs, random_lengths=False)
    collect = train_step.make_collect(env, algorithm, mesh, steps)
    train, state, rollout = collect(train, state, {})

    number, age = np.moveaxis(np.asarray(rollout.steps.obs["skill"]), -1, 0)
    done = np.asarray(rollout.steps.done)
    assert done.any(axis=0).all()
    same = number[1:] == number[:-1]
    np.testing.assert_array_equal(same, ~done[:-1])  # a new number in each episode, and only there
    np.testing.assert_array_equal(age[1:], np.where(done[:-1], 0, age[:-1] + 1))
    assert len(np.unique(number)) == envs + done[:-1].sum()

    again = collect(train, state, {})[2].steps.obs["skill"]  # the state continues
    np.testing.assert_array_equal(np.asarray(again[0, :, 0]) == number[-1], ~done[-1])

    step = train_step.make_train_step(env, algorithm, mesh, steps)
    train, state = train_step.init_states(env, algorithm, mesh, jax.random.key(0), envs, random_lengths=False)
    before = jax.tree.map(np.asarray, train.params["policy"]["params"]["actor"])
    train, state, metrics = step(train, state, {})
    assert train.stats["actor"]["skill"].count == steps * envs
    moved = [
        np.abs(a - b).max(axis=-1)
        for a, b in zip(*map(kernels, (before, train.params["policy"]["params"]["actor"])), strict=True)
    ]
    assert (moved[0] > 0).all()  # also the rows of the two new inputs
    assert metrics.update["skipped"] == 0

    evaluate = make_evaluate(env, algorithm, mesh, envs)
    result = evaluate(train, jax.random.key(1))
    changed = train.replace(params=jax.tree_util.tree_map_with_path(without_skill, train.params))
    assert result["mean_length"] <= length
    assert float(evaluate(changed, jax.random.key(1))["metric/CoT"]) != float(result["metric/CoT"])


def kernels(tree) -> list:
    return [leaf for leaf in jax.tree.leaves(tree) if leaf.ndim == 2 and leaf.shape[0] == 3]


def without_skill(path, leaf):
    """The actor's first layer with 0 for the inputs after the position."""
    is_first = "'actor'" in jax.tree_util.keystr(path) and leaf.ndim == 2 and leaf.shape[0] == 3
    return leaf.at[1:].set(0.0) if is_first else leaf
