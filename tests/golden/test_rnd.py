"""Random network distillation with ``rsl_rl: true`` against rsl_rl 5.5.1; 2.3.3 and 3.3.0 give the same numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import make_algorithm

from golden.files import FOLDER, Golden, nested
from strl_jax.algorithms import rnd
from strl_jax.algorithms.hooks import Collected
from strl_jax.config import from_dict
from strl_jax.modules import normalizer
from strl_jax.observations import Segments
from strl_jax.types import RunningStats

GOLDEN = Golden(FOLDER / "rsl_rl_rnd.npz")


def network(name: str) -> dict:
    """Variables of ``predictor`` or ``target``."""
    paths = {}
    for key, value in GOLDEN.arrays.items():
        if key.startswith(f"param/{name}."):
            _, index, kind = key.split(".")
            paths["params", f"layer_{int(index) // 2}", "kernel" if kind == "weight" else "bias"] = value.T
    return nested(paths, jnp.float32)


def rnd_config(case: dict):
    """The config that ``from_dict`` makes of rsl_rl's keys, and the lines."""
    data = GOLDEN.config["size"] | {"weight_schedule": None} | case
    config, lines = from_dict({"env": {"name": "probe:constant"}, "algorithm": {"rnd_cfg": data}})
    return config.algorithm.rnd_cfg, lines


@pytest.mark.parametrize(("i", "case"), list(enumerate(GOLDEN.config["cases"])), ids=str)
def test_bonus(i, case):
    config, lines = rnd_config(case)
    assert len(lines) == 1
    states = jnp.asarray(GOLDEN["in/states"], jnp.float32)
    runs, steps, envs, size = states.shape
    group = Segments(("state",), ((size,),))
    (hook,) = rnd.add(make_algorithm(), config, group, GOLDEN.config["dt"]).reward_hooks
    params = {"rnd": network("predictor"), "rnd_target": network("target")}
    stats, kept = {}, hook.init_envs(envs)
    if config.reward_normalization:
        stats["rnd_reward"] = normalizer.init()
    if config.state_normalization:
        mean, var = (jnp.asarray(GOLDEN[f"in/{name}"], jnp.float32) for name in ("mean", "var"))
        stats["rnd_state"] = RunningStats(mean, var, jnp.float32(1.0))
    for run in range(runs):
        collected = Collected(
            obs={},
            terminal_obs={"state": states[run]},
            next_obs={},
            action=jnp.zeros((steps, envs, 1)),
            valid=jnp.ones((steps, envs), bool),
            extras={},
            iteration=jnp.int32(run),
            params=params,
            state=kept,
        )
        rewarded = jax.jit(lambda stats, collected: hook.reward(collected, stats, jnp.zeros((steps, envs))))(
            stats, collected
        )
        np.testing.assert_allclose(rewarded.reward, GOLDEN["exp64/bonus"][i, run], rtol=2e-5, atol=1e-7)
        stats, kept = rewarded.stats, rewarded.state
    if config.reward_normalization:
        moments = stats["rnd_reward"]
        actual = [moments.mean, moments.var, moments.count]
        np.testing.assert_allclose(actual, GOLDEN["exp64/moments"][i], rtol=2e-5)
