"""Collecting in a Python loop and in one scan is the same collecting."""

import jax
import pytest
from equivalent import same_in_both_loops
from tiny import make_algorithm, make_env, make_state

from strl_jax.algorithms import train_step
from strl_jax.algorithms.compat import Compat
from strl_jax.sharding import make_mesh

T, B = 6, 4


ST_RL = pytest.param(Compat.st_rl(), marks=pytest.mark.slow)


@pytest.mark.parametrize("compat", [Compat(), ST_RL], ids=["default", "st_rl"])
def test_host_loop_is_scan(compat):
    """With episodes that end, time out and break, and all statistics on."""
    env = make_env("nan", 2, probability=0.3)
    algorithm = make_algorithm(compat, env=env.env, empirical_normalization=True, normalize_rewards=True)
    init = train_step.make_init(env, algorithm, make_mesh(jax.devices()[:1]), B)
    _, state = init(jax.random.key(0))
    pool = jax.jit(lambda key: env.pool(key, 16 * B))(jax.random.key(1))
    env_step = jax.jit(lambda episode, action, key: env.step(episode, action, pool, key))
    arguments = (make_state(algorithm), state, jax.random.key(2))

    _, _, data, metrics = same_in_both_loops(algorithm, env_step, arguments, T)
    assert metrics.invalid > 0
    assert metrics.finished > 0
    assert data.steps.reward.shape == (T, B)
