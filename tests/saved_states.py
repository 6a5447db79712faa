"""Small states with every kind of leaf that a training has, to be saved, and what comes back of them."""

import jax
import jax.numpy as jnp
import numpy as np

from strl_jax.run_folder.checkpoints import Checkpointer
from strl_jax.types import EnvState, EpisodeState, EpisodeSums, RolloutState, RunningStats, TrainState

ENVS = 4


def restored(run: Checkpointer, target: dict) -> tuple[int, dict, dict]:
    """Iteration, state and meta of the newest readable ``last``."""
    _, iteration, (state, meta) = run.read_first_intact(
        run.candidates(("last",)), lambda kind, number: (run.restore(kind, number, target), run.read_meta(kind, number))
    )
    return iteration, state, meta


def train_state(value: float = 1.0, width: int = 3) -> TrainState:
    """Small, with every kind of leaf that a training has."""
    return TrainState(
        params={"policy": {"params": {"log_std": jnp.full(width, float(value)), "kernel": jnp.ones((2, width)) / 3}}},
        opt_state={"policy": (jnp.int32(7), {"mu": jnp.array([-0.0, jnp.inf, jnp.nan])})},
        learning_rate={"policy": jnp.float32(1e-3)},
        iteration=jnp.int32(value),
        stats={"actor": {"state": RunningStats(mean=jnp.zeros(2), var=jnp.ones(2), count=jnp.float32(5))}},
    )


def rollout_state(seed: int = 0) -> RolloutState:
    env = EnvState(
        physics={"q": jnp.arange(2.0 * ENVS).reshape(ENVS, 2), "contact": jnp.zeros((ENVS, 0), jnp.int32)},
        obs={"state": jnp.full((ENVS, 2), 0.1, jnp.bfloat16)},
        reward=jnp.full(ENVS, jnp.nan),
        terminated=jnp.array([True, False, True, True]),
        timeout=jnp.zeros(ENVS, bool),
        metrics={},
        extras={},
    )
    return RolloutState(
        env=EpisodeState(env=env, step=jnp.arange(ENVS, dtype=jnp.int32)),
        carry={},
        reset=jnp.ones(ENVS, bool),
        episode=EpisodeSums(reward=jnp.zeros(ENVS), length=jnp.zeros(ENVS, jnp.int32), metrics={}),
        discounted=jnp.zeros(ENVS),
        hooks={},
        memory={},
        key=jax.random.split(jax.random.key(seed), ENVS),
    )


def both(value: float = 1.0) -> dict:
    return {"train": train_state(value), "rollout": rollout_state(int(value))}


def shapes_of(tree):
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), tree)


def raw(leaf) -> tuple:
    """Everything about a leaf, bits included."""
    key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    data = np.asarray(jax.random.key_data(leaf) if key else leaf)
    return str(leaf.dtype), leaf.shape, data.tobytes()


def assert_same(got, expected):
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    assert [raw(x) for x in jax.tree.leaves(got)] == [raw(x) for x in jax.tree.leaves(expected)]
