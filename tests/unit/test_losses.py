"""Loss terms with the arithmetic written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import make_algorithm, make_batch, make_state

from strl_jax.algorithms import losses, update


def test_log_prob():
    # -0.5 (1 / 2)^2 - ln 2 - 0.5 ln(2 pi) = -0.125 - 0.6931472 - 0.9189385 = -1.7370857
    # and of the second action, at its mean with deviation 1: -0.9189385
    actual = losses.log_prob(jnp.asarray([1.0, 3.0]), jnp.asarray([0.0, 3.0]), jnp.asarray([2.0, 1.0]))
    np.testing.assert_allclose(actual, -1.7370857 - 0.9189385, rtol=1e-6)


def test_entropy():
    # 0.5 + 0.5 ln(2 pi) = 1.4189385 for each action, plus ln 1 + ln 2 = 0.6931472
    std = jnp.asarray([[1.0, 2.0], [1.0, 1.0]])
    np.testing.assert_allclose(losses.gaussian_entropy(std), [2 * 1.4189385 + 0.6931472, 2 * 1.4189385], rtol=1e-6)
    np.testing.assert_allclose(losses.entropy(std), -(2 * 1.4189385 + 0.6931472 / 2), rtol=1e-6)
    np.testing.assert_allclose(losses.entropy(std, weight=jnp.asarray([0.0, 1.0])), -2 * 1.4189385, rtol=1e-6)


def test_kl():
    # ln(2 / 1) + (1 + 1) / (2 * 4) - 0.5 = 0.6931472 + 0.25 - 0.5 = 0.4431472
    one, two = jnp.asarray([1.0]), jnp.asarray([2.0])
    np.testing.assert_allclose(losses.gaussian_kl(jnp.zeros(1), one, one, two), 0.4431472, rtol=1e-6)
    # The other way round: ln(1 / 2) + (4 + 1) / 2 - 0.5 = 1.3068528
    np.testing.assert_allclose(losses.gaussian_kl(one, two, jnp.zeros(1), one), 1.3068528, rtol=1e-6)


def test_kl_of_equals():
    mean, std = jnp.asarray([1.0, -2.0, 3.0]), jnp.asarray([0.5, 1.0, 2.0])
    np.testing.assert_allclose(losses.gaussian_kl(mean, std, mean, std), 0.0, atol=1e-7)
    # st_rl: 3 actions * ln(1 + 1e-5) = 3e-5
    np.testing.assert_allclose(losses.gaussian_kl(mean, std, mean, std, log_eps=1e-5), 3e-5, rtol=1e-2)


RATIO = jnp.log(jnp.asarray([1.5, 1.5, 0.5, 0.5]))
ADVANTAGE = jnp.asarray([1.0, -1.0, 1.0, -1.0])


def test_surrogate():
    # max(-1.5, -1.2) = -1.2; max(1.5, 1.2) = 1.5; max(-0.5, -0.8) = -0.5; max(0.5, 0.8) = 0.8
    # (-1.2 + 1.5 - 0.5 + 0.8) / 4 = 0.15
    np.testing.assert_allclose(losses.surrogate(RATIO, jnp.zeros(4), ADVANTAGE, clip=0.2), 0.15, rtol=1e-5)


def test_surrogate_weighted():
    # 0.5 * -1.2 + 0.5 * 0.8 = -0.2
    weight = jnp.asarray([0.5, 0.0, 0.0, 0.5])
    actual = losses.surrogate(RATIO, jnp.zeros(4), ADVANTAGE, clip=0.2, weight=weight)
    np.testing.assert_allclose(actual, -0.2, rtol=1e-5)


@pytest.mark.parametrize(
    ("clip", "expected"),
    [
        # new 1, old 0, returns 2 and 0: (1 - 2)^2 = 1, (1 - 0)^2 = 1
        (None, (1.0 + 1.0) / 2),
        # clipped value 0 + 0.2: max(1, (0.2 - 2)^2 = 3.24), max(1, 0.04)
        (0.2, (3.24 + 1.0) / 2),
    ],
)
def test_value(clip, expected):
    actual = losses.value(jnp.ones(2), jnp.zeros(2), jnp.asarray([2.0, 0.0]), clip=clip)
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_value_weighted():
    actual = losses.value(jnp.ones(2), jnp.zeros(2), jnp.asarray([2.0, 0.0]), clip=0.2, weight=jnp.asarray([1.0, 0.0]))
    np.testing.assert_allclose(actual, 3.24, rtol=1e-6)


def test_shapes_must_agree():
    with pytest.raises(AssertionError):
        losses.value(jnp.ones((2, 1)), jnp.ones(2), jnp.ones(2), clip=None)
    with pytest.raises(AssertionError):
        losses.surrogate(jnp.ones((2, 1)), jnp.ones(2), jnp.ones(2), clip=0.2)


def test_invalid_samples_move_nothing():
    """Losses, KL and gradients do not see what stands in a sample of weight 0."""
    algorithm = make_algorithm(entropy_coef=0.1)
    state = make_state(algorithm)
    batch = jax.tree.map(lambda x: x[0], make_batch(algorithm, state, 1, 1, 4))
    batch = batch.replace(weight=jnp.asarray([0.5, 0.5, 0.0, 0.0]))
    garbage = jax.tree.map(lambda x: x.at[2:].set(x[2:] * 7 + 5), batch).replace(weight=batch.weight)

    def total(params, batch):
        terms, kl = update.losses(algorithm, params, batch)
        return sum(term.coef(0) * terms[term.name] for term in algorithm.terms), (terms, kl)

    gradient = jax.jit(jax.value_and_grad(total, has_aux=True))
    expected, actual = gradient(state.params, batch), gradient(state.params, garbage)
    jax.tree.map(np.testing.assert_array_equal, actual, expected)
    counted = gradient(state.params, garbage.replace(weight=jnp.full(4, 0.25)))
    assert abs(counted[0][0] - expected[0][0]) > 0.1
