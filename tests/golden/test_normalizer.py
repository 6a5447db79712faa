"""Running statistics against torch's three normalisers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from golden.files import Golden, paths
from strl_jax.modules import normalizer

FILES = paths("normalizer*.npz")


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def golden(request):
    return Golden(request.param)


@pytest.fixture(params=[("exp", 1e-4, 2e-6), ("exp64", 1e-9, 1e-12)], ids=["float32", "float64"])
def precision(request):
    """Expected keys, dtype and tolerance."""
    prefix, rtol, atol = request.param
    with jax.enable_x64(prefix == "exp64"):
        yield prefix, jnp.float64 if prefix == "exp64" else jnp.float32, {"rtol": rtol, "atol": atol}


@pytest.mark.parametrize("variant", ["no_until", "until"])
def test_empirical(golden, precision, variant):
    prefix, dtype, tolerance = precision
    config, key = golden.config, f"{prefix}/empirical_{variant}"
    until = config["until"] if variant == "until" else None
    stats = normalizer.init((config["dim"],), dtype=dtype)
    for index in range(len(config["batch_sizes"])):
        x = jnp.asarray(golden[f"in/x{index}"], dtype)
        stats = normalizer.update(stats, x, until=until)
        y = normalizer.normalize(stats, x, config["eps_empirical"])
        for name, actual in [("mean", stats.mean), ("var", stats.var), ("count", stats.count), ("y", y)]:
            expected = golden[f"{key}/step{index}/{name}"]
            np.testing.assert_allclose(actual, expected, **tolerance, err_msg=f"step {index} {name}")

    probe = normalizer.normalize(stats, jnp.asarray(golden["in/probe"], dtype), config["eps_empirical"])
    np.testing.assert_allclose(probe, golden[f"{key}/probe"], **tolerance)
    back = normalizer.denormalize(stats, probe, config["eps_empirical"])
    np.testing.assert_allclose(back, golden[f"{key}/probe_inverse"], **tolerance)


def test_running_mean_std(golden):
    config = golden.config
    with jax.enable_x64(True):
        stats = normalizer.init((config["dim"],), config["rms_epsilon"], jnp.float64)
        for index in range(len(config["batch_sizes"])):
            stats = normalizer.update(stats, jnp.asarray(golden[f"in/x{index}"], jnp.float64))
            for name in ("mean", "var", "count"):
                expected = golden[f"exp64/running/step{index}/{name}"]
                np.testing.assert_allclose(getattr(stats, name), expected, rtol=1e-9, atol=1e-12, err_msg=name)
        probe = jnp.asarray(golden["in/probe"], jnp.float64)
        y = normalizer.normalize_clipped(stats, probe, config["normalizer_epsilon"], config["clip_obs"])
        np.testing.assert_allclose(y, golden["exp64/running/probe_normalize"], rtol=1e-9, atol=1e-12)


def test_running_mean_std_float32(golden):
    config = golden.config
    stats = normalizer.init((config["dim"],), config["rms_epsilon"])
    for index in range(len(config["batch_sizes"])):
        stats = normalizer.update(stats, jnp.asarray(golden[f"in/x{index}"]))
    probe = jnp.asarray(golden["in/probe"])
    y = normalizer.normalize_clipped(stats, probe, config["normalizer_epsilon"], config["clip_obs"])
    np.testing.assert_allclose(y, golden["exp/running/probe_normalize_torch"], rtol=1e-4, atol=2e-6)


def test_l2_normalize(golden):
    y = normalizer.l2_normalize(jnp.asarray(golden["in/probe"]))
    np.testing.assert_allclose(y, golden["exp/l2_normalize"], rtol=1e-4, atol=2e-6)
