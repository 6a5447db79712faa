"""Multi-layer perceptron and activation functions by name."""

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
from flax import linen as nn

from strl_jax.modules.initializers import initializers
from strl_jax.types import Array


@jax.custom_jvp
def elu(x: Array) -> Array:
    """x if x > 0, otherwise exp(x) - 1. The gradient is computed from the output, so that the input is not stored."""
    return jnp.where(x > 0, x, jnp.expm1(jnp.minimum(x, 0.0)))


@elu.defjvp
def _elu_jvp(primals, tangents):
    y = elu(*primals)
    return y, tangents[0] * jnp.where(y > 0, 1.0, y + 1.0)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "elu": elu,
    "selu": jax.nn.selu,
    "relu": jax.nn.relu,
    "crelu": jax.nn.relu,  # in st_rl, crelu is another name of relu, not the concatenated ReLU
    "lrelu": partial(jax.nn.leaky_relu, negative_slope=0.01),
    "leaky_relu": partial(jax.nn.leaky_relu, negative_slope=0.01),
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
    "silu": jax.nn.silu,
    "swish": jax.nn.silu,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "softplus": jax.nn.softplus,
    "identity": lambda x: x,
}

# Class names of torch.nn that are not in the table above, with torch's default arguments. Classes that learn
# parameters, draw random numbers or mix entries (PReLU, RReLU, GLU, Softmax ...) are no activations here.
TORCH_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "LeakyReLU": ACTIVATIONS["leaky_relu"],
    "CELU": jax.nn.celu,
    "ReLU6": jax.nn.relu6,
    "Hardtanh": jax.nn.hard_tanh,
    "Hardsigmoid": jax.nn.hard_sigmoid,
    "Hardswish": jax.nn.hard_swish,
    "Hardshrink": lambda x: jnp.where(jnp.abs(x) > 0.5, x, 0.0),
    "LogSigmoid": jax.nn.log_sigmoid,
    "Mish": jax.nn.mish,
    "Softshrink": lambda x: x - jnp.clip(x, -0.5, 0.5),
    "Softsign": jax.nn.soft_sign,
    "Tanhshrink": lambda x: x - jnp.tanh(x),
}


def get_activation(name: str) -> Callable[[Array], Array]:
    """Activation by its name in a config or by its class name in torch.nn; case does not matter.

    Raises:
        ValueError: the name is unknown; the message lists the known names.
    """
    known = ACTIVATIONS | TORCH_ACTIVATIONS
    found = {each.lower(): function for each, function in known.items()}.get(name.lower())
    if found is None:
        raise ValueError(f"unknown activation {name!r}; known: {', '.join(known)}")
    return found


class MLP(nn.Module):
    """Linear layers with an activation between them.

    Attributes:
        hidden_dims: sizes of the hidden layers; may be empty.
        output_dim: size of the output.
        activation: name of the activation after each hidden layer.
        output_activation: name of the activation after the last layer, or None.
        initialization: ``torch`` or ``orthogonal``.
    """

    hidden_dims: Sequence[int]
    output_dim: int
    activation: str = "elu"
    output_activation: str | None = None
    initialization: str = "torch"

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """``[..., input]`` to ``[..., output_dim]``."""
        activations = [self.activation] * len(self.hidden_dims) + [self.output_activation]
        for index, (size, activation) in enumerate(zip((*self.hidden_dims, self.output_dim), activations, strict=True)):
            x = nn.Dense(size, **initializers(self.initialization, x.shape[-1]), name=f"layer_{index}")(x)
            x = x if activation is None else get_activation(activation)(x)
        return x


def mlp_model(
    hidden_sizes: Sequence[int] | int | None,
    output_size: int | None,
    nonlinearity: str,
    initialization: str = "torch",
    name: str | None = None,
) -> MLP:
    """st_rl's ``MlpModel`` as an ``MLP``.

    Args:
        hidden_sizes: sizes of the hidden layers, or one size; None or empty: no
            hidden layers.
        output_size: size of the linear output layer; None: the output is the
            activation of the last hidden layer.
        nonlinearity: name of the activation.
        initialization: ``torch`` or ``orthogonal``.
        name: name of the submodule.

    Raises:
        ValueError: there is neither a hidden size nor an output size.
    """
    hidden = (hidden_sizes,) if isinstance(hidden_sizes, int) else tuple(hidden_sizes or ())
    if output_size is not None:
        return MLP(hidden, output_size, nonlinearity, None, initialization, name=name)
    if not hidden:
        raise ValueError("an MLP without output_size needs at least one hidden size")
    return MLP(hidden[:-1], hidden[-1], nonlinearity, nonlinearity, initialization, name=name)
