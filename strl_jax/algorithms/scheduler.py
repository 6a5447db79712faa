"""The base class of torch's learning-rate schedulers."""

import jax.numpy as jnp
import optax
from pydantic import ConfigDict

from strl_jax.section import Arguments
from strl_jax.types import Array


class Scheduler(Arguments):
    """A scheduler of torch: its fields are torch's arguments with torch's defaults."""

    model_config = ConfigDict(strict=True)

    @property
    def changes_momentum(self) -> bool:
        """Whether it also sets the momentum of the optimiser, or the first of its betas."""
        return False

    def rate(self, initial: float, i: Array) -> Array:
        """The learning rate after ``i`` (int32) steps from the optimiser's rate ``initial``."""
        raise NotImplementedError

    def momentum(self, i: Array) -> Array:
        """The momentum after ``i`` (int32) steps."""
        raise NotImplementedError

    def schedule(self, initial: float) -> optax.Schedule:
        """``rate`` as a function of the iteration, float32."""
        return lambda iteration: jnp.asarray(self.rate(initial, jnp.asarray(iteration, jnp.int32)), jnp.float32)

    def momentum_schedule(self, iteration: Array) -> Array:
        """``momentum`` at an iteration, float32."""
        return jnp.asarray(self.momentum(jnp.asarray(iteration, jnp.int32)), jnp.float32)
