"""Observation groups, and the policy with PPO: what acting needs, and the base of every algorithm."""

from collections.abc import Sequence

from strl_jax.algorithms import ppo
from strl_jax.algorithms.base import Algorithm
from strl_jax.builders.policy import make_policy
from strl_jax.config import Config
from strl_jax.config.errors import ConfigError, not_one_of, reported_after
from strl_jax.envs.base import Env
from strl_jax.modules.policy import Policy
from strl_jax.observations import Segments


def make_ppo(config: Config, policy: Policy, groups: dict[str, Segments]) -> Algorithm:
    """PPO with the config's settings.

    Raises:
        ConfigError: ``clip_min_std`` has another length than the actions.
    """
    with reported_after("algorithm."):
        return ppo.make(config.algorithm, policy, groups["actor"], groups["critic"], config.resolved_compat)


def make_acting(config: Config, env: Env) -> Algorithm:
    """The config's policy for the observations and actions of ``env``, with PPO.

    Raises:
        ConfigError: an unknown component, or as ``make_ppo``.
    """
    groups = make_groups(config, env)
    return make_ppo(config, make_policy(config, env.action_size, groups), groups)


def make_groups(config: Config, env: Env) -> dict[str, Segments]:
    """The groups ``actor`` and ``critic``. Raises ``ConfigError`` for an unknown component."""
    return {name: make_group(config, env, name) for name in ("actor", "critic")}


def make_group(config: Config, env: Env, group: str, default: Sequence[str] | None = None) -> Segments:
    """The components of one observation group.

    Args:
        default: its components if the config names none; None: all components of the environment.

    Raises:
        ConfigError: an unknown component.
    """
    offered = env.observation_shapes
    names = getattr(config.env.groups, group)
    if names is None:
        names = tuple(offered) if default is None else tuple(default)
    for name in names:
        if name not in offered:
            raise ConfigError(f"env.groups.{group}: {not_one_of(name, tuple(offered))}")
    with reported_after(f"env.groups.{group}: "):
        return Segments.select_from(offered, names)
