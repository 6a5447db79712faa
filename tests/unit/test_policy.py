"""The actor-critic: its start, its parameters, its output."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from strl_jax.algorithms import ppo
from strl_jax.algorithms.compat import Compat
from strl_jax.modules.policy import Policy
from strl_jax.observations import Segments

ACTOR, CRITIC, ACTIONS = 25, 100, 3


def groups(*batch):
    return {"actor": jnp.ones((*batch, ACTOR)), "critic": jnp.ones((*batch, CRITIC))}


def init(policy, seed=0):
    return jax.jit(lambda key: policy.init(key, groups(1), {}, jnp.zeros(1, bool)))(jax.random.key(seed))["params"]


def test_starts_like_torch_linear():
    """Weights AND biases uniform within 1 / sqrt(inputs)."""
    params = init(Policy(ACTIONS, (64, 16), (64,)))
    for network, layer, inputs in [
        ("actor", "layer_0", ACTOR),
        ("actor", "layer_1", 64),
        ("actor", "layer_2", 16),
        ("critic", "layer_0", CRITIC),
        ("critic", "layer_1", 64),
    ]:
        bound = inputs**-0.5  # 25 -> 0.2, 64 -> 0.125, 16 -> 0.25, 100 -> 0.1
        for name, array in params[network][layer].items():
            assert jnp.abs(array).max() <= bound, (network, layer, name)
            assert jnp.abs(array).max() > 0.5 * bound or array.size < 4, (network, layer, name)
        kernel = params[network][layer]["kernel"]
        if kernel.size > 1000:  # variance of a uniform distribution: bound^2 / 3
            np.testing.assert_allclose(kernel.std(), bound / 3**0.5, rtol=0.05)
            np.testing.assert_allclose(kernel.mean(), 0.0, atol=0.05 * bound)


def test_orthogonal():
    params = init(Policy(ACTIONS, (16,), (16,), initialization="orthogonal"))
    kernel = params["actor"]["layer_0"]["kernel"]  # [25, 16]: orthogonal columns of length sqrt(2)
    np.testing.assert_allclose(kernel.T @ kernel, 2.0 * np.eye(16), atol=1e-5)
    assert not params["actor"]["layer_0"]["bias"].any()


def test_actor_and_critic_start_apart():
    policy = Policy(ACTIONS, (16, 16), (16, 16))
    params = init(policy)
    first, second = (params[name]["layer_1"]["kernel"] for name in ("actor", "critic"))
    assert (first != second).all()
    assert (init(policy, seed=1)["actor"]["layer_1"]["kernel"] != first).all()


def test_another_critic_leaves_the_actor():
    small, large = init(Policy(ACTIONS, (8,), (8,))), init(Policy(ACTIONS, (8,), (32, 32)))
    jax.tree.map(np.testing.assert_array_equal, small["actor"], large["actor"])


@pytest.mark.parametrize(("log_std", "name", "stored"), [(True, "log_std", np.log(0.3)), (False, "std", 0.3)])
def test_standard_deviation(log_std, name, stored):
    policy = Policy(ACTIONS, (4,), (4,), init_noise_std=0.3, log_std=log_std)
    params = init(policy)
    assert set(params) == {"actor", "critic", name}
    np.testing.assert_allclose(params[name], np.full(ACTIONS, stored), rtol=1e-6)
    output = policy.apply({"params": params}, groups(2, 5), {}, jnp.zeros((2, 5), bool))
    np.testing.assert_allclose(output.std, np.full((2, 5, ACTIONS), 0.3), rtol=1e-6)
    assert output.mean.shape == (2, 5, ACTIONS)
    assert output.value.shape == (2, 5)
    assert output.carry == {}


def test_mean_activation():
    policy = Policy(ACTIONS, (4,), (4,), mu_activation="tanh")
    params = init(policy)
    big = jax.tree.map(lambda x: 100.0 * x, params)
    mean, _, _ = policy.apply({"params": big}, groups(2), {}, jnp.zeros(2, bool), method="act")
    plain, _, _ = Policy(ACTIONS, (4,), (4,)).apply({"params": big}, groups(2), {}, jnp.zeros(2, bool), method="act")
    np.testing.assert_allclose(mean, jnp.tanh(plain))
    assert (jnp.abs(plain) > 1.0).any()


def test_methods_agree_with_the_whole():
    policy = Policy(ACTIONS, (4,), (4,))
    params = {"params": init(policy)}
    whole = policy.apply(params, groups(2), {}, jnp.zeros(2, bool))
    mean, std, _ = policy.apply(params, groups(2), {}, jnp.zeros(2, bool), method="act")
    value, _ = policy.apply(params, groups(2), {}, jnp.zeros(2, bool), method="value")
    for actual, expected in [(mean, whole.mean), (std, whole.std), (value, whole.value)]:
        np.testing.assert_array_equal(actual, expected)


SEGMENTS = Segments(("state",), ((2,),))


def test_one_floor_for_each_action():
    with pytest.raises(ValueError, match=r"clip_min_std: \[0.1, 0.2\] .* each of the 3 actions"):
        ppo.make(ppo.PPOConfig(clip_min_std=(0.1, 0.2)), Policy(ACTIONS), SEGMENTS, SEGMENTS)


@pytest.mark.parametrize(("log_std", "compat"), [(False, Compat()), (True, Compat.st_rl())])
def test_kind_of_deviation_must_fit(log_std, compat):
    with pytest.raises(ValueError, match=r"policy\.log_std and compat\.linear_std"):
        ppo.make(ppo.PPOConfig(), Policy(ACTIONS, log_std=log_std), SEGMENTS, SEGMENTS, compat)
