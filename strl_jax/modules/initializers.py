"""Weight initialisation: torch's default and orthogonal."""

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.linen.initializers import Initializer


def torch_uniform(fan_in: int) -> Initializer:
    """U(-1/sqrt(fan_in), 1/sqrt(fan_in)): the distribution of weights and biases in ``torch.nn.Linear``."""
    bound = fan_in**-0.5

    def init(key, shape, dtype=jnp.float32):
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return init


def dense(features: int, fan_in: int, kind: str, name: str) -> nn.Dense:
    """A linear layer.

    Args:
        features: output size.
        fan_in: input size.
        kind: ``torch`` (weights and biases from ``torch_uniform``) or
            ``orthogonal`` (gain sqrt(2), biases 0).
        name: name of the submodule.
    """
    if kind == "torch":
        init = torch_uniform(fan_in)
        return nn.Dense(features, kernel_init=init, bias_init=init, name=name)
    return nn.Dense(features, kernel_init=nn.initializers.orthogonal(2**0.5), name=name)
