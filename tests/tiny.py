"""A small PPO and a small made-up rollout for the tests of the update."""

import jax
import jax.numpy as jnp
import numpy as np

from strl_jax.algorithms import losses, optimizers, ppo, train_step
from strl_jax.algorithms.base import Algorithm
from strl_jax.algorithms.compat import Compat
from strl_jax.envs import probe
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.modules import normalizer
from strl_jax.modules.policy import Policy
from strl_jax.observations import Segments
from strl_jax.sharding import make_mesh
from strl_jax.types import (
    Batch,
    EnvState,
    EpisodeState,
    EpisodeSums,
    RolloutState,
    RunningStats,
    StepRecord,
    TrainState,
)

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


def make_state(algorithm: Algorithm, seed: int = 0) -> TrainState:
    """A train state like ``algorithm.init``'s, its weights from numpy: nothing to compile."""
    shapes = jax.eval_shape(algorithm.init, jax.random.key(0))
    rng = np.random.default_rng(seed)
    params = jax.tree.map(lambda x: jnp.asarray(rng.uniform(-0.5, 0.5, x.shape), jnp.float32), shapes.params)
    leaves = params["policy"]["params"]
    name, start = ("std", 1.0) if algorithm.compat.linear_std else ("log_std", 0.0)
    leaves[name] = jnp.full_like(leaves[name], start)
    stats = jax.tree.map(
        lambda x: normalizer.init(x.mean.shape), shapes.stats, is_leaf=lambda x: isinstance(x, RunningStats)
    )
    optimized = algorithm.optimizers.items()
    return TrainState(
        params=params,
        opt_state={name: optimizers.init(value, algorithm.trained(params, name)) for name, value in optimized},
        learning_rate=algorithm.learning_rates(jnp.int32(0)),
        iteration=jnp.int32(0),
        stats=stats,
    )


def normal(seed: int, index: int, shape: tuple[int, ...]):
    """Standard normal numbers, others for every ``index``."""
    return jnp.asarray(np.random.default_rng((seed, index)).normal(size=shape), jnp.float32)


def running(mean: float, *shape: int) -> RunningStats:
    """Statistics of a component of that shape that differ with ``mean``."""
    return RunningStats(np.full(shape, mean), np.full(shape, mean + 0.5), np.float32(mean))


def close(actual, expected):
    """Trees whose leaves are equal up to rounding."""
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), actual, expected)


def make_obs(seed: int, batch: tuple[int, ...]) -> dict:
    """Components ``[*batch, *shape]`` that are neither centred nor of unit size."""
    return {name: 2 * normal(seed, i, (*batch, *shape)) + i for i, (name, shape) in enumerate(SHAPES.items())}


def make_outputs(algorithm: Algorithm, train_state, seed: int, num_steps: int, num_envs: int, valid) -> StepRecord:
    """What ``finish`` takes: stacked records of made-up steps, ended where not ``valid[T, B]``."""
    batch = (num_steps, num_envs)
    obs = make_obs(seed, batch)
    groups = algorithm.pack(train_state.stats, obs, ("actor",))
    reset = jnp.zeros(batch, bool)
    mean, std, _ = algorithm.policy.apply(train_state.params["policy"], groups, {}, reset, method="act")
    done = (normal(seed, 12, batch) > 1.0) | ~valid
    action = mean + std * normal(seed, 11, mean.shape)
    return StepRecord(
        obs=obs,
        action=action,
        sampled=action,
        mean=mean,
        std=std,
        reward=jnp.where(valid, normal(seed, 14, batch) + 1.0, 0.0),
        done=done,
        timeout=done & valid & (normal(seed, 13, batch) > 0.0),
        valid=valid,
        masks={},
        extras={},
        terminal_obs=make_obs(seed + 1, batch),
        metrics=normal(seed, 15, (*batch, 1)),
    )


def make_rollout_state(seed: int, num_envs: int) -> RolloutState:
    """A state before or after the steps of ``make_outputs``; an episode in progress, one metric."""
    no, counter = jnp.zeros(num_envs, bool), jnp.full(num_envs, 3, jnp.int32)
    some = normal(seed, 16, (num_envs,))
    env = EnvState({}, make_obs(seed, (num_envs,)), some, no, no, {"effort": some}, {})
    return RolloutState(
        env=EpisodeState(env, counter),
        carry={},
        reset=no,
        episode=EpisodeSums(some, counter, {"effort": some}),
        discounted=2.0 * some,
        hooks={},
        memory={},
        key=jax.random.split(jax.random.key(seed), num_envs),
    )


def make_batch(algorithm: Algorithm, train_state, seed: int, num_steps: int, num_envs: int) -> Batch:
    """A made-up batch ``[T, B, ...]`` that the policy of ``train_state`` has collected, all of it valid."""
    valid = jnp.ones((num_steps, num_envs), bool)
    record = make_outputs(algorithm, train_state, seed, num_steps, num_envs, valid)
    groups = algorithm.pack(train_state.stats, record.obs)
    reset = jnp.zeros((num_steps, num_envs), bool)
    carry = algorithm.policy.initial_carry(num_envs)
    value, _ = algorithm.value(train_state.params, groups, carry, reset)
    return Batch(
        groups=groups,
        action=record.action,
        mean=record.mean,
        std=record.std,
        log_prob=losses.log_prob(record.action, record.mean, record.std),
        value=value,
        advantage=normal(seed, 21, value.shape),
        return_=value + normal(seed, 22, value.shape),
        weight=valid.astype(jnp.float32),
        reset=reset,
        masks={},
        carry=carry,
        extras={},
    )


def filled(shapes, seed: int):
    """Any numbers of these shapes: nothing to compile."""
    leaves, structure = jax.tree.flatten(shapes)
    rng = np.random.default_rng(seed)

    def fill(leaf):
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(rng.integers(2**32, size=(*leaf.shape, 2), dtype=np.uint32))
        return jnp.asarray(rng.normal(size=leaf.shape), leaf.dtype)

    return jax.tree.unflatten(structure, [fill(leaf) for leaf in leaves])


def start_states(env, algorithm: Algorithm, num_envs: int, num_steps: int):
    """A new run's rollout state, in episodes of any age that show any numbers; and states to start again from."""
    mesh, key = make_mesh(jax.devices()[:1]), jax.random.key(0)
    _, shapes = jax.eval_shape(train_step.make_init(env, algorithm, mesh, num_envs, num_steps=num_steps), key)
    state = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes.replace(env=None, key=None))
    now = filled(shapes.env, 1).replace(step=jnp.arange(num_envs, dtype=jnp.int32) % 3)
    state = state.replace(env=now, key=filled(shapes.key, 2), reset=jnp.ones(num_envs, bool))
    return state, filled(jax.eval_shape(lambda key: env.pool(key, num_envs), key), 3)
