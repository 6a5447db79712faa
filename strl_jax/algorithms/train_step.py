"""One iteration, from simulator to new weights, as one compiled program."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from strl_jax.algorithms import memory, origins, rollout
from strl_jax.algorithms.base import Algorithm
from strl_jax.algorithms.update import Transform, learn
from strl_jax.sharding import AXIS, replicated, shard_jit, sharded
from strl_jax.types import Array, EpisodeSums, Rollout, RolloutState, TrainState


def make_init(
    env,
    algorithm: Algorithm,
    mesh: Mesh,
    num_envs: int,
    *,
    random_lengths: bool = True,
    num_steps: int = 1,
    data: dict | None = None,
):
    """``key -> (TrainState, RolloutState)``, compiled, the results placed on the mesh.

    Args:
        env: an ``EpisodeEnv``.
        num_envs: environments of all shards together.
        random_lengths: start every first episode at a random step count.
        num_steps: steps of an iteration; only needed by an algorithm that keeps earlier rollouts.
        data: constant data of the hooks; only its shapes are used.
    """

    def build(key: Array):
        params_key, env_key, run_key = jax.random.split(key, 3)
        episode, metrics = env.at_iteration(jnp.int32(0)).init(jax.random.split(env_key, num_envs), random_lengths)
        hook, hooks = algorithm.act_hook, algorithm.init_hooks(jax.random.fold_in(run_key, 2), num_envs)
        if hook is not None:
            hooks[hook.name] = hook.init(jax.random.fold_in(run_key, 1), num_envs)
        states = {each.name: each.init_envs(num_envs) for each in algorithm.reward_hooks}
        state = RolloutState(
            env=episode,
            carry=algorithm.policy.initial_carry(num_envs, params_key),
            reset=jnp.ones(num_envs, bool),
            episode=EpisodeSums(
                reward=jnp.zeros(num_envs),
                length=jnp.zeros(num_envs, jnp.int32),
                metrics=metrics,
            ),
            discounted=jnp.zeros(num_envs),
            hooks=hooks | {name: value for name, value in states.items() if value},
            memory={},
            key=jax.random.split(run_key, num_envs),
        )
        train = algorithm.init(params_key)
        if memory.needed(algorithm):
            state = state.replace(memory=memory.init(algorithm, rollout_shapes(train, state), data))
        return train, state

    def rollout_shapes(train, state):
        def collect(*args):
            return collect_shard(env, algorithm, num_steps, None, *args)[2]

        return jax.eval_shape(collect, train, state, data)

    return jax.jit(build, in_shardings=replicated(mesh), out_shardings=(replicated(mesh), sharded(mesh)))


def init_states(
    env, algorithm: Algorithm, mesh: Mesh, key: Array, num_envs: int, **options
) -> tuple[TrainState, RolloutState]:
    """Both states of a new run; arguments as in ``make_init``, ``key`` is the PRNG key of the run."""
    return make_init(env, algorithm, mesh, num_envs, **options)(key)


def abstract_states(env, algorithm: Algorithm, mesh: Mesh, num_envs: int, **options) -> tuple[TrainState, RolloutState]:
    """Shapes, dtypes and shardings of the results of ``init_states``; nothing is compiled or run."""
    init = make_init(env, algorithm, mesh, num_envs, **options)
    shapes = jax.eval_shape(init, jax.random.key(0))
    return tuple(
        jax.tree.map(lambda x, place=place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), tree)
        for tree, place in zip(shapes, (replicated(mesh), sharded(mesh)), strict=True)
    )


def collect_shard(env, algorithm: Algorithm, num_steps: int, axis_name: str | None, train_state, state, data=None):
    """One shard's rollout. Returns the results of ``rollout.collect``, and the key of the update."""
    batch = state.reset.shape[0]
    collect_key, update_key, pool_key, next_key = jax.random.split(state.key[0], 4)
    env = env.at_iteration(train_state.iteration)
    pool, not_finite = env.checked_pool(pool_key, batch)

    def env_step(episode, action, draw, **ends):
        return env.step(episode, action, pool, draw, **ends)

    train_state, state, rolled, metrics = rollout.collect(
        algorithm, env_step, train_state, state, collect_key, num_steps, data=data, axis_name=axis_name
    )
    if not_finite:
        not_finite = {f"{name} of a reset": flags for name, flags in not_finite.items()}
        counted = origins.by_environment(not_finite, "initial states", axis_name)
        metrics = metrics.replace(origins=(*metrics.origins, counted.replace(first=None)))
    return train_state, state.replace(key=jax.random.split(next_key, batch)), rolled, metrics, update_key


def learn_shard(algorithm: Algorithm, axis_name: str | None, train_state, kept, rolled, key, data=None, transforms=()):
    """One shard's update, with the rollout added to the memory ``kept``.

    Returns:
        train state, memory, and the metrics and origins of ``update.learn``.
    """
    kept = memory.remember(algorithm, kept, rolled, data=data, axis_name=axis_name)
    options = {"data": data, "memory": kept, "transforms": transforms, "axis_name": axis_name}
    train_state, metrics, not_finite = learn(algorithm, train_state, rolled, key, **options)
    return train_state, kept, metrics, not_finite


def make_train_step(env, algorithm: Algorithm, mesh: Mesh, num_steps: int, *, transforms: tuple[Transform, ...] = ()):
    """``(train_state, rollout_state, data) -> train_state, rollout_state, metrics``, compiled, both states donated.

    Args:
        env: an ``EpisodeEnv``.
        num_steps: steps of every environment in an iteration.
        transforms: of the minibatches, see ``update.epochs``.

    ``data`` holds the constant data of the hooks; ``{}`` if they need none.
    """

    def step(train_state: TrainState, state: RolloutState, data: dict):
        train_state, state, rolled, metrics, key = collect_shard(
            env, algorithm, num_steps, AXIS, train_state, state, data
        )
        train_state, kept, losses, not_finite = learn_shard(
            algorithm, AXIS, train_state, state.memory, rolled, key, data, transforms
        )
        metrics = metrics.replace(update=losses, origins=(*metrics.origins, not_finite))
        return train_state, state.replace(memory=kept), metrics

    return shard_jit(step, mesh, in_specs=(P(), P(AXIS), P()), out_specs=(P(), P(AXIS), P()), donate_argnums=(0, 1))


ROLLOUT_SPECS = Rollout(steps=P(None, AXIS), carry0=P(AXIS), last_value=P(AXIS), stats=P(), carries=P(None, AXIS))


def make_collect(env, algorithm: Algorithm, mesh: Mesh, num_steps: int):
    """Only the rollout: ``(train_state, rollout_state, data) -> train_state, rollout_state, rollout``."""

    def step(train_state: TrainState, state: RolloutState, data: dict):
        return collect_shard(env, algorithm, num_steps, AXIS, train_state, state, data)[:3]

    return shard_jit(
        step, mesh, in_specs=(P(), P(AXIS), P()), out_specs=(P(), P(AXIS), ROLLOUT_SPECS), donate_argnums=(0, 1)
    )


def make_update(algorithm: Algorithm, mesh: Mesh):
    """Only the update: ``(train_state, rollout, memory, data, key) -> train_state, metrics``."""

    def step(train_state: TrainState, rolled: Rollout, kept: dict, data: dict, key: Array):
        key = jax.random.fold_in(key, jax.lax.axis_index(AXIS))
        train_state, _, metrics, _ = learn_shard(algorithm, AXIS, train_state, kept, rolled, key, data)
        return train_state, metrics

    specs = (P(), ROLLOUT_SPECS, P(AXIS), P(), P())
    return shard_jit(step, mesh, in_specs=specs, out_specs=(P(), P()), donate_argnums=(0,))
