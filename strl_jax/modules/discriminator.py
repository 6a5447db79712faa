"""The discriminator of adversarial motion priors (Peng et al. 2021), least squares form."""

import jax.numpy as jnp
from flax import linen as nn

from strl_jax.modules.mlp import MLP
from strl_jax.types import Array


class Discriminator(nn.Module):
    """Scores states: towards 1 for the reference motion, towards -1 for the policy's.

    Attributes:
        hidden_dims: sizes of the hidden layers, ReLU after each.
        initialization: ``torch`` or ``orthogonal``.
    """

    hidden_dims: tuple[int, ...] = (1024, 512)
    initialization: str = "torch"

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """States ``[..., D]`` to scores ``[...]``."""
        return MLP(self.hidden_dims, 1, "relu", None, self.initialization, name="trunk")(x)[..., 0]


def style_reward(score: Array, coef: float) -> Array:
    """coef max(0, 1 - (d - 1)^2 / 4), ``[...]`` (Peng et al. 2021, equation 7)."""
    return coef * jnp.maximum(0.0, 1.0 - 0.25 * jnp.square(score - 1.0))


def mix_rewards(style: Array, task: Array, lerp: float) -> Array:
    """(1 - lerp) style + lerp task, ``[...]``; a lerp of 0 leaves the style alone."""
    return (1.0 - lerp) * style + lerp * task
