"""The actor-critic."""

import jax.numpy as jnp
from flax import linen as nn

from strl_jax.modules.mlp import MLP
from strl_jax.types import Array, PolicyOutput


class Policy(nn.Module):
    """Gaussian actor and critic over named observation groups.

    Inputs are packed, normalised groups ``{"actor": [..., D], "critic": [..., D]}``.

    Attributes:
        action_size: number of actions.
        actor_hidden_dims, critic_hidden_dims: hidden layers.
        activation: name of the activation.
        mu_activation: activation of the action mean, or None.
        init_noise_std: standard deviation of the actions at the start.
        log_std: the free parameter is log(std); False keeps st_rl's linear ``std``.
        initialization: ``torch`` or ``orthogonal``.
    """

    action_size: int
    actor_hidden_dims: tuple[int, ...] = (256, 256, 256)
    critic_hidden_dims: tuple[int, ...] = (256, 256, 256)
    activation: str = "elu"
    mu_activation: str | None = None
    init_noise_std: float = 1.0
    log_std: bool = True
    initialization: str = "torch"

    def setup(self):
        self.actor = MLP(
            self.actor_hidden_dims, self.action_size, self.activation, self.mu_activation, self.initialization
        )
        self.critic = MLP(self.critic_hidden_dims, 1, self.activation, None, self.initialization)
        start = jnp.log(self.init_noise_std) if self.log_std else self.init_noise_std
        self.std = self.param(
            "log_std" if self.log_std else "std", nn.initializers.constant(start), (self.action_size,)
        )

    def __call__(self, groups: dict[str, Array], carry: dict, reset: Array) -> PolicyOutput:
        """Action distribution and value.

        Args:
            groups: packed groups, ``[..., D]``.
            carry: ``{}``; recurrent policies keep their memories here.
            reset: bool, batch shape; memories are zeroed before these steps.
        """
        mean, std, carry = self.act(groups, carry, reset)
        return PolicyOutput(mean, std, self.value(groups), carry)

    def act(self, groups: dict[str, Array], carry: dict, reset: Array) -> tuple[Array, Array, dict]:
        """Mean and standard deviation ``[..., A]`` of the actions, and the new carry."""
        del reset
        mean = self.actor(groups["actor"])
        std = jnp.exp(self.std) if self.log_std else self.std
        return mean, jnp.broadcast_to(std, mean.shape), carry

    def value(self, groups: dict[str, Array]) -> Array:
        """Value of the states, batch shape."""
        return self.critic(groups["critic"])[..., 0]
