"""Distances of a student from its teacher, and the teacher's share of the acting."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from strl_jax.algorithms import distillation, teacher

RNG = np.random.default_rng(0)
M, L = RNG.uniform(-0.95, 0.95, (2, 5, 3))
S, R = RNG.uniform(0.5, 2.0, (2, 5, 3))  # deviations of student and teacher
DEVIATIONS = {"std": jnp.float32(S), "wanted_std": jnp.float32(R)}


def cross_entropy(actual, wanted):
    p, q = (actual + 1) / 2, (wanted + 1) / 2
    return -q * np.maximum(np.log(p), -100) - (1 - q) * np.maximum(np.log(1 - p), -100)


FORMULAS = {
    "real": np.sqrt(((M - L) ** 2).sum(-1)),
    "mse_sum": ((M - L) ** 2).sum(-1),
    "l1": np.abs(M - L).sum(-1),
    "tanh": 2 * cross_entropy(M, L).mean(-1),
    "scaled_tanh": 2 * cross_entropy(M, L).mean(-1) * np.abs(M - L).sum(-1) / 3,
    "max_log_prob": ((L - M) ** 2 / (2 * S**2) + np.log(S) + 0.5 * np.log(2 * np.pi)).sum(-1),
    "kl": (np.log(S / R) + (R**2 + (L - M) ** 2) / (2 * S**2) - 0.5).sum(-1),
}


def of(kind, actual, wanted, **kwargs):
    return distillation.distance(kind, jnp.float32(actual), jnp.float32(wanted), **(DEVIATIONS | kwargs))


def test_every_kind_is_compared():
    assert set(FORMULAS) == set(distillation.KINDS)
    assert set(distillation.KINDS) - set(distillation.LATENT_KINDS) == {"max_log_prob", "kl"}


@pytest.mark.parametrize("kind", distillation.KINDS)
def test_formulas(kind):
    np.testing.assert_allclose(of(kind, M, L), FORMULAS[kind].mean(), rtol=1e-5)
    weight = np.asarray([0.5, 0.0, 0.25, 0.25, 0.0])
    expected = (weight * FORMULAS[kind]).sum()
    np.testing.assert_allclose(of(kind, M, L, weight=jnp.float32(weight)), expected, rtol=1e-5)


@pytest.mark.parametrize("kind", distillation.KINDS)
def test_weight_0_sees_nothing(kind):
    weight = jnp.asarray([0.5, 0.5, 0.0, 0.0, 0.0])
    strange = np.where(np.arange(5)[:, None] < 2, M, [[-1.0, 1.0, 40.0]])
    gradient = jax.jit(jax.value_and_grad(lambda m: of(kind, m, L, weight=weight)))
    (loss, grad), (expected, wanted) = gradient(jnp.float32(strange)), gradient(jnp.float32(M))
    np.testing.assert_array_equal(loss, expected)
    np.testing.assert_array_equal(grad, wanted)
    assert not grad[2:].any()
    assert grad[:2].all()


@pytest.mark.parametrize("kind", distillation.KINDS)
def test_gradients_are_finite(kind):
    """At equal inputs, at -1 and 1 on either side, and outside."""
    edge = jnp.asarray([-1.5, -1.0, -1.0 + 1e-7, 0.0, 1.0 - 1e-7, 1.0, 1.5], jnp.float32)
    m, wanted = (x.reshape(-1, 7) for x in jnp.meshgrid(edge, edge))
    std = jnp.full_like(m, 0.5)

    @jax.jit
    @jax.value_and_grad
    def loss(m):
        return distillation.distance(kind, m, wanted, std=std, wanted_std=std)

    value, grad = loss(m)
    assert jnp.isfinite(value)
    assert jnp.isfinite(grad).all()


@pytest.mark.parametrize("kind", ["real", "mse_sum", "l1", "kl"])
def test_nothing_to_learn_at_equality(kind):
    gradient = jax.value_and_grad(lambda m: of(kind, m, L, std=DEVIATIONS["wanted_std"]))
    value, grad = gradient(jnp.float32(L))
    np.testing.assert_allclose(value, 0.0, atol=1e-6)
    assert not grad.any()


def test_logarithms_stop_at_100():
    # m = -1 is probability 0, l = 1 is probability 1: 2 * 100, the other action 2 * 0; mean 100
    np.testing.assert_allclose(distillation.distance("tanh", jnp.asarray([[-1.0, 1.0]]), jnp.ones((1, 2))), 100.0)
    # times the mean distance (2 + 0) / 2
    np.testing.assert_allclose(
        distillation.distance("scaled_tanh", jnp.asarray([[-1.0, 1.0]]), jnp.ones((1, 2))), 100.0
    )


@pytest.mark.parametrize("literal", [True, False])
@pytest.mark.parametrize("kind", ["tanh", "scaled_tanh"])
def test_statistics(kind, literal):
    before = np.tan if literal else np.arctanh
    weight = np.asarray([0.5, 0.0, 0.25, 0.25, 0.0])
    expected = {
        "l1distance": (weight * np.abs(M - L).sum(-1)).sum(),
        "l1_before_tanh": (weight * np.abs(before(M) - before(L)).sum(-1)).sum(),
    }
    actual = distillation.statistics(kind, jnp.float32(M), jnp.float32(L), weight=jnp.float32(weight), literal=literal)
    assert set(actual) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=1e-5)


def test_statistics_at_the_border():
    actual = distillation.statistics("tanh", jnp.asarray([[1.0, 0.0]]), jnp.asarray([[-1.0, 0.0]]))
    # float32: atanh(1 - 2^-23) = ln((2 - 2^-23) / 2^-23) / 2 = 12 ln 2 = 8.3178, and as much below 0
    np.testing.assert_allclose(actual["l1_before_tanh"], 2 * 12 * np.log(2), rtol=1e-5)
    assert distillation.statistics("real", jnp.ones((1, 2)), jnp.ones((1, 2))) == {}


def test_refused():
    one = jnp.ones((2, 3))
    with pytest.raises(ValueError, match=r"unknown distillation target 'l2'; known: real, mse_sum, .*max_log_prob, kl"):
        distillation.distance("l2", one, one)
    with pytest.raises(ValueError, match=r"distillation target 'max_log_prob' needs std$"):
        distillation.distance("max_log_prob", one, one, wanted_std=one)
    with pytest.raises(ValueError, match=r"distillation target 'kl' needs std and wanted_std$"):
        distillation.distance("kl", one, one, std=one)
    with pytest.raises(AssertionError):
        distillation.distance("l1", one, jnp.ones((2, 1)))


@pytest.mark.parametrize(
    ("option", "scale", "iteration", "expected"),
    [
        ("linear", 4, 1, 0.75),  # 1 - 1 / 4
        ("linear", 4, 5, 0.0),
        ("exp", 4, 2, 0.5625),  # (1 - 1 / 4)^2
        ("exp", 1, 0, 1.0),  # 0^0
        ("exp", 1, 1, 0.0),
        ("tanh", 4, 4, 0.5),  # (1 - tanh 0) / 2
        ("tanh", 4, 0, (1 + np.tanh(1)) / 2),
        (0.3, 4, 100, 0.3),
        (1, 4, 0, 1.0),
        (0, 4, 0, 0.0),
    ],
)
def test_teacher_probability(option, scale, iteration, expected):
    actual = jax.jit(teacher.act_probability(option, scale))(jnp.int32(iteration))
    assert actual.dtype == jnp.float32
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize(
    ("option", "scale", "message"),
    [
        ("cosine", 1, r"teacher_act_prob 'cosine' is not one of linear, exp, tanh or a number from 0 to 1"),
        (1.5, 1, r"teacher_act_prob 1\.5 is not one of"),
        (-0.1, 1, r"teacher_act_prob -0\.1 is not one of"),
        (float("nan"), 1, r"teacher_act_prob nan is not one of"),
        (True, 1, r"teacher_act_prob True is not one of"),
        (None, 1, r"teacher_act_prob None is not one of"),
        ("linear", 0, r"update_times_scale 0 must be above 0 and finite"),
        ("tanh", -5, r"update_times_scale -5 must be above 0 and finite"),
        ("tanh", float("inf"), r"update_times_scale inf must be above 0 and finite"),
        ("linear", "5", r"update_times_scale '5' must be above 0 and finite"),
        ("exp", 0.5, r"update_times_scale 0\.5 must be at least 1 with teacher_act_prob 'exp' and finite"),
    ],
)
def test_teacher_probability_refuses(option, scale, message):
    with pytest.raises(ValueError, match=message):
        teacher.act_probability(option, scale)
