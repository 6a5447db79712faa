"""LSTM and GRU memories for sequences in which episodes can end."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from strl_jax.modules import recurrence
from strl_jax.modules.initializers import torch_uniform
from strl_jax.types import Array


def initial_carry(kind: str, batch: int, num_layers: int, hidden_size: int, dtype=jnp.float32) -> dict[str, Array]:
    """The zero state of a memory: ``hidden`` and, for an LSTM, ``cell``, each ``[B, layers, H]``."""
    zeros = jnp.zeros((batch, num_layers, hidden_size), dtype)
    return {"hidden": zeros, "cell": zeros} if kind == "lstm" else {"hidden": zeros}


class Memory(nn.Module):
    """A stack of recurrent layers with the parameters of ``torch.nn.LSTM`` and ``torch.nn.GRU``.

    The weights are torch's, transposed: ``[input, G H]`` and ``[H, G H]`` for G gates.
    Each layer has two biases; the gates are in torch's order, i, f, g, o (LSTM) or
    r, z, n (GRU); see ``recurrence`` for the equations. Sequences are not padded: they
    can contain ends of episodes, and the carry is set to zero before the first step of
    the next episode. The matrix product with the inputs is computed once for the whole
    sequence, only the product with the hidden state is computed step by step.

    Attributes:
        kind: ``lstm`` or ``gru``.
        hidden_size: size H of the hidden state.
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
        new_carry: dict[str, Array] | None = None,
        replace: Array | None = None,
    ) -> tuple[Array, dict[str, Array]]:
        """Outputs, and the carry after every step.

        Args:
            x: ``[T, B, D]``, or ``[B, D]`` for one step.
            carry: before the first step, leaves ``[B, layers, H]``.
            reset: ``[T, B]`` or ``[B]``, bool or 0/1: where it is true, the carry is set to zero before the step.
            new_carry: leaves ``[T, B, layers, H]``, or ``[B, layers, H]`` for one step: states
                that replace the carry, see ``replace``.
            replace: bool, shape of ``reset``: where it is true, ``new_carry`` replaces the carry before
                the step, also where ``reset`` is true. No gradient flows into ``new_carry`` or
                into earlier steps.

        Returns:
            Outputs ``[T, B, H]`` and leaves ``[T, B, layers, H]``; both without ``T`` for one step.
        """
        reset, one_step = reset.astype(bool), reset.ndim == 1
        if new_carry is not None:
            reset = reset | replace
            new_carry = jax.tree.map(lambda leaf: jnp.where(replace[..., None, None], leaf, 0.0), new_carry)
        if one_step:
            x, reset, new_carry = jax.tree.map(lambda leaf: leaf[None], (x, reset, new_carry))
        keep = (~reset)[..., None].astype(x.dtype)
        init, size = torch_uniform(self.hidden_size), recurrence.GATES[self.kind] * self.hidden_size
        states = []
        for layer in range(self.num_layers):
            weight_ih = self.param(f"weight_ih_l{layer}", init, (x.shape[-1], size))
            weight_hh = self.param(f"weight_hh_l{layer}", init, (self.hidden_size, size))
            bias_ih = self.param(f"bias_ih_l{layer}", init, (size,))
            bias_hh = self.param(f"bias_hh_l{layer}", init, (size,))
            of_layer = jax.tree.map(lambda leaf, i=layer: leaf[..., i, :], (carry, new_carry))
            inputs = x @ weight_ih + bias_ih
            states.append(recurrence.run(self.kind, inputs, weight_hh, bias_hh, keep, *of_layer))
            x = states[-1]["hidden"]
        outputs = x, jax.tree.map(lambda *leaves: jnp.stack(leaves, axis=2), *states)
        return jax.tree.map(lambda leaf: leaf[0], outputs) if one_step else outputs
