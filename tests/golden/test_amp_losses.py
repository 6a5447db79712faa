"""Discriminator, its losses and their gradients, style rewards against torch's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from golden.files import Golden, nested, paths, precision_fixture
from strl_jax.algorithms import losses
from strl_jax.interop import torch_names
from strl_jax.modules.discriminator import Discriminator, input_gradient, mix_rewards, style_reward

precision = precision_fixture()


@pytest.fixture(params=paths("amp_losses*.npz"), ids=lambda path: path.stem)
def golden(request):
    return Golden(request.param)


def variables(weights: dict, dtype) -> dict:
    return {"params": nested(torch_names.discriminator_to_flax(weights), dtype)}


def close(actual, golden, key, tolerance):
    np.testing.assert_allclose(actual, golden[key], **tolerance, err_msg=key)


def test_losses_and_gradients(golden, precision):
    prefix, dtype, tolerance = precision
    config = golden.config
    module = Discriminator(tuple(config["hidden_dims"]))
    params = variables(golden.group("param"), dtype)
    policy, expert = (jnp.asarray(golden[f"in/{name}_state"], dtype) for name in ("policy", "expert"))

    def terms(params):
        def score(x):
            return module.apply(params, x)

        gradient = input_gradient(score, expert)
        expert_loss, policy_loss = losses.least_squares_discriminator(score(policy), score(expert))
        penalty = losses.gradient_penalty(gradient, coef=config["discriminator_grad_pen"])
        return (expert_loss, policy_loss, penalty), gradient

    @jax.jit
    def everything(params):
        found, gradient = terms(params)
        total = jax.grad(lambda p: sum(terms(p)[0]))(params)
        penalty = jax.grad(lambda p: terms(p)[0][2])(params)
        return found, gradient, total, penalty, module.apply(params, policy), module.apply(params, expert)

    (expert_loss, policy_loss, penalty), gradient, total_grad, penalty_grad, policy_d, expert_d = everything(params)
    close(policy_d[:, None], golden, f"{prefix}/policy_d", tolerance)
    close(expert_d[:, None], golden, f"{prefix}/expert_d", tolerance)
    close(expert_loss, golden, f"{prefix}/discriminator_expert_loss", tolerance)
    close(policy_loss, golden, f"{prefix}/discriminator_policy_loss", tolerance)
    close(penalty, golden, f"{prefix}/discriminator_grad_len_loss", tolerance)
    close(expert_loss + policy_loss + penalty, golden, f"{prefix}/total", tolerance)
    close(gradient, golden, f"{prefix}/input_grad", tolerance)
    for actual, name in ((total_grad, "grad_total"), (penalty_grad, "grad_penalty")):
        expected = variables(golden.group(f"{prefix}/{name}"), dtype)
        jax.tree.map(lambda a, b, n=name: np.testing.assert_allclose(a, b, **tolerance, err_msg=n), actual, expected)


def test_rewards_and_distances(golden, precision):
    prefix, dtype, tolerance = precision
    config = golden.config
    score = jnp.asarray(golden[f"{prefix}/policy_d"], dtype)[:, 0]
    style = style_reward(score, config["style_reward_coef"])
    close(style, golden, f"{prefix}/style_reward", tolerance)
    task = jnp.asarray(golden["in/task_reward"], dtype)
    for lerp, key in ((0.0, "reward_lerp0"), (config["task_reward_lerp"], "reward_lerp"), (1.0, "reward_lerp1")):
        close(mix_rewards(style, task, lerp), golden, f"{prefix}/{key}", tolerance)
    pairs = {"mimic_loss": ("policy_state", "expert_state"), "dagger_loss": ("action_mean", "action_labels")}
    for key, names in pairs.items():
        one, other = (jnp.asarray(golden[f"in/{name}"], dtype) for name in names)
        close(losses.distance(one, other), golden, f"{prefix}/{key}", tolerance)
