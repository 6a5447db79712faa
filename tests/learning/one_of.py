"""Several probe environments in one, so that one compiled program trains any of them."""

from collections.abc import Sequence

import jax.numpy as jnp

from strl_jax.envs import probe
from strl_jax.envs.base import Env, carried, where


class OneOf(Env):
    """All probes run side by side; ``which[B]``, kept over the ends of episodes, says which one is seen."""

    def __init__(self, names: Sequence[str]):
        self.names = tuple(names)
        self.probes = [probe.make(name) for name in names]
        self.observation_shapes = self.probes[0].observation_shapes
        self.action_size = self.probes[0].action_size

    def reset(self, key):
        return self.see(jnp.zeros(key.shape, jnp.int32), [p.reset(key) for p in self.probes])

    def step(self, state, action):
        which, states = state.physics
        return self.see(which, [p.step(s, action) for p, s in zip(self.probes, states, strict=True)])

    def merge(self, done, fresh, state):
        (which, states), (_, fresh_states) = state.physics, fresh.physics
        return carried(self.see(which, where(done, fresh_states, states)))

    def see(self, which, states):
        """The state of probe number ``which[B]`` of the list ``states``."""
        rows = jnp.arange(which.shape[0])

        def pick(leaves):
            return jnp.stack(leaves)[which, rows]

        return states[0].replace(
            physics=(which, states),
            obs={"state": pick([s.obs["state"] for s in states])},
            reward=pick([s.reward for s in states]),
            terminated=pick([s.terminated for s in states]),
            timeout=pick([s.timeout for s in states]),
            metrics={},
        )

    def turn_to(self, name, state):
        """``state`` of all environments with probe ``name`` in sight."""
        which, states = state.physics
        return carried(self.see(jnp.full_like(which, self.names.index(name)), states))
