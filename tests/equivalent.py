"""Rollouts, plans of minibatches and checks that the equivalence tests share."""

import contextlib
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import monitoring
from tiny import ACTION_SIZE, make_obs, normal

from strl_jax.algorithms import losses, rollout, tppo
from strl_jax.algorithms.base import Algorithm
from strl_jax.modules.policy import Policy
from strl_jax.modules.stages import MemoryStage
from strl_jax.observations import Segments
from strl_jax.types import Rollout, Transition

SHARDS, T, B = 4, 6, 8  # devices, steps and environments of the rollout


@contextlib.contextmanager
def counted_compilations():
    """The list of XLA compilations that happen inside."""
    found = []

    def listen(event, duration, **_):
        if "backend_compile_duration" in event:
            found.append((event, duration))

    monitoring.register_event_duration_secs_listener(listen)
    try:
        yield found
    finally:
        monitoring.unregister_event_duration_listener(listen)


def call_thrice(step, states) -> tuple[list, dict]:
    """States and metrics after three calls, of which only the first compiles."""
    with counted_compilations() as first:
        *states, metrics = step(*states, {})
        jax.block_until_ready(metrics)
    assert first
    with counted_compilations() as later:
        for _ in range(2):
            *states, metrics = step(*states, {})
            jax.block_until_ready((states, metrics))
    assert later == []
    return states, metrics


def same_in_both_loops(algorithm, env_step, arguments: tuple, num_steps: int, data=None, rtol: float = 1e-6):
    """Both loops give the same; returns it."""
    scan = jax.jit(lambda *args: rollout.collect(algorithm, env_step, *args, num_steps, data=data))(*arguments)
    loop = rollout.make_collect_host(algorithm, env_step)(*arguments, num_steps, data=data)
    for (path, a), b in zip(jax.tree.leaves_with_path(scan), jax.tree.leaves(loop), strict=True):
        name = jax.tree_util.keystr(path)
        assert (a.shape, a.dtype) == (b.shape, b.dtype), name
        if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-6, err_msg=name)
    return scan


def with_memory(algorithm: Algorithm, kind: str = "lstm", layers: int = 1) -> Algorithm:
    """The same algorithm over a policy with a memory."""
    return replace(algorithm, policy=algorithm.policy.clone(memory=MemoryStage(kind, 8, layers)))


def some(seed: int, shape: tuple[int, ...]):
    """bool, true in about a sixth of the places."""
    return normal(seed, 0, shape) > 1.0


def made_up(algorithm: Algorithm, train_state) -> Rollout:
    """A rollout of made-up numbers with ends, time-outs, invalid steps and memories that are not empty."""
    batch, actions = (T, B), (T, B, ACTION_SIZE)
    valid = jnp.asarray(np.arange(T * B).reshape(batch) % 11 != 4)
    done = some(1, batch) | ~valid
    mean, std = normal(2, 0, actions), jnp.full(actions, 1.5)
    action = mean + std * normal(2, 1, actions)
    steps = Transition(
        obs=make_obs(3, batch),
        action=action,
        log_prob=losses.log_prob(action, mean, std),
        value=normal(2, 2, batch),
        mean=mean,
        std=std,
        reward=jnp.where(valid, normal(2, 3, batch), 0.0),
        done=done,
        timeout=done & valid & some(4, batch),
        bootstrap=normal(2, 4, batch),
        valid=valid,
        reset=jnp.concatenate([some(5, (1, B)), done[:-1]]),
        masks={},
        extras={},
    )
    carry = jax.tree.map(lambda x: normal(6, 0, x.shape), algorithm.policy.initial_carry(B))
    return Rollout(steps=steps, carry0=carry, last_value=normal(7, 0, (B,)), stats=train_state.stats)


def make_teacher(shapes: dict, action_size: int, memory: MemoryStage | None = None) -> tppo.Teacher:
    """A small teacher that sees everything."""
    policy = Policy(action_size=action_size, actor_hidden_dims=(4,), critic_hidden_dims=(4,), memory=memory)
    return tppo.Teacher(policy, {"actor": Segments.select_from(shapes, list(shapes))})


def make_data(teacher: tppo.Teacher, seed: int) -> dict:
    """Weights of the teacher, from numpy."""
    group, policy = teacher.groups["actor"], teacher.policy
    groups = {name: jnp.zeros((1, group.size)) for name in ("actor", "critic")}
    carry, reset = policy.initial_carry(1), jnp.ones(1, bool)
    shapes = jax.eval_shape(policy.init, jax.random.key(0), groups, carry, reset)
    leaves, structure = jax.tree.flatten(shapes)
    variables = jax.tree.unflatten(structure, [0.5 * normal(seed, i, leaf.shape) for i, leaf in enumerate(leaves)])
    return {"teacher": {"variables": variables, "stats": {}}}


def plans(recurrent: bool, steps: int = T) -> tuple[np.ndarray, np.ndarray]:
    """Two minibatches: the plan of one shard that has all samples, and of every shard, ``[shard, update, M]``."""
    envs = B // SHARDS
    rng = np.random.default_rng(3)
    size = envs if recurrent else steps * envs
    local = np.stack([rng.permutation(size).reshape(2, -1) for _ in range(SHARDS)]).astype(np.int32)
    step, env = (0, local) if recurrent else (local // envs, local % envs)
    shard = np.arange(SHARDS)[:, None, None]
    return np.concatenate(step * B + env + envs * shard, axis=-1)[None], local
