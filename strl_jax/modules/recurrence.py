"""LSTM and GRU layers over time, with a custom gradient.

The automatic gradient of the loop computes the weight's gradient with one small
matrix product per step. Here the backward loop only stores the gradients of the
gates' pre-activations, and one matrix product over all steps follows the loop.

The equations and the order of the gates are those of ``torch.nn.LSTM`` and
``torch.nn.GRU``; s is the sigmoid. x_k and h_k are the parts of gate k that come from
the inputs (W_ik x + b_ik) and from the hidden state (W_hk h + b_hk).
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from strl_jax.types import Array

Carry = dict[str, Array]


def lstm(gates: Array, carry: Carry) -> Carry:
    """One step of an LSTM: c' = s(f) c + s(i) tanh(g), h' = s(o) tanh(c').

    Args:
        gates: pre-activations i, f, g, o in this order, ``[B, 4 H]``; each is x_k + h_k.
        carry: ``hidden`` h and ``cell`` c, each ``[B, H]``.
    """
    i, f, g, o = jnp.split(gates, 4, axis=-1)
    cell = jax.nn.sigmoid(f) * carry["cell"] + jax.nn.sigmoid(i) * jnp.tanh(g)
    return {"hidden": jax.nn.sigmoid(o) * jnp.tanh(cell), "cell": cell}


def gru(gates: Array, carry: Carry) -> Carry:
    """One step of a GRU: r = s(x_r + h_r), z = s(x_z + h_z), n = tanh(x_n + r h_n), h' = (1 - z) n + z h.

    Args:
        gates: x_r, x_z, x_n, h_r, h_z, h_n in this order, ``[B, 6 H]``.
        carry: ``hidden`` h, ``[B, H]``.
    """
    x_r, x_z, x_n, h_r, h_z, h_n = jnp.split(gates, 6, axis=-1)
    update = jax.nn.sigmoid(x_z + h_z)
    new = jnp.tanh(x_n + jax.nn.sigmoid(x_r + h_r) * h_n)
    return {"hidden": (1 - update) * new + update * carry["hidden"]}


CELLS: dict[str, Callable[[Array, Carry], Carry]] = {"lstm": lstm, "gru": gru}
GATES = {"lstm": 4, "gru": 3}  # number of gates G


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def run(
    kind: str, inputs: Array, weight: Array, bias: Array, keep: Array, carry: Carry, new_carry: Carry | None = None
) -> Carry:
    """The carry after every step, leaves ``[T, B, H]``.

    Args:
        kind: ``lstm`` or ``gru``.
        inputs: x_k of all gates, ``[T, B, G H]``.
        weight, bias: of the hidden state, ``[H, G H]`` and ``[G H]``.
        keep: ``[T, B, 1]``, 0 where the carry is replaced before the step, otherwise 1.
        carry: before the first step, leaves ``[B, H]``.
        new_carry: replaces the carry where ``keep`` is 0, leaves ``[T, B, H]``; it gets no
            gradient. None: zeros.
    """
    return _forward(kind, inputs, weight, bias, keep, carry, new_carry)[0]


def _forward(kind: str, inputs: Array, weight: Array, bias: Array, keep: Array, carry: Carry, new_carry: Carry | None):
    def step(carry, inputs_of_step):
        x, keep, new_carry = inputs_of_step
        carry = _select_carry(carry, keep, new_carry)
        gates = _join(kind, x, carry["hidden"] @ weight + bias)
        carry = CELLS[kind](gates, carry)
        return carry, (carry, gates)

    if len(keep) == 1:  # one step needs no scan; outside of jit, a scan is compiled again at every call
        _, outputs = step(carry, jax.tree.map(lambda leaf: leaf[0], (inputs, keep, new_carry)))
        carries, gates = jax.tree.map(lambda leaf: leaf[None], outputs)
    else:
        _, (carries, gates) = jax.lax.scan(step, carry, (inputs, keep, new_carry), unroll=_unroll(keep))
    return carries, (gates, weight, keep, carry, carries, new_carry)


def _backward(kind: str, saved: tuple, grads: Carry):
    gates, weight, keep, carry, carries, new_carry = saved
    before = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest[:-1]]), carry, carries)
    before = _select_carry(before, keep, new_carry)

    def step(d_after, inputs_of_step):
        gates, keep, before, grad = inputs_of_step
        _, cell_vjp = jax.vjp(CELLS[kind], gates, before)
        d_gates, d_before = cell_vjp(jax.tree.map(jnp.add, d_after, grad))
        d_hidden = _split(kind, d_gates)[1] @ weight.T
        d_before = d_before | {"hidden": d_before["hidden"] + d_hidden}
        return _select_carry(d_before, keep), d_gates

    zero = jax.tree.map(jnp.zeros_like, carry)
    d_carry, d_gates = jax.lax.scan(step, zero, (gates, keep, before, grads), reverse=True, unroll=_unroll(keep))
    d_inputs, d_products = _split(kind, d_gates)
    d_weight = jnp.einsum("tbh,tbg->hg", before["hidden"], d_products)
    d_keep, d_new_carry = jax.tree.map(jnp.zeros_like, (keep, new_carry))
    return d_inputs, d_weight, d_products.sum((0, 1)), d_keep, d_carry, d_new_carry


run.defvjp(_forward, _backward)


def _unroll(keep: Array) -> int:
    """Steps of the loop that are unrolled: up to 32 on a GPU, where kernel launches dominate, otherwise 1."""
    return min(len(keep), 32) if jax.default_backend() == "gpu" else 1


def _join(kind: str, inputs: Array, product: Array) -> Array:
    """The argument ``gates`` of a cell, from the parts of the inputs and of the hidden state, each ``[..., G H]``."""
    return inputs + product if kind == "lstm" else jnp.concatenate([inputs, product], axis=-1)


def _split(kind: str, gates: Array) -> tuple[Array, Array]:
    """Gradients of the arguments of ``_join``, from the gradient of its result."""
    return (gates, gates) if kind == "lstm" else tuple(jnp.split(gates, 2, axis=-1))


def _select_carry(carry: Carry, keep: Array, new_carry: Carry | None = None) -> Carry:
    """``carry`` where ``keep`` is 1, otherwise ``new_carry`` or 0. ``where``, because 0 * NaN would be NaN."""
    if new_carry is None:
        return jax.tree.map(lambda leaf: jnp.where(keep > 0, leaf, 0.0), carry)
    return jax.tree.map(lambda leaf, new: jnp.where(keep > 0, leaf, new), carry, new_carry)
