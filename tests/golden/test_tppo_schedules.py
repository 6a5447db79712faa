"""Schedules of the teacher's probability and of the learning rate, and distillation targets, against torch's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from golden.files import FLOAT32, FLOAT64, Golden, paths, to_flax
from strl_jax.algorithms import lr_schedulers, teacher
from strl_jax.algorithms.distillation import distance, statistics
from strl_jax.modules.policy import Policy

TINIEST = float(np.finfo(np.float32).tiny)  # smaller ones are 0 in float32


@pytest.mark.parametrize("path", paths("tppo_schedules.npz"), ids=lambda path: path.stem)
def test_teacher_probability(path):
    golden = Golden(path)
    iterations = jnp.asarray(golden["in/iteration"], jnp.int32)
    for i, option in enumerate(golden.config["options"]):
        for j, scale in enumerate(golden["in/iteration_scale"].tolist()):
            actual = jax.jit(teacher.act_probability(option, scale))(iterations)
            assert actual.dtype == jnp.float32
            np.testing.assert_allclose(
                actual, golden["exp64/prob"][i, j], rtol=1e-5, atol=TINIEST, err_msg=f"{option} {scale}"
            )


@pytest.mark.parametrize("path", paths("tppo_lr_schedulers.npz"), ids=lambda path: path.stem)
def test_learning_rate(path):
    golden = Golden(path)
    for (name, arguments), expected in zip(golden.config["schedulers"], golden["exp64/lr"], strict=True):
        schedule = jax.jit(jax.vmap(lr_schedulers.make(name, arguments, golden.config["initial_lr"])))
        actual = schedule(jnp.arange(len(expected), dtype=jnp.int32))
        assert actual.dtype == jnp.float32
        np.testing.assert_allclose(actual, expected, rtol=1e-5, err_msg=name)


def evaluate(golden: Golden, kind: str, dtype):
    """Loss, gradient of coef * loss, and statistics of one target."""
    config = golden.config
    policy = Policy(
        action_size=config["A"],
        actor_hidden_dims=tuple(config["hid"]),
        critic_hidden_dims=tuple(config["chid"]),
        activation=config["act"],
        mu_activation=config["mu_activation"],
        log_std=False,
    )
    obs, labels = (jnp.asarray(golden[f"in/mb/{name}"], dtype) for name in ("obs", "action_labels"))

    def total(variables):
        mean, std, _ = policy.apply(variables, {"actor": obs}, {}, jnp.zeros(len(obs), bool), method="act")
        loss = distance(kind, mean, labels, std=std)
        return config["distillation_loss_coef"] * loss, (loss, statistics(kind, mean, labels, literal=True))

    grads, (loss, logged) = jax.jit(jax.grad(total, has_aux=True))(to_flax(golden.group("param"), dtype))
    return loss, grads, logged


@pytest.mark.parametrize("path", paths("tppo_targets.npz"), ids=lambda path: path.stem)
def test_distillation_targets(path):
    golden = Golden(path)
    for kind in golden.config["targets"]:
        loss, grads, logged = evaluate(golden, kind, jnp.float32)
        np.testing.assert_allclose(loss, golden[f"exp/{kind}/distillation_loss"], rtol=2e-5, err_msg=kind)
        assert not any(leaf.any() for leaf in jax.tree.leaves(grads["params"].pop("critic")))
        expected = to_flax(golden.group(f"exp/{kind}/grad_no_ppo"))
        for ours, theirs in zip(jax.tree.leaves(grads), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(ours, theirs, **FLOAT32, err_msg=kind)
        recorded = golden.group(f"exp/{kind}/stat")
        assert set(logged) == set(recorded)
        for name, value in logged.items():
            np.testing.assert_allclose(value, recorded[name], rtol=2e-5, err_msg=f"{kind} {name}")


@pytest.mark.parametrize("path", paths("tppo_targets.npz"), ids=lambda path: path.stem)
def test_distillation_targets_in_float64(path):
    golden = Golden(path)
    with jax.enable_x64(True):
        for kind in golden.config["targets"]:
            loss, grads, _ = evaluate(golden, kind, jnp.float64)
            np.testing.assert_allclose(loss, golden[f"exp64/{kind}/distillation_loss"], **FLOAT64, err_msg=kind)
            norm = np.sqrt(sum(np.square(leaf).sum() for leaf in jax.tree.leaves(grads)))
            np.testing.assert_allclose(norm, golden[f"exp64/{kind}/grad_norm_no_ppo"], **FLOAT64, err_msg=kind)
