"""Convolutions over images, their head, and st_rl's MlpModel."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from strl_jax.modules.conv2d import Conv2dHeadModel, Conv2dModel, conv2d_output_shape
from strl_jax.modules.mlp import get_activation, mlp_model

KEY = jax.random.key(0)


def plain(channels: int = 1, **kwargs) -> Conv2dModel:
    """One 1 x 1 convolution with no activation."""
    return Conv2dModel((channels,), (1,), **({"strides": (1,), "nonlinearity": "Identity"} | kwargs))


def unchanged(channels: int = 1) -> dict:
    """Weights with which ``plain`` returns its input."""
    return {"conv_0": {"kernel": jnp.eye(channels)[None, None], "bias": jnp.zeros(channels)}}


def test_output_shape_of_the_reference():
    # (64 + 2 - 2 - 1) / 2 = 31.5 -> 31, + 1 = 32
    assert conv2d_output_shape(64, 64, kernel_size=3, stride=2, padding=1) == (32, 32)


def test_output_shape_of_pairs():
    # h: (10 + 0 - 2 (3 - 1) - 1) / 2 = 2.5 -> 2, + 1 = 3;  w: (7 + 4 - 3 (2 - 1) - 1) / 3 = 2.33 -> 2, + 1 = 3
    assert conv2d_output_shape(10, 7, (3, 2), [2, 3], (0, 2), (2, 3)) == (3, 3)
    assert conv2d_output_shape(5, 6) == (5, 6)


def test_output_shape_below_one():
    # (2 - 2 - 1) / 1 = -1, + 1 = 0;  9 - 2 = 7
    with pytest.raises(ValueError, match="kernel 3, stride 1, padding 0, dilation 1 leave 0 x 7 of an image of 2 x 9"):
        conv2d_output_shape(2, 9, 3)


def test_neither_int_nor_pair():
    with pytest.raises(ValueError, match=r"int or a pair of height and width, not \(1, 2, 3\)"):
        conv2d_output_shape(9, 9, (1, 2, 3))


def test_output_size():
    # strides: h (20 - 5) / 2 -> 7 + 1 = 8, w (30 - 3) / 2 -> 13 + 1 = 14; then (8 + 2 - 3) + 1 = 8, 14; 4 channels
    strided = Conv2dModel((3, 4), ((5, 3), 3), (2, 1), (0, 1))
    assert strided.conv_out_resolution(20, 30) == (8, 14)
    assert strided.conv_out_size(20, 30) == 4 * 8 * 14
    # max-pool: h 20 - 5 + 1 = 16 -> 8, w 30 - 3 + 1 = 28 -> 14; the second has stride 1 and so no pool
    pooled = Conv2dModel((3, 4), ((5, 3), 3), (2, 1), (0, 1), use_maxpool=True)
    assert pooled.conv_out_resolution(20, 30) == (8, 14)
    # An odd size: h 19 - 5 + 1 = 15 -> 7 by max-pool, (19 - 5) / 2 + 1 = 8 by strides.
    assert pooled.conv_out_resolution(19, 30) == (7, 14)
    assert strided.conv_out_resolution(19, 30) == (8, 14)
    for model in (strided, pooled):
        y = jax.eval_shape(lambda x, model=model: model.init_with_output(KEY, x)[0], jnp.zeros((2, 1, 19, 30)))
        assert y.shape == (2, 4, *model.conv_out_resolution(19, 30))


def test_convolution():
    x = jnp.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])[None]
    kernel = jnp.asarray([[1.0, 2.0], [0.0, -1.0]])[:, :, None, None]
    model = Conv2dModel((1,), (2,), (1,))
    # 1 + 4 - 5 = 0, 2 + 6 - 6 = 2;  4 + 10 - 8 = 6, 5 + 12 - 9 = 8;  bias -3, then relu
    y = model.apply({"params": {"conv_0": {"kernel": kernel, "bias": jnp.asarray([-3.0])}}}, x)
    np.testing.assert_allclose(y, [[[0.0, 0.0], [3.0, 5.0]]])


def test_max_pool():
    x = jnp.asarray([[1.0, 5.0, 2.0, 0.0, 99.0], [3.0, 4.0, -1.0, -2.0, 99.0], [-9.0, 0.0, 7.0, 99.0, 99.0]])[None]
    # Windows of 2 x 2: the third row and the fifth column fill none.
    square = plain(strides=(2,), use_maxpool=True)
    np.testing.assert_array_equal(square.apply({"params": unchanged()}, x), [[[5.0, 2.0]]])
    grad = jax.grad(lambda x: jnp.sum(square.apply({"params": unchanged()}, x)))(x)
    np.testing.assert_array_equal(grad, [[[0, 1, 1, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]]])
    # Windows of 1 x 2.
    y = plain(strides=((1, 2),), use_maxpool=True).apply({"params": unchanged()}, x)
    np.testing.assert_array_equal(y, [[[5.0, 2.0], [4.0, -1.0], [0.0, 99.0]]])


def test_norm_comes_before_the_activation_and_pool_last():
    x = jnp.asarray([[-2.0, -4.0, 4.0, 2.0]])[None]
    model = plain(strides=((1, 2),), use_maxpool=True, normlayer="InstanceNorm2d", nonlinearity="ReLU")
    # mean 0, variance (4 + 16 + 16 + 4) / 4 = 10; relu: 0, 0, 4, 2 over sqrt(10 + 1e-5); the pool: 0, 4
    y = model.apply({"params": unchanged()}, x)
    np.testing.assert_allclose(y, [[[0.0, 4.0 / np.sqrt(10.0 + 1e-5)]]], rtol=1e-6)


def test_instance_norm_is_per_image_and_channel():
    x = jnp.asarray([[[1.0, 3.0]], [[10.0, 30.0]]])
    # means 2, 20; variances 1, 100
    y = plain(2, normlayer="InstanceNorm2d").apply({"params": unchanged(2)}, jnp.stack([x, x + 5.0]))
    expected = [[[-1.0, 1.0]], [[-1.0, 1.0]]] / np.sqrt([[[1.0 + 1e-5]], [[100.0 + 1e-5]]]) * [[[1.0]], [[10.0]]]
    np.testing.assert_allclose(y, [expected, expected], rtol=1e-5)


def test_batch_norm():
    x = jnp.asarray([[[1.0, 3.0]], [[10.0, 30.0]]])
    norm = {"scale": [2.0, 1.0], "bias": [0.5, 0.0], "running_mean": [1.0, 20.0], "running_var": [4.0, 25.0]}
    params = unchanged(2) | {"norm_0": jax.tree.map(jnp.asarray, norm, is_leaf=lambda leaf: isinstance(leaf, list))}
    model = plain(2, normlayer="BatchNorm2d")
    # 2 (x - 1) / 2 + 0.5;  (x - 20) / 5
    y = model.apply({"params": params}, x)
    np.testing.assert_allclose(y, [[[0.5, 2.5]], [[-2.0, 2.0]]], rtol=1e-5)

    grads = jax.grad(lambda params: jnp.sum(jnp.square(model.apply({"params": params}, x))))(params)["norm_0"]
    for name in ("running_mean", "running_var"):
        np.testing.assert_array_equal(grads[name], [0.0, 0.0])
    for name in ("scale", "bias"):
        # Sums of 2 y (x - mean) / std and of 2 y. Channel 0: 2 x 2.5 x 1 and 2 x 3;
        # channel 1: 2 (-2)(-2) + 2 x 2 x 2 and 0.
        expected = {"scale": [5.0, 16.0], "bias": [6.0, 0.0]}[name]
        np.testing.assert_allclose(grads[name], expected, rtol=1e-4, atol=1e-5)


def test_batch_norm_starts_at_mean_0_and_variance_1():
    params = plain(2, normlayer="BatchNorm2d").init(KEY, jnp.ones((2, 1, 1)))["params"]["norm_0"]
    expected = {"scale": [1.0, 1.0], "bias": [0.0, 0.0], "running_mean": [0.0, 0.0], "running_var": [1.0, 1.0]}
    assert {name: value.tolist() for name, value in params.items()} == expected


@pytest.mark.parametrize("use_maxpool", [False, True], ids=["strides", "maxpool"])
@pytest.mark.parametrize("normlayer", [None, "BatchNorm2d", "InstanceNorm2d"])
def test_leading_axes(normlayer, use_maxpool):
    x = jax.random.normal(KEY, (2, 3, 2, 7, 8))
    model = Conv2dHeadModel(
        (3, 4), (3, 2), (2, 1), hidden_sizes=5, output_size=6, normlayer=normlayer, use_maxpool=use_maxpool
    )
    variables = model.init(KEY, x)
    y = model.apply(variables, x)
    assert y.shape == (2, 3, 6)
    loop = jnp.stack([jnp.stack([model.apply(variables, image) for image in row]) for row in x])
    np.testing.assert_allclose(y, loop, rtol=1e-5, atol=1e-6)


def test_head_reads_channels_rows_and_columns_in_this_order():
    x = jnp.arange(12.0).reshape(2, 3, 2)  # [C, H, W]
    layer = {"kernel": (10.0 ** jnp.arange(-6.0, 6.0))[:, None], "bias": jnp.asarray([1.0])}
    model = Conv2dHeadModel((2,), (1,), (1,), output_size=1, nonlinearity="Identity")
    y = model.apply({"params": {"conv": unchanged(2), "head": {"layer_0": layer}}}, x)
    expected = sum(i * 10.0 ** (i - 6) for i in range(12)) + 1.0
    np.testing.assert_allclose(y, [expected], rtol=1e-6)


def test_head_without_output_size_ends_with_its_activation():
    model = Conv2dHeadModel((2,), (3,), (2,), hidden_sizes=(4, 5), normlayer="BatchNorm2d")
    x = jax.random.normal(KEY, (50, 1, 5, 7))
    y, variables = model.init_with_output(KEY, x)
    # (5 - 3) / 2 + 1 = 2, (7 - 3) / 2 + 1 = 3; 2 channels
    shapes = jax.tree.map(jnp.shape, variables["params"])
    assert shapes["head"] == {"layer_0": {"kernel": (12, 4), "bias": (4,)}, "layer_1": {"kernel": (4, 5), "bias": (5,)}}
    assert shapes["conv"]["conv_0"] == {"kernel": (3, 3, 1, 2), "bias": (2,)}
    assert shapes["conv"]["norm_0"].keys() == {"scale", "bias", "running_mean", "running_var"}
    assert y.min() == 0.0
    assert y.max() > 0.0


def test_torch_initialisation():
    params = Conv2dModel((400,), ((2, 3),), (1,)).init(KEY, jnp.zeros((6, 4, 4)))["params"]["conv_0"]
    bound = 1.0 / 6.0  # fan_in = 6 x 2 x 3 = 36
    for values in params.values():
        assert 0.98 * bound < jnp.abs(values).max() <= bound
        assert abs(values.mean()) < 0.1 * bound


def test_orthogonal_initialisation():
    model = Conv2dModel((4,), (3,), (1,), initialization="orthogonal")
    params = model.init(KEY, jnp.zeros((2, 4, 4)))["params"]["conv_0"]
    kernel = params["kernel"].reshape(18, 4)
    np.testing.assert_allclose(kernel.T @ kernel, 2.0 * np.eye(4), atol=1e-5)
    np.testing.assert_array_equal(params["bias"], np.zeros(4))


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"strides": (1,)}, "lengths must be equal: channels 2, kernel_sizes 2, strides 1, paddings 2"),
        ({"kernel_sizes": (1, 1, 1)}, "lengths must be equal: channels 2, kernel_sizes 3, strides 2, paddings 2"),
        ({"paddings": (0,)}, "lengths must be equal: channels 2, kernel_sizes 2, strides 2, paddings 1"),
        ({"normlayer": "LayerNorm"}, "unknown normlayer 'LayerNorm'; known: None, BatchNorm2d, InstanceNorm2d"),
        ({"nonlinearity": "Rellu"}, "unknown activation 'Rellu'; known: elu, .*LeakyReLU"),
        ({"kernel_sizes": (1, 9)}, "kernel .9, 9.*leave -2 x -1 of an image of 6 x 7"),
    ],
)
def test_bad_arguments(kwargs, message):
    settings = {"channels": (2, 3), "kernel_sizes": (1, 1), "strides": (1, 1)} | kwargs
    x = jnp.zeros((1, 6, 7))
    with pytest.raises(ValueError, match=message):
        Conv2dModel(**settings).init(KEY, x)
    with pytest.raises(ValueError, match=message):
        Conv2dHeadModel(**settings, hidden_sizes=4).init(KEY, x)


# Values at -1 and 2.
@pytest.mark.parametrize(
    ("name", "values"),
    {
        "LeakyReLU": (-0.01, 2.0),
        "CReLU": (0.0, 2.0),
        "CELU": (np.exp(-1.0) - 1.0, 2.0),
        "ReLU6": (0.0, 2.0),
        "Hardtanh": (-1.0, 1.0),
        "Hardsigmoid": (2.0 / 6.0, 5.0 / 6.0),
        "Hardswish": (-2.0 / 6.0, 10.0 / 6.0),
        "LogSigmoid": (-np.log(1.0 + np.e), -np.log(1.0 + np.exp(-2.0))),
        "Softsign": (-1.0 / 2.0, 2.0 / 3.0),
    }.items(),
)
def test_torch_activation(name, values):
    np.testing.assert_allclose(get_activation(name)(jnp.asarray([-1.0, 2.0])), values, rtol=1e-5)


def test_relu6_ends_at_6():
    np.testing.assert_array_equal(get_activation("ReLU6")(jnp.asarray([5.0, 7.0])), [5.0, 6.0])


def layer_sizes(module) -> dict[str, tuple[int, int]]:
    """Kernel shapes of an MLP's layers over three inputs."""
    params = jax.eval_shape(module.init, KEY, jnp.zeros(3))["params"]
    return {name: layer["kernel"].shape for name, layer in params.items()}


def test_mlp_model_sizes():
    assert layer_sizes(mlp_model((4, 5), 2, "ReLU")) == {"layer_0": (3, 4), "layer_1": (4, 5), "layer_2": (5, 2)}
    assert layer_sizes(mlp_model(4, 2, "ReLU")) == {"layer_0": (3, 4), "layer_1": (4, 2)}
    assert layer_sizes(mlp_model([4, 5], None, "ReLU")) == {"layer_0": (3, 4), "layer_1": (4, 5)}
    assert layer_sizes(mlp_model(4, None, "ReLU")) == {"layer_0": (3, 4)}
    assert layer_sizes(mlp_model(None, 2, "ReLU")) == layer_sizes(mlp_model([], 2, "ReLU")) == {"layer_0": (3, 2)}


def test_mlp_model_output():
    one = {"kernel": jnp.asarray([[1.0], [-1.0]]), "bias": jnp.zeros(1)}
    two = {"kernel": jnp.asarray([[-3.0]]), "bias": jnp.asarray([1.0])}
    x = jnp.asarray([[5.0, 3.0], [3.0, 5.0]])
    # relu(2), relu(-2);  1 - 3 x 2, 1;  relu of both
    np.testing.assert_array_equal(mlp_model(1, None, "ReLU").apply({"params": {"layer_0": one}}, x), [[2.0], [0.0]])
    params = {"params": {"layer_0": one, "layer_1": two}}
    np.testing.assert_array_equal(mlp_model(1, 1, "ReLU").apply(params, x), [[-5.0], [1.0]])
    np.testing.assert_array_equal(mlp_model((1, 1), None, "ReLU").apply(params, x), [[0.0], [1.0]])
    # No hidden layer: linear.
    np.testing.assert_array_equal(mlp_model(None, 1, "ReLU").apply({"params": {"layer_0": one}}, x), [[2.0], [-2.0]])


@pytest.mark.parametrize("hidden", [None, (), []])
def test_mlp_model_without_any_size(hidden):
    with pytest.raises(ValueError, match="without output_size needs at least one hidden size"):
        mlp_model(hidden, None, "ReLU")
