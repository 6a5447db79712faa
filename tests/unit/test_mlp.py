"""The MLP and its activations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from strl_jax.modules.mlp import ACTIVATIONS, MLP, get_activation

# Values at -1 and 2.
VALUES = {
    "elu": (np.exp(-1.0) - 1.0, 2.0),
    "selu": (1.0507009873554805 * 1.6732632423543772 * (np.exp(-1.0) - 1.0), 1.0507009873554805 * 2.0),
    "relu": (0.0, 2.0),
    "crelu": (0.0, 2.0),  # st_rl's name for relu
    "lrelu": (-0.01, 2.0),
    "leaky_relu": (-0.01, 2.0),
    "tanh": (np.tanh(-1.0), np.tanh(2.0)),
    "sigmoid": (1.0 / (1.0 + np.e), 1.0 / (1.0 + np.exp(-2.0))),
    "silu": (-1.0 / (1.0 + np.e), 2.0 / (1.0 + np.exp(-2.0))),
    "swish": (-1.0 / (1.0 + np.e), 2.0 / (1.0 + np.exp(-2.0))),
    "gelu": (-0.15865525, 1.9544997),  # x Phi(x): Phi(-1) = 0.15865525, Phi(2) = 0.97724987
    "softplus": (np.log1p(np.exp(-1.0)), np.log1p(np.exp(2.0))),
    "identity": (-1.0, 2.0),
}


def test_every_activation_has_a_value_here():
    assert VALUES.keys() == ACTIVATIONS.keys()


@pytest.mark.parametrize("name", VALUES)
def test_activation(name):
    np.testing.assert_allclose(get_activation(name.upper())(jnp.asarray([-1.0, 2.0])), VALUES[name], rtol=1e-5)


def test_unknown_activation_lists_the_known():
    with pytest.raises(ValueError, match=r"unknown activation 'PReLU'; known: elu, selu, relu.*Tanhshrink"):
        get_activation("PReLU")


def test_forward():
    kernels = [jnp.asarray([[1.0, -1.0]]), jnp.asarray([[2.0], [3.0]])]
    biases = [jnp.asarray([0.5, 0.0]), jnp.asarray([-1.0])]
    layers = {f"layer_{i}": {"kernel": k, "bias": b} for i, (k, b) in enumerate(zip(kernels, biases, strict=True))}
    x = jnp.asarray([[2.0], [-3.0]])
    # relu(2 + 0.5), relu(-2) = 2.5, 0 -> 5 - 1 = 4;  relu(-2.5), relu(3) = 0, 3 -> 9 - 1 = 8
    plain = MLP((2,), 1, "relu").apply({"params": layers}, x)
    np.testing.assert_allclose(plain, [[4.0], [8.0]])
    ended = MLP((2,), 1, "relu", output_activation="tanh").apply({"params": layers}, x)
    np.testing.assert_allclose(ended, np.tanh([[4.0], [8.0]]), rtol=1e-6)


def test_layer_names_and_shapes():
    module = MLP((4, 5), 2)
    params = jax.eval_shape(module.init, jax.random.key(0), jnp.zeros((7, 3)))["params"]
    shapes = {name: (layer["kernel"].shape, layer["bias"].shape) for name, layer in params.items()}
    assert shapes == {"layer_0": ((3, 4), (4,)), "layer_1": ((4, 5), (5,)), "layer_2": ((5, 2), (2,))}


def test_no_hidden_layer_is_linear():
    params = jax.eval_shape(MLP((), 2).init, jax.random.key(0), jnp.zeros((1, 3)))["params"]
    assert {name: layer["kernel"].shape for name, layer in params.items()} == {"layer_0": (3, 2)}
