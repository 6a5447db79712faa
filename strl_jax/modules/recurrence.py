"""The loop over time of a recurrent layer, with a gradient of its own.

Plain differentiation of the loop adds up the weight's gradient step by step, one
small matrix product each. Here the backward loop keeps only the gradients of the
pre-activations, and one product over all steps follows it.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from strl_jax.types import Array

Carry = dict[str, Array]


def lstm(gates: Array, carry: Carry) -> Carry:
    """c' = s(f) c + s(i) tanh(g); h' = s(o) tanh(c'). ``gates`` is ``[B, 4 H]``, rows i, f, g, o."""
    i, f, g, o = jnp.split(gates, 4, axis=-1)
    cell = jax.nn.sigmoid(f) * carry["cell"] + jax.nn.sigmoid(i) * jnp.tanh(g)
    return {"hidden": jax.nn.sigmoid(o) * jnp.tanh(cell), "cell": cell}


def gru(gates: Array, carry: Carry) -> Carry:
    """n = tanh(x_n + s(r) h_n); h' = (1 - s(z)) n + s(z) h.

    ``gates`` is ``[B, 6 H]``: rows r, z, n of the inputs' share, then of the hidden state's.
    """
    x_r, x_z, x_n, h_r, h_z, h_n = jnp.split(gates, 6, axis=-1)
    update = jax.nn.sigmoid(x_z + h_z)
    new = jnp.tanh(x_n + jax.nn.sigmoid(x_r + h_r) * h_n)
    return {"hidden": (1 - update) * new + update * carry["hidden"]}


CELLS: dict[str, Callable[[Array, Carry], Carry]] = {"lstm": lstm, "gru": gru}
GATES = {"lstm": 4, "gru": 3}


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def run(
    kind: str, inputs: Array, weight: Array, bias: Array, keep: Array, carry: Carry, fresh: Carry | None = None
) -> Carry:
    """The carry after every step, leaves ``[T, B, H]``.

    Args:
        kind: ``lstm`` or ``gru``.
        inputs: the inputs' share of the gates ``[T, B, G H]``.
        weight, bias: of the hidden state's share, ``[H, G H]`` and ``[G H]``.
        keep: ``[T, B, 1]``, 0 where the carry is replaced before the step, else 1.
        carry: leaves ``[B, H]``, before the first step.
        fresh: what replaces it, leaves ``[T, B, H]``, without a gradient; None: zeros.
    """
    return _forward(kind, inputs, weight, bias, keep, carry, fresh)[0]


def _forward(kind: str, inputs: Array, weight: Array, bias: Array, keep: Array, carry: Carry, fresh: Carry | None):
    def step(carry, now):
        x, keep, fresh = now
        carry = _kept(carry, keep, fresh)
        gates = _join(kind, x, carry["hidden"] @ weight + bias)
        carry = CELLS[kind](gates, carry)
        return carry, (carry, gates)

    if len(keep) == 1:  # no loop: outside of jit each one would be compiled anew
        _, now = step(carry, jax.tree.map(lambda leaf: leaf[0], (inputs, keep, fresh)))
        carries, gates = jax.tree.map(lambda leaf: leaf[None], now)
    else:
        _, (carries, gates) = jax.lax.scan(step, carry, (inputs, keep, fresh), unroll=_unroll(keep))
    return carries, (gates, weight, keep, carry, carries, fresh)


def _backward(kind: str, saved: tuple, grads: Carry):
    gates, weight, keep, start, carries, fresh = saved
    before = jax.tree.map(lambda first, all_: jnp.concatenate([first[None], all_[:-1]]), start, carries)
    before = _kept(before, keep, fresh)

    def step(after, now):
        gates, keep, before, grad = now
        _, pull = jax.vjp(CELLS[kind], gates, before)
        d_gates, d_before = pull(jax.tree.map(jnp.add, after, grad))
        d_hidden = _split(kind, d_gates)[1] @ weight.T
        d_before = d_before | {"hidden": d_before["hidden"] + d_hidden}
        return _kept(d_before, keep), d_gates

    zero = jax.tree.map(jnp.zeros_like, start)
    d_start, d_gates = jax.lax.scan(step, zero, (gates, keep, before, grads), reverse=True, unroll=_unroll(keep))
    d_inputs, d_products = _split(kind, d_gates)
    d_weight = jnp.einsum("tbh,tbg->hg", before["hidden"], d_products)
    d_keep, d_fresh = jax.tree.map(jnp.zeros_like, (keep, fresh))
    return d_inputs, d_weight, d_products.sum((0, 1)), d_keep, d_start, d_fresh


run.defvjp(_forward, _backward)


def _unroll(keep: Array) -> int:
    """Steps in one piece: all of a rollout on a GPU, where each small kernel's launch counts, else one."""
    return min(len(keep), 32) if jax.default_backend() == "gpu" else 1


def _join(kind: str, inputs: Array, product: Array) -> Array:
    return inputs + product if kind == "lstm" else jnp.concatenate([inputs, product], axis=-1)


def _split(kind: str, gates: Array) -> tuple[Array, Array]:
    """Gradients of the two shares from that of what ``_join`` made of them."""
    return (gates, gates) if kind == "lstm" else tuple(jnp.split(gates, 2, axis=-1))


def _kept(carry: Carry, keep: Array, fresh: Carry | None = None) -> Carry:
    """``carry`` where ``keep``, else ``fresh`` or 0, also in the place of NaN."""
    if fresh is None:
        return jax.tree.map(lambda leaf: jnp.where(keep > 0, leaf, 0.0), carry)
    return jax.tree.map(lambda leaf, other: jnp.where(keep > 0, leaf, other), carry, fresh)
