"""A small PPO and a small made-up rollout for the tests of the update."""

import jax
import jax.numpy as jnp

from strl_jax.algorithms import losses, ppo
from strl_jax.algorithms.base import Algorithm
from strl_jax.algorithms.compat import Compat
from strl_jax.envs import probe
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.modules.policy import Policy
from strl_jax.observations import Segments
from strl_jax.types import Batch, EnvState, EpisodeState, EpisodeSums, RolloutState

SHAPES = {"joints": (2,), "command": (1,), "heights": (1, 2)}
ACTION_SIZE = 2


def make_algorithm(compat: Compat | None = None, *, env=None, **config) -> Algorithm:
    """PPO with ``config`` fields over the components ``SHAPES``, or over all of ``env``."""
    compat = Compat() if compat is None else compat
    shapes = SHAPES if env is None else env.observation_shapes
    names = list(shapes)
    return ppo.make(
        ppo.PPOConfig(**config),
        Policy(
            action_size=ACTION_SIZE if env is None else env.action_size,
            actor_hidden_dims=(8,),
            critic_hidden_dims=(8,),
            log_std=not compat.linear_std,
        ),
        Segments.select_from(shapes, names[:2]),
        Segments.select_from(shapes, names),
        compat,
    )


def make_env(name: str, episode_length: int, **kwargs) -> EpisodeEnv:
    """A probe environment in episodes."""
    return EpisodeEnv(probe.make(name, **kwargs), episode_length)


def normal(key, index: int, shape: tuple[int, ...]):
    """Standard normal numbers, others for every ``index``."""
    return jax.random.normal(jax.random.fold_in(key, index), shape)


def make_obs(key, batch: tuple[int, ...]) -> dict:
    """Components ``[*batch, *shape]`` that are neither centred nor of unit size."""
    return {name: 2 * normal(key, i, (*batch, *shape)) + i for i, (name, shape) in enumerate(SHAPES.items())}


def make_outputs(algorithm: Algorithm, train_state, key, num_steps: int, num_envs: int, valid) -> dict:
    """What ``rollout.finish`` takes: stacked records of made-up steps, ended where not ``valid[T, B]``."""
    batch = (num_steps, num_envs)
    obs = make_obs(key, batch)
    groups = algorithm.pack(train_state.stats, obs, ("actor",))
    reset = jnp.zeros(batch, bool)
    mean, std, _ = algorithm.policy.apply(train_state.params["policy"], groups, {}, reset, method="act")
    action = mean + std * normal(key, 11, mean.shape)
    done = (normal(key, 12, batch) > 1.0) | ~valid
    timeout = done & valid & (normal(key, 13, batch) > 0.0)
    reward = jnp.where(valid, normal(key, 14, batch) + 1.0, 0.0)
    transition = {
        "obs": obs,
        "action": action,
        "log_prob": losses.log_prob(action, mean, std),
        "mean": mean,
        "std": std,
        "reward": reward,
        "done": done,
        "timeout": timeout,
        "valid": valid,
        "reset": reset,
        "extras": {},
    }
    log = {
        "reward": reward,
        "length": jnp.ones(batch, jnp.int32),
        "finished": done & valid,
        "discounted": 3.0 * reward,
        "metrics": {},
    }
    return {"transition": transition, "terminal_obs": make_obs(jax.random.fold_in(key, 15), batch), "log": log}


def make_rollout_state(key, num_envs: int) -> RolloutState:
    """The state after the steps of ``make_outputs``."""
    zero, no = jnp.zeros(num_envs), jnp.zeros(num_envs, bool)
    env = EnvState({}, make_obs(key, (num_envs,)), zero, no, no, {}, {})
    counter = jnp.zeros(num_envs, jnp.int32)
    return RolloutState(
        env=EpisodeState(env, counter),
        carry={},
        reset=no,
        episode=EpisodeSums(zero, counter, {}),
        discounted=zero,
        key=jax.random.split(key, num_envs),
    )


def make_batch(algorithm: Algorithm, train_state, key, num_steps: int, num_envs: int) -> Batch:
    """A made-up batch ``[T, B, ...]`` that the policy of ``train_state`` has collected, all of it valid."""
    valid = jnp.ones((num_steps, num_envs), bool)
    record = make_outputs(algorithm, train_state, key, num_steps, num_envs, valid)["transition"]
    groups = algorithm.pack(train_state.stats, record["obs"])
    value = algorithm.value(train_state.params, groups)
    return Batch(
        groups=groups,
        **{name: record[name] for name in ("action", "log_prob", "mean", "std")},
        value=value,
        advantage=normal(key, 21, value.shape),
        return_=value + normal(key, 22, value.shape),
        weight=valid.astype(jnp.float32),
        extras={},
    )
