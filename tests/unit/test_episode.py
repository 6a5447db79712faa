"""Time limits, resets from the pool, terminal observations, containment of NaN."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from strl_jax.envs.base import Env, where
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.types import EnvState

GO, FALL, CUT, FALL_AND_CUT, BREAK = 0.0, 1.0, 2.0, 3.0, 4.0  # what an action asks Walk for
B = 8


@dataclass(frozen=True)
class Walk(Env):
    """Observes (a number drawn at the reset, steps since); ``level`` counts all steps ever taken."""

    broken: str = "physics"
    bad: float = jnp.nan
    action_size: int = 1

    def reset(self, key):
        number = 1.0 + jax.random.key_data(key)[:, 1] / 2.0**32  # in [1, 2)
        return self._state({"number": number, "age": 0 * number, "level": 0 * number, "key": key}, 0 * number)

    def step(self, state, action):
        moved = state.physics | {"age": state.physics["age"] + 1, "level": state.physics["level"] + 1}
        return self._state(moved, action[:, 0])

    def _state(self, physics, action):
        obs = jnp.stack([physics["number"], physics["age"]], axis=-1)
        parts = {
            "physics": physics,
            "obs": {"state": obs},
            "reward": jnp.ones_like(action),
            "metrics": {"age": physics["age"]},
            "extras": {"clip": physics["number"]},
        }
        damaged = jax.tree.map(lambda x: _damage(x, action == BREAK, self.bad), parts[self.broken])
        return EnvState(
            **(parts | {self.broken: damaged}),
            terminated=(action == FALL) | (action == FALL_AND_CUT),
            timeout=(action == CUT) | (action == FALL_AND_CUT),
        )


class Curriculum(Walk):
    """Keeps its level over the end of an episode."""

    def merge(self, done, fresh, state):
        merged = where(done, fresh, state)
        return merged.replace(physics=merged.physics | {"level": state.physics["level"]})


def _damage(x, flags, bad):
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x
    return jnp.where(flags.reshape(flags.shape + (1,) * (x.ndim - 1)), bad, x)


def _start(env, batch=B, random_lengths=False):
    state, _ = env.init(jax.random.split(jax.random.key(0), batch), random_lengths)
    return state, env.pool(jax.random.key(1), batch)


def _step(env, state, pool, action, key=2):
    """One step; ``action`` is one number for all or one for each environment."""
    batch = state.step.shape[0]
    action = np.broadcast_to(np.asarray(action, np.float32), batch)[:, None]
    return env.step(state, jnp.asarray(action), pool, jax.random.uniform(jax.random.key(key), (batch,)))


def test_time_limit_ends_every_third_step():
    env = EpisodeEnv(Walk(), 3)
    state, pool = _start(env)
    ends = []
    for key in range(7):
        state, timestep = _step(env, state, pool, GO, key)
        ends.append((bool(timestep.done.all()), bool(timestep.timeout.all())))
        assert (timestep.done == timestep.done[0]).all()
    no, yes = (False, False), (True, True)
    assert ends == [no, no, yes, no, no, yes, no]
    np.testing.assert_array_equal(state.step, np.full(B, 1))


def test_random_lengths_spread_over_the_time_limit():
    env = EpisodeEnv(Walk(), 4)
    state, _ = _start(env, 400, True)
    count = np.bincount(state.step, minlength=4)
    assert len(count) == 4
    # 400 / 4 = 100 of each, standard deviation sqrt(400 * 1/4 * 3/4) = 8.7
    assert (abs(count - 100) < 35).all()
    assert (_start(env)[0].step == 0).all()


def test_random_length_shortens_only_the_first_episode():
    env = EpisodeEnv(Walk(), 3)
    state, pool = _start(env, 3)
    state = state.replace(step=jnp.array([0, 1, 2], jnp.int32))
    dones = []
    for _ in range(6):
        state, timestep = _step(env, state, pool, GO)
        dones.append(timestep.done.tolist())
    np.testing.assert_array_equal(
        np.array(dones).T.astype(int), [[0, 0, 1, 0, 0, 1], [0, 1, 0, 0, 1, 0], [1, 0, 0, 1, 0, 0]]
    )


def test_terminal_obs_is_before_the_reset_and_obs_after():
    env = EpisodeEnv(Walk(), 9)
    state, pool = _start(env, 2)
    old = np.array(state.env.obs["state"][:, 0])
    state, timestep = _step(env, state, pool, [GO, FALL])
    assert timestep.done.tolist() == [False, True]
    # The step led both to age 1 of their old episodes.
    np.testing.assert_array_equal(timestep.terminal_obs["state"], np.stack([old, [1.0, 1.0]], axis=-1))
    fresh = float(timestep.obs["state"][1, 0])
    assert fresh in pool.obs["state"][:, 0].tolist()
    np.testing.assert_array_equal(timestep.obs["state"], [[old[0], 1.0], [fresh, 0.0]])
    np.testing.assert_array_equal(state.env.obs["state"], timestep.obs["state"])
    # Reward, metrics and extras are those of the step, not of the fresh state.
    np.testing.assert_array_equal(timestep.reward, [1.0, 1.0])
    np.testing.assert_array_equal(timestep.metrics["age"], [1.0, 1.0])
    np.testing.assert_array_equal(timestep.extras["clip"], old)


def test_timeout_is_an_end_without_termination():
    env = EpisodeEnv(Walk(), 9)
    state, pool = _start(env, 5)
    state = state.replace(step=jnp.array([0, 0, 0, 8, 8], jnp.int32))
    _, timestep = _step(env, state, pool, [GO, CUT, FALL_AND_CUT, FALL, GO])
    #                                      goes on, adapter's, termination beats both of them, time limit
    assert timestep.done.tolist() == [False, True, True, True, True]
    assert timestep.timeout.tolist() == [False, True, False, False, True]


def test_pool_states_differ_between_environments_and_iterations():
    env = EpisodeEnv(Walk(), 9)
    state, _ = _start(env, 64)
    seen = []
    for iteration in range(2):
        pool = env.pool(jax.random.key(10 + iteration), 64)
        numbers = np.array(pool.obs["state"][:, 0])
        assert len(np.unique(numbers)) == len(numbers) == 16  # 64 / 4
        state, timestep = _step(env, state, pool, FALL, iteration)
        taken = np.array(timestep.obs["state"][:, 0])
        assert set(taken) <= set(numbers)
        # 64 draws from 16 leave 16 * (15 / 16)^64 = 0.26 unseen on average.
        assert len(set(taken)) >= 13
        seen.append(set(taken))
    assert not seen[0] & seen[1]


def test_two_ends_of_one_iteration_take_different_states():
    env = EpisodeEnv(Walk(), 9)
    state, pool = _start(env, 64)
    state, first = _step(env, state, pool, FALL, 1)
    state, second = _step(env, state, pool, FALL, 2)
    same = np.mean(first.obs["state"][:, 0] == second.obs["state"][:, 0])
    assert same < 0.3  # 1 / 16 by chance


def test_nothing_of_an_episode_survives_its_end():
    env = EpisodeEnv(Walk(), 9)
    state, pool = _start(env)
    for _ in range(3):
        state, _ = _step(env, state, pool, GO)
    assert (state.step == 3).all()
    state, timestep = _step(env, state, pool, FALL)
    assert (state.step == 0).all()
    chosen = [int(np.flatnonzero(pool.obs["state"][:, 0] == n)[0]) for n in timestep.obs["state"][:, 0]]
    fresh = jax.tree.map(lambda leaf: leaf[jnp.array(chosen)], pool)
    for kept, expected in zip(jax.tree.leaves(state.env), jax.tree.leaves(fresh), strict=True):
        if jnp.issubdtype(kept.dtype, jax.dtypes.prng_key):
            kept, expected = jax.random.key_data(kept), jax.random.key_data(expected)
        np.testing.assert_array_equal(kept, expected)


def test_merge_keeps_what_outlives_an_episode():
    for env, level in ((EpisodeEnv(Walk(), 9), 0), (EpisodeEnv(Curriculum(), 9), 2)):
        state, pool = _start(env)
        state, _ = _step(env, state, pool, GO)
        state, _ = _step(env, state, pool, FALL)
        assert (state.env.physics["level"] == level).all()
        assert (state.env.physics["age"] == 0).all()


@pytest.mark.parametrize(
    ("broken", "bad"),
    [(part, bad) for part in ("physics", "obs", "reward", "metrics", "extras") for bad in (jnp.nan, jnp.inf)]
    + [(part, 1e9) for part in ("obs", "reward", "extras")],
)
def test_broken_environment_is_contained(broken, bad):
    env = EpisodeEnv(Walk(broken, bad), 9)
    state, pool = _start(env, 3)
    # The last one would end by the time limit anyway: broken comes first.
    state = state.replace(step=jnp.array([0, 0, 8], jnp.int32))
    state, timestep = _step(env, state, pool, [GO, BREAK, BREAK])
    assert timestep.valid.tolist() == [True, False, False]
    assert timestep.done.tolist() == [False, True, True]
    assert timestep.timeout.tolist() == [False, False, False]
    assert timestep.reward.tolist() == [1.0, 0.0, 0.0]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(timestep))
    assert timestep.metrics["age"].tolist() == [1.0, 0.0, 0.0]

    state, timestep = _step(env, state, pool, GO)
    assert timestep.valid.all()
    assert not timestep.done.any()
    np.testing.assert_array_equal(timestep.obs["state"][:, 1], [2.0, 1.0, 1.0])


def test_broken_termination_is_no_termination():
    class Falls(Walk):
        def step(self, state, action):
            after = super().step(state, action)
            return after.replace(terminated=jnp.ones_like(after.terminated), timeout=jnp.ones_like(after.timeout))

    env = EpisodeEnv(Falls(), 9)
    state, pool = _start(env, 2)
    _, timestep = _step(env, state, pool, [GO, BREAK])
    assert timestep.done.tolist() == [True, True]
    assert timestep.valid.tolist() == [True, False]
    assert not timestep.timeout.any()


class Stillborn(Walk):
    """Every reset gives NaN."""

    def reset(self, key):
        return super()._state(super().reset(key).physics, jnp.full(key.shape, BREAK))


@pytest.mark.parametrize(
    ("broken", "bad"),
    [("physics", jnp.nan), ("obs", jnp.nan), ("extras", jnp.nan), ("obs", jnp.inf), ("obs", -3e38), ("obs", 1e9)],
)
def test_broken_reset_is_caught_at_the_first_step(broken, bad):
    sick, well = EpisodeEnv(Stillborn(broken, bad), 9), EpisodeEnv(Walk(broken), 9)
    state, bad_pool = _start(sick, 4)
    _, good_pool = _start(well, 4)
    if broken == "obs":
        assert not state.env.obs["state"].any()
        assert not bad_pool.obs["state"].any()
    assert np.isfinite(state.env.obs["state"]).all()

    if broken == "physics":  # elsewhere the first step itself heals it
        state, timestep = _step(sick, state, bad_pool, GO)
        assert not timestep.valid.any()
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(timestep))
        state, timestep = _step(sick, state, good_pool, GO)
        assert not timestep.valid.any()
    state, timestep = _step(well, state, bad_pool, [GO, GO, FALL, BREAK])
    assert timestep.valid.tolist() == [True, True, True, False]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(timestep))


def test_large_observations_of_a_reset_are_shown_as_they_are():
    class Large(Walk):
        def reset(self, key):
            state = super().reset(key)
            return state.replace(obs={"state": jnp.full((key.shape[0], 2), -9e8), "count": jnp.full(key.shape, 2**30)})

    state, pool = _start(EpisodeEnv(Large(), 9), 2)
    for obs in (state.env.obs, pool.obs):
        assert (obs["state"] == np.float32(-9e8)).all()
        assert (obs["count"] == 2**30).all()  # integers have their own limits


def test_bad_numbers_are_refused():
    with pytest.raises(ValueError, match="episode_length is 0; it must be at least 1 step"):
        EpisodeEnv(Walk(), 0)
    with pytest.raises(ValueError, match=r"pool_fraction is 0.0; it must be above 0"):
        EpisodeEnv(Walk(), 3, pool_fraction=0.0)
