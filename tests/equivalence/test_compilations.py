"""The second and third call of the train step compile nothing, on two devices."""

import contextlib

import jax
import pytest
from jax import monitoring
from tiny import make_algorithm, make_env

from strl_jax.algorithms import train_step
from strl_jax.algorithms.compat import Compat
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.sharding import make_mesh


@contextlib.contextmanager
def counted_compilations():
    """The list of XLA compilations that happen inside."""
    found = []

    def listen(event, duration, **_):
        if "backend_compile_duration" in event:
            found.append((event, duration))

    monitoring.register_event_duration_secs_listener(listen)
    try:
        yield found
    finally:
        monitoring.unregister_event_duration_listener(listen)


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
    with counted_compilations() as first:
        *states, metrics = step(*states)
        jax.block_until_ready(metrics)
    assert first
    with counted_compilations() as later:
        for _ in range(2):
            *states, metrics = step(*states)
            jax.block_until_ready((states, metrics))
    assert later == []
    assert int(states[0].iteration) == 3
    assert metrics["update"]["skipped"] == 0


@pytest.mark.parametrize("compat", [Compat(), Compat.st_rl()], ids=["default", "st_rl"])
def test_probe(compat):
    check(make_env("nan", 3), compat, num_envs=8, num_steps=2)


def test_mjx():
    """MJX has leaves of size zero, which a careless jit brings back with another sharding."""
    from strl_jax.envs.brax import BraxEnv  # takes seconds to import

    check(EpisodeEnv(BraxEnv("inverted_pendulum", "mjx"), 5), Compat(), num_envs=4, num_steps=2)
