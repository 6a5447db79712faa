"""Losses, gradients and whole PPO updates against torch's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from golden.files import FLOAT32, FLOAT64, Golden, make_algorithm, paths, to_flax, to_torch
from strl_jax.algorithms import losses, optimizers, schedules, update
from strl_jax.algorithms.base import Algorithm, apply_policy
from strl_jax.types import Batch, TrainState

LOSS_FILES = paths("ppo_losses*.npz")
UPDATE_FILES = paths("ppo_update_*.npz")
CLIPPED = pytest.mark.parametrize("clipped", [True, False], ids=["clipped", "unclipped"])

AFTER_STEPS = {"rtol": 1e-4, "atol": 1e-4}


@pytest.fixture(params=["exp", "exp64"], ids=["float32", "float64"])
def precision(request):
    """Prefix of the expected keys, dtype, tolerance, and tolerance after optimiser steps."""
    double = request.param == "exp64"
    with jax.enable_x64(double):
        if double:
            yield request.param, jnp.float64, FLOAT64, FLOAT64
        else:
            yield request.param, jnp.float32, FLOAT32, AFTER_STEPS


@pytest.fixture(params=LOSS_FILES, ids=lambda path: path.stem)
def golden(request):
    return Golden(request.param)


def make_batch(golden: Golden, dtype, names: dict[str, str]) -> Batch:
    """A batch from the keys ``names[field]``, which are ``[..., features]``."""
    fields = {field: jnp.asarray(golden[key], dtype) for field, key in names.items()}
    scalars = {field: fields.pop(field)[..., 0] for field in ("log_prob", "value", "advantage", "return_")}
    groups = {"actor": fields.pop("actor"), "critic": fields.pop("critic")}
    shape = scalars["value"].shape
    extra = {"weight": jnp.ones(shape, dtype), "reset": jnp.zeros(shape, bool), "masks": {}, "carry": {}, "extras": {}}
    return Batch(groups=groups, **fields, **scalars, **extra)


def loss_batch(golden: Golden, dtype) -> Batch:
    """The minibatch of ``ppo_losses``, leaves ``[M, ...]``."""
    keys = {
        "actor": "obs",
        "critic": "critic_obs",
        "action": "actions",
        "log_prob": "old_actions_log_prob",
        "value": "values",
        "mean": "old_mu",
        "std": "old_sigma",
        "advantage": "advantages",
        "return_": "returns",
    }
    return make_batch(golden, dtype, {field: f"in/mb/{key}" for field, key in keys.items()})


def storage_batch(golden: Golden, dtype) -> Batch:
    """The rollout of ``ppo_update_*``, leaves ``[T, E, ...]``."""
    keys = {
        "actor": "observations",
        "critic": "privileged_observations",
        "action": "actions",
        "log_prob": "actions_log_prob",
        "value": "values",
        "mean": "mu",
        "std": "sigma",
        "advantage": "advantages",
        "return_": "returns",
    }
    return make_batch(golden, dtype, {field: f"in/storage/{key}" for field, key in keys.items()})


def start(algorithm: Algorithm, golden: Golden, dtype) -> TrainState:
    """A train state with the file's weights and a fresh optimiser."""
    fresh = jax.eval_shape(algorithm.init, jax.random.key(0))
    weights = to_flax(golden.group("param"), dtype)
    assert jax.tree.map(jnp.shape, weights) == jax.tree.map(jnp.shape, fresh.params["policy"])
    return TrainState(
        params={"policy": weights},
        opt_state={"policy": optimizers.init(algorithm.optimizers["policy"], weights)},
        learning_rate={"policy": algorithm.learning_rate(0)},
        iteration=jnp.int32(0),
        stats={},
    )


def run_epochs(algorithm: Algorithm, state: TrainState, batch: Batch, plan):
    """``update.epochs``, compiled."""
    return jax.jit(lambda *args: update.epochs(algorithm, *args, jax.random.key(0), plan=plan))(state, batch)


def run_losses(algorithm: Algorithm, params: dict, batch: Batch):
    """``update.losses`` of a whole minibatch, compiled."""
    batch = batch.replace(weight=batch.weight / batch.value.size)
    return jax.jit(lambda *args: update.losses(algorithm, *args))(params, batch)


def assert_weights(params: dict, golden: Golden, prefix: str, tolerance: dict):
    """Compares ``params["policy"]`` with every ``prefix/NAME`` of the file."""
    actual, expected = to_torch(params["policy"]), golden.group(prefix)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, **tolerance, err_msg=f"{prefix}/{name}")


def loss_algorithm(golden: Golden, clipped: bool):
    return make_algorithm(golden.config, schedule="fixed", use_clipped_value_loss=clipped)


def test_names_there_and_back(golden):
    weights = golden.group("param")
    back = to_torch(to_flax(weights))
    assert back.keys() == weights.keys()
    for name, value in weights.items():
        np.testing.assert_array_equal(back[name], value)


def test_policy_output(golden, precision):
    prefix, dtype, tolerance, _ = precision
    algorithm, batch = loss_algorithm(golden, True), loss_batch(golden, dtype)
    output = jax.jit(lambda *args: apply_policy(algorithm, *args))(start(algorithm, golden, dtype).params, batch)
    log_prob = losses.log_prob(batch.action, output.mean, output.std)
    change = jnp.clip(output.value - batch.value, -golden.config["clip"], golden.config["clip"])
    kl = losses.gaussian_kl(batch.mean, batch.std, output.mean, output.std, log_eps=algorithm.compat.kl_log_eps)
    expected = {
        "mu": output.mean,
        "sigma": output.std,
        "values": output.value[:, None],
        "value_clipped": (batch.value + change)[:, None],
        "log_prob": log_prob,
        "ratio": jnp.exp(log_prob - batch.log_prob),
        "entropy": losses.gaussian_entropy(output.std),
        "kl": kl,
    }
    for name, actual in expected.items():
        np.testing.assert_allclose(actual, golden[f"{prefix}/{name}"], **tolerance, err_msg=name)


@CLIPPED
def test_losses(golden, precision, clipped):
    prefix, dtype, tolerance, _ = precision
    algorithm, batch = loss_algorithm(golden, clipped), loss_batch(golden, dtype)
    terms, metrics = run_losses(algorithm, start(algorithm, golden, dtype).params, batch)
    value_key = "value_loss_clipped" if clipped else "value_loss_unclipped"
    for actual, key in [
        (terms["surrogate_loss"], "surrogate_loss"),
        (terms["value_loss"], value_key),
        (terms["entropy"], "entropy_loss"),
        (metrics["kl"], "kl_mean"),
    ]:
        np.testing.assert_allclose(actual, golden[f"{prefix}/{key}"], **tolerance, err_msg=key)


@CLIPPED
def test_gradients(golden, precision, clipped):
    prefix, dtype, tolerance, _ = precision
    kind = "clipped" if clipped else "unclipped"
    algorithm, batch = loss_algorithm(golden, clipped), loss_batch(golden, dtype)

    def total(params):
        terms, _ = run_losses(algorithm, params, batch)
        return sum(term.coef(0) * terms[term.name] for term in algorithm.terms)

    value, grads = jax.jit(jax.value_and_grad(total))(start(algorithm, golden, dtype).params)
    np.testing.assert_allclose(value, golden[f"{prefix}/total_{kind}"], **tolerance)
    assert_weights(grads, golden, f"{prefix}/grad_{kind}", tolerance)


@CLIPPED
def test_one_step(golden, precision, clipped):
    prefix, dtype, tolerance, after_steps = precision
    kind = "clipped" if clipped else "unclipped"
    algorithm = loss_algorithm(golden, clipped)
    batch = jax.tree.map(lambda x: x[None], loss_batch(golden, dtype))
    plan = jnp.arange(batch.value.size)[None]
    state, metrics = run_epochs(algorithm, start(algorithm, golden, dtype), batch, plan)
    np.testing.assert_allclose(metrics["total_loss"][0], golden[f"{prefix}/total_{kind}"], **tolerance)
    np.testing.assert_allclose(metrics["grad_norm"][0], golden[f"{prefix}/grad_norm_{kind}"], **tolerance)
    assert_weights(state.params, golden, f"{prefix}/param_after1_{kind}", after_steps)


def test_learning_rate_cases(golden, precision):
    prefix, dtype, _, _ = precision
    algorithm, batch = loss_algorithm(golden, True), loss_batch(golden, dtype)
    _, metrics = run_losses(algorithm, start(algorithm, golden, dtype).params, batch)
    cases = zip(golden["in/lr_start"], golden["in/lr_desired_kl"], golden[f"{prefix}/lr_after"], strict=True)
    for rate, desired, expected in cases:
        actual = schedules.adapt(jnp.asarray(rate), metrics["kl"], float(desired))
        np.testing.assert_allclose(actual, expected, **FLOAT32, err_msg=f"start {rate}, desired KL {desired}")


def recorded_plan(golden: Golden) -> jnp.ndarray:
    """The file's permutation, cut into minibatches, for every epoch."""
    config = golden.config
    size = config["T"] * config["E"] // config["nmb"]
    one_epoch = golden["in/perm"][: size * config["nmb"]].reshape(config["nmb"], size)
    return jnp.asarray(np.tile(one_epoch, (config["nep"], 1)), jnp.int32)


@pytest.mark.parametrize("path", UPDATE_FILES, ids=lambda path: path.stem)
def test_update(path, precision):
    prefix, dtype, tolerance, after_steps = precision
    golden = Golden(path)
    algorithm, batch, plan = make_algorithm(golden.config), storage_batch(golden, dtype), recorded_plan(golden)
    state, metrics = run_epochs(algorithm, start(algorithm, golden, dtype), batch, plan)

    steps = np.stack([metrics[name] for name in ("surrogate_loss", "value_loss", "entropy")], axis=1)
    np.testing.assert_allclose(steps, golden[f"{prefix}/losses"], **after_steps)
    np.testing.assert_allclose(metrics["grad_norm"], golden[f"{prefix}/grad_norm"], **after_steps)
    np.testing.assert_allclose(metrics["learning_rate"], golden[f"{prefix}/lr"], **FLOAT32)
    means = np.append(steps, metrics["total_loss"][:, None], axis=1).mean(axis=0)
    np.testing.assert_allclose(means, golden[f"{prefix}/mean_losses"], **after_steps)
    np.testing.assert_allclose(steps[0], golden[f"{prefix}/losses"][0], **tolerance)
    assert_weights(state.params, golden, f"{prefix}/param_final", after_steps)
    assert int(state.iteration) == 1


@pytest.mark.parametrize("path", UPDATE_FILES, ids=lambda path: path.stem)
def test_update_without_floor(path, precision):
    """The first steps, and all of them, with a floor so low that it changes nothing."""
    prefix, dtype, _, after_steps = precision
    golden = Golden(path)
    algorithm = make_algorithm(golden.config, clip_min_std=1e-15)
    batch, plan = storage_batch(golden, dtype), recorded_plan(golden)
    first = start(algorithm, golden, dtype)

    recorded = [number for number in range(1, len(plan) + 1) if f"{prefix}/param_step{number}/std" in golden]
    assert recorded
    for number in recorded:
        state, _ = run_epochs(algorithm, first, batch, plan[:number])
        assert_weights(state.params, golden, f"{prefix}/param_step{number}", after_steps)
    state, _ = run_epochs(algorithm, first, batch, plan)
    std = state.params["policy"]["params"]["std"]
    np.testing.assert_allclose(std, golden[f"{prefix}/std_before_clip"], **after_steps)
