"""What one broken environment or number must never do to the rest of a run."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import make_algorithm, make_batch, make_state

from strl_jax.algorithms import optimizers, ppo, update
from strl_jax.algorithms.train_step import init_states, make_train_step
from strl_jax.envs.base import Env
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.modules import normalizer
from strl_jax.sharding import make_mesh
from strl_jax.types import EnvState, Rollout, Transition

ONE = make_mesh(jax.devices()[:1])


@dataclass(frozen=True)
class Odd(Env):
    """Four steps an episode; its first episodes show ``size`` once; floats for its ends, metrics only in a step."""

    size: float = 1.0
    where: str = "obs"

    observation_shapes = {"joints": (2,), "command": (1,), "heights": (1, 2)}  # noqa: RUF012
    action_size = 2
    dt = 0.1
    episode_length = 4

    def reset(self, key):
        shown = jnp.zeros(key.shape)
        return self._state(shown, shown, {})

    def step(self, state, action):
        age, shown = state.physics
        return self._state(age + 1, shown, {"late": age + 1})

    def _state(self, age, shown, metrics):
        odd = jnp.where(jnp.arange(age.shape[0]) == 0, jnp.where(age == 2, self.size, 1.0), 1.0)
        obs = {name: jnp.broadcast_to(age.reshape(-1, *[1] * len(s)), (*age.shape, *s)) for name, s in self._shapes()}
        if self.where == "obs":
            obs["command"] = obs["command"] * odd[:, None]
        reward = odd if self.where == "reward" else jnp.ones_like(odd)
        return EnvState((age, shown), obs, reward, jnp.zeros_like(age), jnp.zeros(age.shape, jnp.int32), metrics, {})

    def _shapes(self):
        return sorted(self.observation_shapes.items())


def train(env, iterations: int):
    """Metrics of every iteration, and the last train state."""
    algorithm = make_algorithm(env=env, empirical_normalization=True, normalize_rewards=True)
    episodes = EpisodeEnv(env, env.episode_length)
    states = init_states(episodes, algorithm, ONE, jax.random.key(0), 4, random_lengths=False)
    step, metrics = make_train_step(episodes, algorithm, ONE, 4), []
    for _ in range(iterations):
        *states, new = step(*states, {})
        metrics.append(jax.device_get(new))
    return metrics, states[0]


@pytest.mark.parametrize("where", [pytest.param("obs", marks=pytest.mark.slow), "reward"])
def test_a_number_too_large_is_a_broken_simulator(where):
    metrics, state = train(Odd(size=1e20, where=where), 2)
    assert metrics[0].invalid == 2  # of environment 0: it breaks at age 2, starts again and breaks again
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((state.params, state.stats)))
    assert all(m.update["skipped"] == 0 for m in metrics)


def test_ends_may_be_numbers_and_metrics_may_appear_only_in_steps():
    metrics, _ = train(Odd(), 1)
    # Each of 4 episodes of 4 steps sums 1 + 2 + 3 + 4.
    assert metrics[0].finished == 4
    assert dict(metrics[0].episode_metrics) == {"late": 40.0}


def test_statistics_stay_where_a_sample_overflows():
    stats = normalizer.update(normalizer.init((1,)), jnp.asarray([[1.0], [3.0]]))
    after = normalizer.update(stats, jnp.asarray([[1.0], [1e30]]))
    np.testing.assert_array_equal(after.mean, stats.mean)
    np.testing.assert_array_equal(after.var, stats.var)
    assert normalizer.update(after, jnp.asarray([[2.0]])).count == 3


def test_nan_in_an_invalid_step_reaches_no_weight():
    algorithm = make_algorithm(num_mini_batches=1)
    state, batch = make_state(algorithm), (2, 3)
    valid = jnp.asarray([[True, False, True], [True, True, True]])
    bad = jnp.where(valid, 1.0, jnp.nan)
    steps = Transition(
        obs={
            "joints": jnp.ones((*batch, 2)) * bad[..., None],
            "command": bad[..., None],
            "heights": bad[..., None, None] + jnp.zeros((*batch, 1, 2)),
        },
        action=bad[..., None] * jnp.ones(2),
        log_prob=bad,
        value=bad,
        mean=bad[..., None] * jnp.ones(2),
        std=bad[..., None] * jnp.ones(2),
        reward=jnp.ones(batch),
        done=~valid,
        timeout=jnp.zeros(batch, bool),
        bootstrap=jnp.zeros(batch),
        valid=valid,
        reset=jnp.zeros(batch, bool),
        masks={},
        extras={},
    )
    after, metrics = jax.jit(lambda s, r: ppo.update(algorithm, s, r, jax.random.key(0)))(
        state, Rollout(steps, {}, jnp.ones(3), state.stats)
    )
    assert metrics["skipped"] == 0
    assert np.isfinite(metrics["total_loss"])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after.params))


def test_a_learning_rate_that_is_not_finite_moves_nothing():
    optimizer = optimizers.make("Adam", 1.0)
    params = {"w": jnp.asarray([1.0, 2.0])}
    state = optimizers.init(optimizer, params)
    new, _, _, skipped = optimizers.step(optimizer, params, {"w": jnp.ones(2)}, state, jnp.nan)
    assert skipped
    np.testing.assert_array_equal(new["w"], params["w"])


def test_a_fixed_learning_rate_is_the_configs_after_a_resume():
    algorithm = make_algorithm(learning_rate=5e-5, num_mini_batches=1)
    state = make_state(algorithm).replace(learning_rate={"policy": jnp.float32(1e-3)})
    _, metrics = jax.jit(lambda s, b: update.epochs(algorithm, s, b, jax.random.key(0)))(
        state, make_batch(algorithm, state, 0, 2, 2)
    )
    np.testing.assert_allclose(metrics["learning_rate"], 5e-5, rtol=1e-6)
