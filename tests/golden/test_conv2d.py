"""Convolutions against torch's, and their output sizes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from golden.files import Golden, paths
from strl_jax.modules.conv2d import Conv2dModel, conv2d_output_shape

SHAPES = paths("conv2d_shapes.npz")
MODELS = [path for path in paths("conv2d_*.npz") if path not in SHAPES]
NORM_NAMES = {"weight": "scale", "bias": "bias", "running_mean": "running_mean", "running_var": "running_var"}

EVERY_MODEL = pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)


@pytest.fixture(params=[("exp", 1e-4, 2e-6), ("exp64", 1e-6, 1e-9)], ids=["float32", "float64"])
def precision(request):
    """Prefix of the expected keys, dtype and tolerance."""
    prefix, rtol, atol = request.param
    with jax.enable_x64(prefix == "exp64"):
        yield prefix, jnp.float64 if prefix == "exp64" else jnp.float32, {"rtol": rtol, "atol": atol}


def make_model(golden: Golden) -> Conv2dModel:
    """The file's model; ``in_channels`` and ``eval_mode`` are no attributes of ours."""
    return Conv2dModel(**{k: v for k, v in golden.config.items() if k not in ("in_channels", "eval_mode")})


def to_flax(weights: dict[str, np.ndarray], dtype) -> dict:
    """``conv.INDEX.NAME``, where activations and pools count too, to ``conv_i`` and ``norm_i``."""
    tree, convolutions = {}, {}
    for name, value in weights.items():
        if value.ndim == 4:
            convolutions[int(name.split(".")[1])] = f"conv_{len(convolutions)}"
    for name, value in weights.items():
        _, index, kind = name.split(".")
        if kind == "num_batches_tracked":
            continue
        array = jnp.asarray(value, dtype)
        if int(index) in convolutions:
            layer = tree.setdefault(convolutions[int(index)], {})
            layer["kernel" if kind == "weight" else "bias"] = array.transpose(2, 3, 1, 0) if array.ndim == 4 else array
        else:
            convolution = convolutions[int(index) - 1]
            tree.setdefault(convolution.replace("conv", "norm"), {})[NORM_NAMES[kind]] = array
    return {"params": tree}


@EVERY_MODEL
def test_output(path, precision):
    prefix, dtype, tolerance = precision
    golden = Golden(path)
    model, x = make_model(golden), jnp.asarray(golden["in/x"], dtype)
    weights = to_flax(golden.group("param"), dtype)
    fresh = jax.eval_shape(model.init, jax.random.key(0), x)
    assert jax.tree.map(jnp.shape, weights) == jax.tree.map(jnp.shape, fresh)
    y = jax.jit(model.apply)(weights, x)
    assert y.dtype == dtype
    np.testing.assert_allclose(y, golden[f"{prefix}/y"], **tolerance)


@EVERY_MODEL
def test_output_size(path):
    golden = Golden(path)
    model, (h, w) = make_model(golden), golden["in/x"].shape[-2:]
    assert model.conv_out_resolution(h, w) == tuple(golden["exp/conv_out_resolution"])
    assert model.conv_out_size(h, w) == golden["exp/conv_out_size"]


@pytest.mark.parametrize("path", SHAPES, ids=lambda path: path.stem)
def test_output_shape(path):
    golden = Golden(path)
    assert len(golden["in/cases"]) > 0
    for case, expected in zip(golden["in/cases"].tolist(), golden["exp/hw"].tolist(), strict=True):
        c = dict(zip(golden.config["columns_in"], case, strict=True))
        kernel, stride, pad = ((c[f"{name}_h"], c[f"{name}_w"]) for name in ("kernel", "stride", "pad"))
        assert list(conv2d_output_shape(c["h"], c["w"], kernel, stride, pad, c["dilation"])) == expected, c
