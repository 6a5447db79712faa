"""Environments: the protocol, episodes, and the adapters for simulators. In reading order:

- ``base``: the protocol ``Env``, a batch of environments as the pure functions ``reset`` and ``step``.
- ``episode``: ``EpisodeEnv`` adds the time limit, automatic resets and the handling of NaN.
- ``contract``: checks that an environment follows the protocol.
- ``probe/``: tiny environments whose exact solution is known, to test a learner.
- ``precision``: ``exact``, float32 matrix products for simulators.
- ``live_leaves``: the part of a simulator's state that must be kept from step to step.
- ``simulator_env``: what the adapters ``brax`` (``BraxEnv``) and ``playground``
  (``PlaygroundEnv``) share.
- ``legged/``: legged robots on flat ground or a terrain, on MJX; start with ``env`` (``LeggedEnv``).

Import ``BraxEnv``, ``PlaygroundEnv`` and ``LeggedEnv`` from their modules: their simulators take seconds to import.
"""

from strl_jax.envs import contract, probe
from strl_jax.envs.base import Env, carried, finite, where
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.envs.precision import exact

__all__ = ["Env", "EpisodeEnv", "carried", "contract", "exact", "finite", "probe", "where"]
