"""Discriminator of adversarial motion priors (AMP), in least-squares form.

Peng et al. 2021, "AMP: Adversarial Motion Priors for Stylized Physics-Based
Character Control", https://arxiv.org/abs/2104.02180.
"""

import jax.numpy as jnp
from flax import linen as nn

from strl_jax.modules.mlp import MLP
from strl_jax.types import Array


class Discriminator(nn.Module):
    """Scores states; trained towards 1 on reference motion and towards -1 on the policy's motion.

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
    """Style reward coef * max(0, 1 - (d - 1)^2 / 4) of scores d ``[...]`` (Peng et al. 2021, equation 7)."""
    return coef * jnp.maximum(0.0, 1.0 - 0.25 * jnp.square(score - 1.0))


def mix_rewards(style: Array, task: Array, lerp: float) -> Array:
    """(1 - lerp) * style + lerp * task, ``[...]``; with ``lerp`` 0 the result is the style reward only."""
    return (1.0 - lerp) * style + lerp * task
