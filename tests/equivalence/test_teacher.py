"""TPPO is the same on one device and on four, in a loop and in a scan, and compiles once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from equivalent import SHARDS, B, T, call_thrice, make_data, make_teacher, with_memory
from tiny import make_algorithm, make_env, make_state

from strl_jax.algorithms import rollout, tppo, train_step
from strl_jax.algorithms.base import Algorithm
from strl_jax.modules.stages import MemoryStage
from strl_jax.sharding import make_mesh

ONE = make_mesh(jax.devices()[:1])


def with_teacher(algorithm: Algorithm, teacher: tppo.Teacher, **fields) -> Algorithm:
    return tppo.add(algorithm, tppo.TeacherFields(**fields), teacher)


@pytest.mark.slow
def test_host_loop_is_scan():
    """A teacher with a memory; episodes that end, time out and break; labels that are samples."""
    env = make_env("nan", 2, probability=0.3)
    teacher = make_teacher(env.env.observation_shapes, env.env.action_size, MemoryStage("gru", 3, 1))
    algorithm = with_teacher(make_algorithm(env=env.env), teacher, teacher_act_prob=0.5, action_labels_from_sample=True)
    data = make_data(teacher, 1)
    _, state = train_step.init_states(env, algorithm, ONE, jax.random.key(0), B)
    pool = jax.jit(lambda key: env.pool(key, 16 * B))(jax.random.key(1))
    env_step = jax.jit(lambda episode, action, key: env.step(episode, action, pool, key))
    arguments = (make_state(algorithm), state, jax.random.key(2))
    scan = jax.jit(lambda *args: rollout.collect(algorithm, env_step, *args, T, data=data))(*arguments)
    loop = rollout.make_collect_host(algorithm, env_step)(*arguments, T, data=data)
    for (path, a), b in zip(jax.tree.leaves_with_path(scan[1:]), jax.tree.leaves(loop[1:]), strict=True):
        name = jax.tree_util.keystr(path)
        assert (a.shape, a.dtype) == (b.shape, b.dtype), name
        if not jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6, err_msg=name)
    _, end, found, metrics = scan
    assert metrics.invalid > 0
    assert 0 < found.steps.extras["teacher_acting"].mean() < 1
    assert all(leaf.any() for leaf in jax.tree.leaves(end.hooks["teacher"]["carry"]["actor"]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [None, "gru"], ids=["feed_forward", "recurrent"])
def test_queue_on_four_devices_compiles_once(kind):
    """With other weights of the teacher at every call, and environments that break."""
    env = make_env("nan", 3, probability=0.3)
    teacher = make_teacher(env.env.observation_shapes, env.env.action_size)
    config = tppo.TPPOConfig(
        buffer_dilation_ratio=2.5, lr_scheduler_class_name="StepLR", lr_scheduler={"step_size": 2}, learning_rate=1e-3
    )
    plain = make_algorithm(env=env.env)
    plain = plain if kind is None else with_memory(plain, kind)
    algorithm = tppo.make(config, plain.policy, plain.groups["actor"], plain.groups["critic"], teacher)
    mesh, teachers = make_mesh(jax.devices()), [make_data(teacher, seed) for seed in range(3)]
    assert mesh.size == SHARDS
    init = train_step.init_states(env, algorithm, mesh, jax.random.key(0), B, num_steps=4, data=teachers[0])
    compiled, given = train_step.make_train_step(env, algorithm, mesh, 4), iter(teachers)
    (train_state, state), metrics = call_thrice(lambda train, state, _: compiled(train, state, next(given)), init)
    assert int(train_state.iteration) == 3
    assert metrics.invalid > 0
    assert metrics.update["skipped"] == 0
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(train_state.params))
    np.testing.assert_allclose(metrics.update["learning_rate"], 1e-4, rtol=1e-6)  # 1e-3 * 0.1^(2 // 2)
    np.testing.assert_array_equal(state.memory["queue"].count, [10] * B)  # int(2.5 * 4) of 12 steps
