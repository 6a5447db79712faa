"""One step of robots as a kernel is that of MJX under XLA."""

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from strl_jax.builders.environment import make_env
from strl_jax.config import EnvConfig, load
from strl_jax.envs.base import carried
from strl_jax.envs.fused import Fused

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
ROBOTS, STEPS = 128, 12


def flat_and_rough(name: str) -> EnvConfig:
    return load(EXPERIMENTS / f"quadruped_{name}.yaml")[0].env


CASES = {
    "flat": partial(flat_and_rough, "flat"),
    "rough": partial(flat_and_rough, "rough"),
    "ant": lambda: EnvConfig(name="brax:ant:mjx"),
    "hopper": lambda: EnvConfig(name="brax:hopper:mjx"),
    "halfcheetah": lambda: EnvConfig(name="brax:halfcheetah:mjx"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_step_is_that_of_xla(name):
    env, kernels = make_env(CASES[name]()), Fused(required=True)
    step = jax.jit(kernels.step(env))
    state = jax.jit(kernels.reset(env))(jax.random.split(jax.random.key(0), ROBOTS))
    for number in range(STEPS):
        action = 0.5 * jax.random.normal(jax.random.key(number), (ROBOTS, env.action_size))
        before, state = state, carried(step(state, action))
    wanted, got = jax.jit(env.step)(before, action), step(before, action)
    differences = {}
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(wanted), jax.tree.leaves(got), strict=True):
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        scale = np.maximum(1.0, np.abs(np.asarray(a, np.float64)))
        if a.size:
            differences[jax.tree_util.keystr(path)] = (
                np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)) / scale
            )
    for path, difference in differences.items():
        limit = 1e-3 if "warmstart" in path else 1e-5
        assert np.median(difference) <= limit, path
    positions = differences.get(".physics.motion.qpos")
    if positions is not None:
        assert np.median(positions) <= 1e-6
    # A contact at its threshold can change a few robots.
    assert (differences[".reward"] > 1e-3).mean() <= 0.05
