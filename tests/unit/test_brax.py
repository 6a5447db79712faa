"""The adapter of Brax environments."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from brax import envs as brax_envs
from brax.envs.base import State
from flax import struct

from strl_jax.builders import environment
from strl_jax.config import ConfigError, EnvConfig
from strl_jax.envs.brax import BraxEnv
from strl_jax.envs.episode import EpisodeEnv


class Fake:
    """A Brax environment of dict observations; its info holds a command and a step counter."""

    dt = 0.02
    action_size = 2

    def __init__(self, backend, limit=3, backends=("spring",)):
        if backend not in backends:
            raise ValueError("no such physics")
        self.limit = limit

    def reset(self, rng):
        command = jax.random.uniform(rng)
        info = {"command": command, "steps": jnp.float32(0), "truncation": jnp.float32(0), "rng": rng}
        return self._state(command, jnp.zeros(2), info, jnp.float32(0))

    def step(self, state, action):
        steps = state.info["steps"] + 1
        fell = jnp.where(action[1] < -0.9, 1.0, 0.0)
        cut = jnp.where(steps >= self.limit, 1.0 - fell, 0.0)
        info = state.info | {"steps": steps, "truncation": cut, "time_out": fell}
        return self._state(state.info["command"], action, info, jnp.maximum(fell, cut))

    def _state(self, command, action, info, done):
        obs = {"state": jnp.stack([info["steps"], *action]), "privileged": command[None]}
        info = {"time_out": jnp.float32(0)} | info
        return State(Pipeline(action, action), obs, jnp.float32(1), done, {"speed": action[0]}, info)


@struct.dataclass
class Pipeline:
    q: jax.Array
    qd: jax.Array


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setitem(brax_envs._envs, "fake", Fake)
    return BraxEnv("fake", "spring")


@pytest.fixture(scope="module")
def pendulum():
    return BraxEnv("inverted_pendulum", "spring")


def _unpacked(env, state, batch):
    """Brax's own state inside ``state``."""
    return env._leaves.unpack(state.physics, batch)


def test_pendulum_on_spring(pendulum):
    assert pendulum.observation_shapes == {"state": (4,)}
    assert pendulum.action_size == 1
    assert pendulum.dt == pytest.approx(0.02)  # 4 substeps of 0.005 s
    assert pendulum.episode_length == 1000

    reset, step = jax.jit(pendulum.reset), jax.jit(pendulum.step)
    start = reset(jax.random.split(jax.random.key(0), 3))
    after = step(start, jnp.array([[1.0], [50.0], [-1.0]]))
    for state in (start, after):
        assert state.obs["state"].shape == (3, 4)
        assert state.reward.shape == state.terminated.shape == state.timeout.shape == (3,)
        assert state.terminated.dtype == state.timeout.dtype == bool
        assert not (state.terminated | state.timeout).any()
        assert pendulum.finite(state).all()
    assert (after.reward == 1).all()
    assert len(np.unique(start.obs["state"][:, 0])) == 3
    # Same structure, shapes and types, as a scan needs.
    assert jax.tree.map(lambda x: (x.shape, x.dtype), start) == jax.tree.map(lambda x: (x.shape, x.dtype), after)

    # Actions beyond the range act like its bound, from the same state too.
    same = jax.tree.map(lambda x: jnp.stack([x[0]] * 3), start)
    pushed = step(same, jnp.array([[1.0], [50.0], [-1.0]])).obs["state"]
    np.testing.assert_array_equal(pushed[0], pushed[1])
    assert pushed[0, 2] > 0 > pushed[2, 2]

    # Velocities at which float32 overflows: the simulator's own NaN or infinity is seen.
    full = _unpacked(pendulum, same, 3)
    pipeline = full.pipeline_state
    thrown = pipeline.replace(xd=jax.tree.map(lambda x: x + jnp.float32(1e30), pipeline.xd_i))
    thrown = thrown.replace(xd_i=thrown.xd, qd=pipeline.qd + 1e30)
    packed = pendulum._leaves.pack(full.replace(pipeline_state=thrown))
    after = step(same.replace(physics=packed), jnp.zeros((3, 1)))
    assert not pendulum.finite(after).any()


def test_a_fall_marked_time_out_is_a_termination(fake):
    state = fake.reset(jax.random.split(jax.random.key(0), 2))
    state = fake.step(state, jnp.array([[0.0, 0.0], [0.0, -1.0]]))
    assert state.terminated.tolist() == [False, True]
    assert state.timeout.tolist() == [False, False]


def test_truncation_is_a_timeout(fake):
    state = fake.reset(jax.random.split(jax.random.key(0), 2))
    for _ in range(3):
        state = fake.step(state, jnp.zeros((2, 2)))
    assert state.terminated.tolist() == [False, False]
    assert state.timeout.tolist() == [True, True]


def test_dict_observations_keep_their_names_and_actions_are_clipped(fake):
    assert fake.observation_shapes == {"state": (3,), "privileged": (1,)}
    assert fake.dt == 0.02
    state = fake.step(fake.reset(jax.random.split(jax.random.key(0), 1)), jnp.array([[7.0, -0.5]]))
    assert state.obs["state"].tolist() == [[1.0, 1.0, -0.5]]
    assert state.metrics["speed"].tolist() == [1.0]


def test_info_is_reset_with_the_episode(fake):
    env = EpisodeEnv(fake, 100)
    state, _ = env.init(jax.random.split(jax.random.key(0), 4), False)
    pool = env.pool(jax.random.key(1), 4)
    for _ in range(3):
        state, timestep = env.step(state, jnp.zeros((4, 2)), pool, jnp.zeros(4))
    assert timestep.timeout.all()
    info = _unpacked(fake, state.env, 4).info
    assert (info["steps"] == 0).all()
    assert (info["command"] == _unpacked(fake, pool, 1).info["command"][0]).all()  # 4 / 4 = 1 state in the pool
    assert (timestep.terminal_obs["state"][:, 0] == 3).all()
    assert (timestep.obs["privileged"][:, 0] == info["command"]).all()


def test_bad_requests_name_what_is_allowed(fake):
    with pytest.raises(ValueError, match=r"unknown Brax environment 'antt'; known: ant,"):
        BraxEnv("antt")
    with pytest.raises(ValueError, match="unknown Brax backend 'mujoco'; known: mjx, spring, positional, generalized"):
        BraxEnv("ant", "mujoco")
    with pytest.raises(ValueError, match="Brax environment 'fake' on 'mjx' does not work: ValueError: no such"):
        BraxEnv("fake", "mjx")
    with pytest.raises(ValueError, match=r"'fake' on 'spring' does not work: TypeError: .* argument 'limits'"):
        BraxEnv("fake", "spring", limits=3)
    assert BraxEnv("fake", "spring", limit=5)._env.limit == 5


@pytest.mark.parametrize("function", ["reset", "step"])
def test_an_environment_that_fails_in_its_functions(function, monkeypatch):
    class Old(Fake):
        """Written for another jax."""

    monkeypatch.setattr(Old, function, lambda *arguments: jnp.clip(jnp.zeros(2), low=0.0))
    monkeypatch.setitem(brax_envs._envs, "old", Old)
    with pytest.raises(ValueError, match=r"'old' on 'spring' does not work: TypeError: .*'low'$"):
        BraxEnv("old", "spring")


def test_an_array_observation_is_cut_into_components():
    env = BraxEnv("ant", "spring", {"height": 1, "posture": 12, "velocity": 14})
    assert env.observation_shapes == {"height": (1,), "posture": (12,), "velocity": (14,)}  # 1 + 12 + 14 = 27
    shapes = jax.eval_shape(env.reset, jax.random.split(jax.random.key(0), 3))
    after = jax.eval_shape(env.step, shapes, jax.ShapeDtypeStruct((3, 8), jnp.float32))
    for state in (shapes, after):
        found = {name: value.shape for name, value in state.obs.items()}
        assert found == {"height": (3, 1), "posture": (3, 12), "velocity": (3, 14)}


class Flat(Fake):
    """The same with an array: steps, two actions, command."""

    def _state(self, command, action, info, done):
        state = super()._state(command, action, info, done)
        return state.replace(obs=jnp.concatenate([state.obs["state"], state.obs["privileged"]]))


def test_components_are_cut_in_their_order(monkeypatch):
    monkeypatch.setitem(brax_envs._envs, "flat", Flat)
    env = BraxEnv("flat", "spring", {"steps": 1, "actions": 2, "command": 1})
    assert list(env.observation_shapes) == ["steps", "actions", "command"]
    start = env.reset(jax.random.split(jax.random.key(0), 2))
    obs = env.step(start, jnp.array([[0.5, -0.25], [1.0, 0.0]])).obs
    assert obs["steps"].tolist() == [[1.0], [1.0]]
    assert obs["actions"].tolist() == [[0.5, -0.25], [1.0, 0.0]]
    np.testing.assert_array_equal(obs["command"][:, 0], _unpacked(env, start, 2).info["command"])


@pytest.mark.parametrize(
    ("name", "components", "expected"),
    [
        (
            "inverted_pendulum",
            {"cart": 1, "pole": 2},
            "components are {'cart': 1, 'pole': 2}; the sizes must add up to the observation's 4",
        ),
        (
            "inverted_pendulum",
            {"cart": 5, "pole": -1},
            "components are {'cart': 5, 'pole': -1}; the sizes must add up to the observation's 4",
        ),
        (
            "inverted_pendulum",
            {"cart": 2.0, "pole": 2},
            "components are {'cart': 2.0, 'pole': 2}; the sizes must add up to the observation's 4",
        ),
        ("inverted_pendulum", {}, "components are {}; the sizes must add up to the observation's 4"),
        (
            "fake",
            {"state": 4},
            "components are {'state': 4}; the observation has its own, privileged, state: leave them out",
        ),
    ],
)
def test_components_that_do_not_fit(fake, name, components, expected):
    with pytest.raises(ValueError, match=re.escape(expected)) as caught:
        BraxEnv(name, "spring", components)
    assert str(caught.value) == expected
    kwargs = {"components": components}
    with pytest.raises(ConfigError) as caught:
        environment.make_env(EnvConfig(name=f"brax:{name}:spring", kwargs=kwargs))
    assert str(caught.value) == f"env.kwargs: {kwargs} is not allowed; {expected}"


@pytest.mark.slow
def test_generalized_pendulum_stays_finite():
    """Random actions far beyond the range, over many falls."""
    _random_actions("inverted_pendulum", "generalized", num_envs=64, num_steps=300)


@pytest.mark.slow
def test_ant_on_mjx_stays_finite():
    _random_actions("ant", "mjx", num_envs=4, num_steps=20)


def _random_actions(name, backend, num_envs, num_steps):
    """Steps an environment blindly; whatever it does, what comes out is finite."""
    env = EpisodeEnv(BraxEnv(name, backend), 50)
    reset_key, pool_key, run_key = jax.random.split(jax.random.key(0), 3)

    @jax.jit
    def run():
        state, _ = env.init(jax.random.split(reset_key, num_envs), True)
        pool = env.pool(pool_key, num_envs)

        def step(state, key):
            act_key, step_key = jax.random.split(key)
            action = 3 * jax.random.normal(act_key, (num_envs, env.env.action_size))
            return env.step(state, action, pool, jax.random.uniform(step_key, (num_envs,)))

        return jax.lax.scan(step, state, jax.random.split(run_key, num_steps))

    state, timesteps = run()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(timesteps))
    assert timesteps.done.any()
    assert (timesteps.done | timesteps.valid).all()
    assert np.isfinite(state.env.obs["state"]).all()
