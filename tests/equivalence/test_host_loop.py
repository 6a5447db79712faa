"""Collecting in a Python loop and in one scan is the same collecting."""

import jax
import numpy as np
import pytest
from tiny import make_algorithm, make_env, make_state

from strl_jax.algorithms import rollout, train_step
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
    assert metrics["invalid"] > 0
    assert metrics["finished"] > 0
    assert data.steps.reward.shape == (T, B)


def same_in_both_loops(algorithm, env_step, arguments: tuple, num_steps: int, data=None, rtol: float = 1e-6):
    """Both loops give the same; returns it."""
    scan = jax.jit(lambda *args: rollout.collect(algorithm, env_step, *args, num_steps, data=data))(*arguments)
    loop = rollout.make_collect_host(algorithm, env_step)(*arguments, num_steps, data=data)
    for (path, a), b in zip(jax.tree.leaves_with_path(scan), jax.tree.leaves(loop), strict=True):
        name = jax.tree_util.keystr(path)
        assert (a.shape, a.dtype) == (b.shape, b.dtype), name
        if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-6, err_msg=name)
    return scan
