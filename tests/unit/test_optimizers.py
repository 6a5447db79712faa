"""Optimisers under their torch names, with the arithmetic written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from strl_jax.algorithms import optimizers

PARAMS = {"a": jnp.asarray([3.0, 3.0]), "b": jnp.asarray([3.0])}
GRADS = {"a": jnp.asarray([3.0, 4.0]), "b": jnp.asarray([0.0])}  # norm 5
RATE = jnp.float32(0.5)


def step(name, max_grad_norm=1e6, norm_eps=0.0, grads=GRADS):
    optimizer = optimizers.make(name, max_grad_norm, norm_eps)
    return optimizers.step(optimizer, PARAMS, grads, optimizers.init(optimizer, PARAMS), RATE)


def test_clipped_to_the_global_norm():
    params, _, norm, skipped = step("SGD", max_grad_norm=1.0)
    # 3 - 0.5 * 3 / 5, 3 - 0.5 * 4 / 5
    np.testing.assert_allclose(params["a"], [2.7, 2.6], rtol=1e-6)
    np.testing.assert_allclose(norm, 5.0, rtol=1e-6)
    assert not skipped


def test_short_gradients_are_not_stretched():
    for eps in (0.0, 1e-6):
        params, *_ = step("SGD", max_grad_norm=10.0, norm_eps=eps)
        # 3 - 0.5 * 3, 3 - 0.5 * 4
        np.testing.assert_allclose(params["a"], [1.5, 1.0], rtol=1e-6)


def test_clipped_like_torch():
    params, *_ = step("SGD", max_grad_norm=1.0, norm_eps=5.0)
    # 3 - 0.5 * 3 / (5 + 5), 3 - 0.5 * 4 / 10
    np.testing.assert_allclose(params["a"], [2.85, 2.8], rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Adam", 2.5),  # first step: g / |g| = 1; 3 - 0.5
        ("AdamW", 2.485),  # and weight decay 0.01: 3 - 0.5 * (1 + 0.03)
        ("Adamax", 2.5),  # g / |g|
        ("RMSprop", -2.0),  # g / sqrt(0.01 g^2) = 10; 3 - 5
        ("RAdam", 1.5),  # no variance in the first five steps: 3 - 0.5 g
        ("SGD", 1.5),  # 3 - 0.5 g
    ],
)
def test_first_step_with_torch_defaults(name, expected):
    params, *_ = step(name)
    np.testing.assert_allclose(params["a"][0], expected, rtol=1e-5)


@pytest.mark.parametrize("name", optimizers.OPTIMIZERS)
def test_every_optimizer_descends(name):
    params, _, _, skipped = step(name, max_grad_norm=1.0)
    assert not skipped
    assert (params["a"] < PARAMS["a"]).all()


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf, -jnp.inf])
@pytest.mark.parametrize("norm_eps", [0.0, 1e-6])
def test_gradient_that_is_not_finite_changes_nothing(bad, norm_eps):
    optimizer = optimizers.make("Adam", 1.0, norm_eps)
    params, state, _, skipped = optimizers.step(optimizer, PARAMS, GRADS, optimizers.init(optimizer, PARAMS), RATE)
    assert not skipped
    grads = GRADS | {"b": jnp.asarray([bad])}
    new_params, new_state, norm, skipped = optimizers.step(optimizer, params, grads, state, RATE)
    assert skipped
    assert not jnp.isfinite(norm)
    jax.tree.map(np.testing.assert_array_equal, new_params, params)
    jax.tree.map(np.testing.assert_array_equal, new_state, state)


def test_unknown_name_lists_the_known():
    with pytest.raises(ValueError, match=r"unknown optimizer 'adam'; known: Adam, AdamW.*SGD"):
        optimizers.make("adam", 1.0)
