"""Hidden states drawn afresh where trajectories start: st_rl's ``hidden_state_resample_prob``."""

import jax

from strl_jax.modules.policy import Policy
from strl_jax.types import Array


def draw_random_carry(policy: Policy, key: Array, reset: Array, prob: Array | float) -> dict:
    """What ``Policy`` takes as ``starts``: with ``prob`` a trajectory starts from hidden states in U(-1, 1).

    Trajectories start at t = 0 and wherever ``reset``. All memories of an environment
    draw together, other numbers each.

    Args:
        policy: its memories say how the states look.
        key: PRNG key.
        reset: ``[T, B]``, bool or 0/1.
        prob: probability, in [0, 1].

    Returns:
        ``mask``, bool ``[T, B]``, and ``carry``: memory -> leaves ``[T, B, layers, H]``.
    """
    mask_key, carry_key = jax.random.split(key)
    begins = reset.astype(bool).at[0].set(True)
    mask = begins & (jax.random.uniform(mask_key, reset.shape) < prob)
    leaves, structure = jax.tree.flatten(policy.initial_carry(reset.shape[1]))
    drawn = [
        jax.random.uniform(one, (len(reset), *leaf.shape), leaf.dtype, minval=-1.0)
        for one, leaf in zip(jax.random.split(carry_key, len(leaves)), leaves, strict=True)
    ]
    return {"mask": mask, "carry": jax.tree.unflatten(structure, drawn)}
