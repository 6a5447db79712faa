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


def initializers(kind: str, fan_in: int) -> dict[str, Initializer]:
    """The arguments ``kernel_init`` and ``bias_init`` of a Flax layer.

    Args:
        kind: ``torch`` (weights and biases from ``torch_uniform``) or
            ``orthogonal`` (gain sqrt(2), biases 0).
        fan_in: number of inputs of each output.
    """
    if kind == "torch":
        return dict.fromkeys(("kernel_init", "bias_init"), torch_uniform(fan_in))
    return {"kernel_init": nn.initializers.orthogonal(2**0.5)}
