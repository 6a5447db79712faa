"""LSTM and GRU memories over sequences that may contain episode ends."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from strl_jax.modules import recurrence
from strl_jax.modules.initializers import torch_uniform
from strl_jax.types import Array


def initial_carry(kind: str, batch: int, num_layers: int, hidden_size: int, dtype=jnp.float32) -> dict[str, Array]:
    """An empty memory: ``hidden``, and for an LSTM ``cell``, each zeros ``[B, layers, H]``."""
    zeros = jnp.zeros((batch, num_layers, hidden_size), dtype)
    return {"hidden": zeros, "cell": zeros} if kind == "lstm" else {"hidden": zeros}


class Memory(nn.Module):
    """A stack of recurrent layers with torch's parameters: two biases, gate rows i, f, g, o or r, z, n.

    No padding: a sequence holds the ends of episodes, and the carry is zeroed before
    the first step of each. The product with the inputs is taken once for the whole
    sequence; only the product with the hidden state is taken step by step.

    Attributes:
        kind: ``lstm`` or ``gru``.
        hidden_size: size of the hidden state.
        num_layers: number of layers.
    """

    kind: str = "lstm"
    hidden_size: int = 256
    num_layers: int = 1

    @nn.compact
    def __call__(
        self,
        x: Array,
        carry: dict[str, Array],
        reset: Array,
        start: dict[str, Array] | None = None,
        started: Array | None = None,
    ) -> tuple[Array, dict[str, Array]]:
        """Outputs, and the carry after every step.

        Args:
            x: ``[T, B, D]``, or ``[B, D]`` for one step.
            carry: leaves ``[B, layers, H]``, before the first step.
            reset: ``[T, B]`` or ``[B]``, bool or 0/1: the carry is zeroed before these steps.
            start: leaves ``[T, B, layers, H]``, or without ``T``: given carries, see ``started``.
            started: bool, shape of ``reset``: before these steps, whether reset or not,
                ``start`` replaces the carry. No gradient flows into it or past it.

        Returns:
            ``[T, B, H]`` and leaves ``[T, B, layers, H]``, or both without ``T``.
        """
        reset = reset.astype(bool)
        fresh = None
        if start is not None:
            reset = reset | started
            fresh = jax.tree.map(lambda leaf: jnp.where(started[..., None, None], leaf, 0.0), start)
        if reset.ndim == 1:
            fresh = jax.tree.map(lambda leaf: leaf[None], fresh)
            y, carries = self._layers(x[None], carry, reset[None], fresh)
            return y[0], jax.tree.map(lambda leaf: leaf[0], carries)
        return self._layers(x, carry, reset, fresh)

    def _layers(self, x: Array, carry: dict[str, Array], reset: Array, fresh: dict[str, Array] | None):
        keep = (~reset)[..., None].astype(x.dtype)
        carries = []
        for layer in range(self.num_layers):
            own, given = jax.tree.map(lambda leaf, i=layer: leaf[..., i, :], (carry, fresh))
            states = self._layer(layer, x, own, keep, given)
            carries.append(states)
            x = states["hidden"]
        return x, jax.tree.map(lambda *leaves: jnp.stack(leaves, axis=2), *carries)

    def _layer(
        self, layer: int, x: Array, carry: dict[str, Array], keep: Array, fresh: dict[str, Array] | None
    ) -> dict[str, Array]:
        init, size = torch_uniform(self.hidden_size), recurrence.GATES[self.kind] * self.hidden_size
        weight_ih = self.param(f"weight_ih_l{layer}", init, (x.shape[-1], size))
        weight_hh = self.param(f"weight_hh_l{layer}", init, (self.hidden_size, size))
        bias_ih = self.param(f"bias_ih_l{layer}", init, (size,))
        bias_hh = self.param(f"bias_hh_l{layer}", init, (size,))
        inputs = x @ weight_ih + bias_ih
        return recurrence.run(self.kind, inputs, weight_hh, bias_hh, keep, carry, fresh)
