"""Evaluation: first episodes only, deterministic, statistics untouched, the same on any number of devices."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from strl_jax.algorithms import ppo
from strl_jax.envs.base import Env
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.modules.policy import Policy
from strl_jax.observations import Segments
from strl_jax.runners.evaluation import make_evaluate
from strl_jax.sharding import make_mesh
from strl_jax.types import EnvState
from strl_jax.viewer.roll import make_roll

ONE = make_mesh(jax.devices()[:1])
KEY = jax.random.key(3)


@dataclass(frozen=True)
class Lives(Env):
    """Episodes of 1 to ``most`` steps; the action is the metric ``action``, the age both reward and metric ``age``.

    Those that live ``breaks`` steps turn NaN at their last one.
    """

    breaks: int = 0
    most: int = 5
    observation_shapes = {"state": (1,)}  # noqa: RUF012
    action_size = 1
    dt = 1.0
    episode_length = 50

    def reset(self, key):
        life = 1.0 + jax.random.key_data(key)[:, 1] % self.most
        return self._state(life, 0 * life, 0 * life)

    def step(self, state, action):
        life, age = state.physics
        return self._state(life, age + 1, action[:, 0])

    def _state(self, life, age, action):
        bad = (life == self.breaks) & (age == life)
        end = age >= life
        return EnvState(
            physics=(life, jnp.where(bad, jnp.nan, age)),
            obs={"state": life[:, None]},
            reward=age,
            terminated=end,
            timeout=jnp.zeros_like(end),
            metrics={"action": action, "age": age},
            extras={},
        )


def _setup(env, episode_length=50, normalize=False):
    segments = Segments.select_from(env.observation_shapes, ["state"])
    config = ppo.PPOConfig(empirical_normalization=normalize)
    algorithm = ppo.make(config, Policy(1, (4,), (4,)), segments, segments)
    return EpisodeEnv(env, episode_length), algorithm, algorithm.init(jax.random.key(0))


def _lives(num_envs):
    """Episode lengths of an evaluation with ``KEY``."""
    return _first_lives(KEY, num_envs)


def _first_lives(key, num_envs):
    start, _ = EpisodeEnv(Lives(), 50).init(jax.random.split(key, num_envs), False)
    return np.array(start.env.physics[0])


def test_numbers_are_those_of_the_first_episodes():
    env, algorithm, state = _setup(Lives(), normalize=True)
    moved = jax.tree.map(lambda x: x + 0.5, state.stats)  # statistics that matter
    state = state.replace(stats=moved)
    before = jax.tree.map(np.array, (state.params, state.stats))
    result = make_evaluate(env, algorithm, ONE, 12)(state, KEY)

    life = _lives(12)
    assert len(set(life)) > 2
    total = life * (life + 1) / 2  # 1 + 2 + ... + life
    expected = {"invalid": 0.0, "survival": 0.0}  # all of them end on their own
    for name, x in (("return", total), ("length", life)):
        expected |= {f"mean_{name}": x.mean(), f"std_{name}": x.std(), f"min_{name}": x.min(), f"max_{name}": x.max()}
    expected["metric/age"] = ((life + 1) / 2).mean()
    groups = algorithm.pack(state.stats, {"state": jnp.array(life)[:, None]}, groups=("actor",))
    mean, _, _ = algorithm.policy.apply(state.params["policy"], groups, {}, jnp.ones(12, bool), method="act")
    expected["metric/action"] = mean.mean()  # the mean, no noise; and normalised
    assert result.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(result[name], value, rtol=1e-5, err_msg=name)
        assert result[name].shape == ()
        assert result[name].dtype == jnp.float32

    jax.tree.map(np.testing.assert_array_equal, before, jax.tree.map(np.array, (state.params, state.stats)))


def test_time_limit_cuts_the_episode():
    env, algorithm, state = _setup(Lives(), episode_length=3)
    result = make_evaluate(env, algorithm, ONE, 12)(state, KEY)
    length = np.minimum(_lives(12), 3)
    assert result["max_length"] == 3
    # One whose life ends with the limit has terminated.
    np.testing.assert_allclose(result["survival"], (_lives(12) > 3).mean(), rtol=1e-6)
    np.testing.assert_allclose(result["mean_length"], length.mean(), rtol=1e-6)
    np.testing.assert_allclose(result["mean_return"], (length * (length + 1) / 2).mean(), rtol=1e-6)


def test_the_environment_for_evaluations_and_its_scores():
    class Fair(Lives):
        def evaluated(self):
            return replace(self, most=3)

        def scores(self, means):
            return {"CoT": jnp.sqrt(means["age"])}

    env, algorithm, state = _setup(Fair())
    result = make_evaluate(env, algorithm, ONE, 12)(state, KEY)
    start, _ = EpisodeEnv(Fair(most=3), 50).init(jax.random.split(KEY, 12), False)
    life = np.array(start.env.physics[0])
    assert result["max_length"] == life.max() == 3
    # Of all steps, not of all episodes: (1 + ... + life) summed over episodes, over the number of steps.
    np.testing.assert_allclose(result["metric/CoT"], np.sqrt((life * (life + 1) / 2).sum() / life.sum()), rtol=1e-5)


def test_episodes_cut_by_nan_are_excluded_and_counted():
    env, algorithm, state = _setup(Lives(breaks=5))
    result = make_evaluate(env, algorithm, ONE, 12)(state, KEY)
    life = _lives(12)
    assert 0 < (life == 5).sum() == result["invalid"] < 12
    valid = life[life != 5]
    np.testing.assert_allclose(result["mean_length"], valid.mean(), rtol=1e-6)
    np.testing.assert_allclose(result["std_length"], valid.std(), rtol=1e-5)
    np.testing.assert_allclose(result["metric/age"], ((valid + 1) / 2).mean(), rtol=1e-6)
    assert result["max_length"] == valid.max()
    # The same environments, were they not broken, count.
    fine = make_evaluate(EpisodeEnv(replace(env.env, breaks=0), 50), algorithm, ONE, 12)(state, KEY)
    assert fine["max_length"] == 5


def test_no_valid_episode_gives_nan_not_a_crash():
    env, algorithm, state = _setup(Lives(breaks=1))
    key = next(k for k in jax.random.split(KEY, 50) if _first_lives(k, 1) == 1)
    result = make_evaluate(env, algorithm, ONE, 1)(state, key)
    assert result.pop("invalid") == 1
    assert all(np.isnan(value) for value in result.values())


def test_one_device_and_four_agree():
    env, algorithm, state = _setup(Lives(breaks=2))
    one = make_evaluate(env, algorithm, ONE, 12)(state, KEY)
    four = make_evaluate(env, algorithm, make_mesh(jax.devices()[:4]), 12)(jax.device_get(state), KEY)
    assert one["invalid"] > 0
    for name in one:
        np.testing.assert_allclose(one[name], four[name], rtol=1e-6, err_msg=name)


def test_another_key_plays_other_episodes_and_the_same_key_the_same():
    env, algorithm, state = _setup(Lives())
    evaluate = make_evaluate(env, algorithm, ONE, 12)
    first, again, other = evaluate(state, KEY), evaluate(state, KEY), evaluate(state, jax.random.key(4))
    assert jax.device_get(first) == jax.device_get(again)
    assert first["mean_length"] != other["mean_length"]


def test_hidden_carry_is_reset_between_episodes():
    """The reset flag of the policy is set at the first step of every episode, and at no other."""
    seen = []

    class Spy(Policy):
        def act(self, groups, carry, reset):
            jax.debug.callback(lambda r: seen.append(np.array(r)), reset, ordered=True)
            return super().act(groups, carry, reset)

    env, algorithm, state = _setup(Lives())
    spy = replace(algorithm, policy=Spy(1, (4,), (4,)))
    make_evaluate(env, spy, ONE, 4)(state, KEY)["mean_return"].block_until_ready()
    jax.effects_barrier()
    life = _lives(4).astype(int)
    assert len(seen) == life.max()  # stops with the last episode, far below 50 steps
    for index, first in enumerate(life):
        flags = [bool(step[index]) for step in seen]
        assert flags[0]
        assert not any(flags[1:first])
        if first < len(flags):
            assert flags[first]


@pytest.mark.parametrize("num_envs", [0, 6])
def test_environments_must_divide_over_the_devices(num_envs):
    env, algorithm, _ = _setup(Lives())
    with pytest.raises(ValueError, match=f"with {num_envs} environments: must be a positive multiple of 4 devices"):
        make_evaluate(env, algorithm, make_mesh(jax.devices()[:4]), num_envs)


def test_played_episodes_are_the_same_and_end_as_early():
    """With a limit of 1e9 steps. Every step of environment 0 is kept."""
    env, algorithm, state = _setup(Lives(), 10**9)
    expected = make_evaluate(env, algorithm, ONE, 16)(state, KEY)
    roll = make_roll(env, algorithm, 16)(state.params["policy"], state.stats, KEY)
    assert roll.numbers == pytest.approx({name: float(value) for name, value in expected.items()})
    assert roll.numbers["max_length"] == 5
    np.testing.assert_array_equal(roll.trace["reward"], np.arange(1, _lives(16)[0] + 1))
