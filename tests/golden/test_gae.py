"""Returns and advantages against torch's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from golden.files import Golden, paths
from strl_jax.algorithms import returns

FILES = paths("gae_*.npz")


@pytest.fixture(params=[("exp", 1e-4, 2e-6), ("exp64", 1e-9, 1e-12)], ids=["float32", "float64"])
def precision(request):
    """Expected keys with the tolerance of their precision."""
    prefix, rtol, atol = request.param
    with jax.enable_x64(prefix == "exp64"):
        yield prefix, {"rtol": rtol, "atol": atol}


def factors(config: dict) -> tuple[float, float]:
    """Discount and trace as the recursion of the float64 reference had them.

    It multiplies them into a float32 ``1 - done``: gamma and gamma * lam are rounded to float32.
    """
    gamma = np.float32(config["gamma"])
    product = gamma * np.float32(config["lam"])
    return float(gamma), float(product) / float(gamma) if gamma else config["lam"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_gae(path, precision):
    prefix, tolerance = precision
    golden, dtype = Golden(path), jnp.float64 if prefix == "exp64" else jnp.float32
    config = golden.config
    value, last_value = golden.flat("in/values", dtype), golden.flat("in/last_values", dtype)
    reward = jnp.asarray(golden["in/rewards"], dtype)
    if config["use_time_outs"]:
        reward = returns.bootstrap_timeouts(reward, golden["in/time_outs"], value, gamma=config["gamma"])
    gamma, lam = factors(config) if prefix == "exp64" else (config["gamma"], config["lam"])
    raw, return_ = returns.gae(reward, value, jnp.asarray(golden["in/dones"]), last_value, gamma=gamma, lam=lam)
    advantage = returns.normalize_advantages(raw, eps=config["adv_eps"])

    assert advantage.dtype == dtype
    for name, actual in [
        ("rewards_bootstrapped", reward),
        ("returns", return_),
        ("advantages_raw", raw),
        ("advantages", advantage),
    ]:
        np.testing.assert_allclose(actual, golden.flat(f"{prefix}/{name}"), **tolerance, err_msg=name)
