"""Random initial memory states of trajectories: st_rl's ``hidden_state_resample_prob``."""

import jax

from strl_jax.modules.policy import Policy
from strl_jax.types import Array


def draw_random_carry(policy: Policy, key: Array, reset: Array, prob: Array | float) -> dict:
    """The argument ``random_carry`` of ``Policy``: memory states from U(-1, 1) at the start of some trajectories.

    A trajectory starts at t = 0 and at every step where ``reset`` is set. Whether a
    trajectory gets a random state is one draw for all memories of the policy; their
    states are drawn independently.

    Args:
        policy: gives the shapes of the memory states.
        key: PRNG key.
        reset: ``[T, B]``, bool or 0/1.
        prob: probability of a random state, in [0, 1].

    Returns:
        ``mask``, bool ``[T, B]``, the steps that start from a random state, and
        ``carry``: memory -> leaves ``[T, B, layers, H]``, the states.
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
