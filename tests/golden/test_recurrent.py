"""Recurrent PPO over two rollouts: collecting, memories, returns, minibatches, losses, gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from golden.files import Golden, make_algorithm, paths, precision_fixture, to_flax
from golden.replay import Replay
from strl_jax.algorithms import minibatch, update

FILES = paths("ppo_recurrent_*.npz")


precision = precision_fixture(double_marks=(pytest.mark.slow,))


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def golden(request):
    return Golden(request.param)


def close(actual, expected, tolerance, message=""):
    np.testing.assert_allclose(actual, expected, **tolerance, err_msg=message)


def test_collecting(golden, precision):
    prefix, dtype, tolerance = precision
    replay = Replay(golden, make_algorithm(golden.config), dtype)
    for number in (0, 1):
        rollout, batch = replay.collect(number)
        close(rollout.steps.mean, golden[f"{prefix}/roll{number}/action_mean"], tolerance)
        close(rollout.steps.value[..., None], golden[f"{prefix}/roll{number}/values"], tolerance)
        if prefix == "exp":
            close(rollout.steps.log_prob, golden[f"exp/roll{number}/log_prob"], tolerance)
            replay.check_carry(rollout.carry0, f"exp/roll{number}/saved_hidden", lambda x: x[0], tolerance)
            replay.check_carry(replay.state.carry, f"exp/roll{number}/hidden_after_returns", lambda x: x, tolerance)
    if prefix == "exp":
        close(batch.return_[..., None], golden["in/storage1/returns"], tolerance)
        close(batch.advantage[..., None], golden["in/storage1/advantages"], {"rtol": 1e-4, "atol": 1e-5})
        close(batch.std, golden["in/storage1/sigma"], tolerance)


def test_minibatches(golden, precision):
    prefix, dtype, tolerance = precision
    config = golden.config
    algorithm = make_algorithm(config, num_mini_batches=config["num_mini_batches"])
    batch = Replay(golden, algorithm, dtype).recorded_batch()
    params = {"policy": to_flax(golden.group("param_upd"), dtype)}
    plan = minibatch.plan(jax.random.key(0), config["E"], config["num_mini_batches"], 1, shuffle=False)

    @jax.jit
    def evaluate(params, sample):
        def total(params):
            terms, _ = update.losses(algorithm, params, sample)
            return sum(term.coef(0) * terms[term.name] for term in algorithm.terms), terms

        return jax.value_and_grad(total, has_aux=True)(params)

    for number, envs in enumerate(plan):
        sample = minibatch.gather_envs(batch, envs)
        close(sample.action, golden[f"exp/mb{number}/actions"], tolerance)
        sample = sample.replace(weight=sample.weight / sample.weight.size)
        (total, terms), grads = evaluate(params, sample)
        for name, value in terms.items():
            close(value, golden[f"{prefix}/mb{number}/loss/{name}"], tolerance, name)
        close(total, golden[f"{prefix}/mb{number}/total"], tolerance)
        leaves = jax.tree.leaves(grads)
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in leaves))
        close(norm, golden[f"{prefix}/mb{number}/grad_norm"], tolerance)
        if prefix == "exp":
            expected = to_flax(golden.group(f"exp/mb{number}/grad"), dtype)
            jax.tree.map(lambda a, b: close(a, b, tolerance), grads["policy"], expected)
