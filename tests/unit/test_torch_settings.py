"""Settings with torch's and st_rl's names change what an iteration computes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import ACTION_SIZE, SHAPES, make_algorithm, make_batch, make_state, normal

from strl_jax.algorithms import optimizers, ppo, tppo, update
from strl_jax.algorithms.plateau import ReduceLROnPlateau
from strl_jax.config import ConfigError, from_dict
from strl_jax.modules import normalizer
from strl_jax.modules.policy import Policy
from strl_jax.observations import Segments

T, B = 4, 6


def epochs(algorithm, **changes):
    """The state after one iteration over a made-up batch, and the metrics."""
    state = make_state(algorithm).replace(**changes)
    batch, plan = make_batch(algorithm, state, 1, T, B), jnp.arange(T * B, dtype=jnp.int32).reshape(2, -1)
    return jax.jit(lambda *args: update.epochs(algorithm, *args, jax.random.key(0), plan=plan))(state, batch)


def test_scheduled_momentum_is_the_first_beta():
    plain = make_algorithm(optimizer_kwargs={"betas": [0.25, 0.999]})
    optimizer = ppo.make_optimizer(plain.config, plain.compat, scheduled_momentum=True)
    other = ppo.make_optimizer(make_algorithm().config, plain.compat, scheduled_momentum=True)
    expected, _ = epochs(plain)
    for chosen in (optimizer, other):  # the schedule replaces the configured one
        algorithm = dataclasses.replace(
            plain, optimizers={"policy": chosen}, momenta={"policy": lambda i: jnp.float32(0.25)}
        )
        actual, _ = epochs(algorithm)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), actual.params, expected.params
        )
    default, _ = epochs(make_algorithm())
    differences = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), default.params, expected.params)
    assert max(jax.tree.leaves(differences)) > 1e-5


def test_a_plateau_keeps_the_learning_rate_of_the_state():
    plateau = ReduceLROnPlateau(metric="kl")
    rate = {"policy": jnp.float32(3e-4)}
    for chosen, expected in ((plateau, 3e-4), (None, 1e-3)):
        algorithm = dataclasses.replace(make_algorithm(learning_rate=1e-3), plateau=chosen)
        after, metrics = epochs(algorithm, learning_rate=rate)
        np.testing.assert_allclose(metrics["learning_rate"], expected, rtol=1e-6)
        np.testing.assert_allclose(after.learning_rate["policy"], expected, rtol=1e-6)


@pytest.mark.parametrize(("until", "changes"), [(None, True), (1e8, False)])
def test_statistics_that_never_stop(until, changes):
    algorithm = make_algorithm(empirical_normalization=True, normalization_until=until)
    stats = {"actor": {"joints": normalizer.init((2,), count=2e8)}}
    after = algorithm.update_obs_stats(stats, {"joints": normal(0, 0, (5, 2))}, jnp.ones(5, bool), None)
    assert bool((after["actor"]["joints"].mean != 0).all()) == changes


def tppo_algorithm(**config):
    plain = make_algorithm()
    policy = Policy(ACTION_SIZE, actor_hidden_dims=(4,), critic_hidden_dims=(4,))
    teacher = tppo.Teacher(policy, {"actor": Segments.select_from(SHAPES, list(SHAPES))})
    settings = tppo.TPPOConfig(**config)
    return tppo.make(settings, plain.policy, plain.groups["actor"], plain.groups["critic"], teacher)


def test_the_metric_of_a_plateau():
    """It is a loss or a number of the update; the default exists with every teacher."""
    scheduler = {"lr_scheduler_class_name": "ReduceLROnPlateau"}
    assert tppo_algorithm(**scheduler).plateau.metric == "distillation_loss"
    for metric in ("total_loss", "value_loss", "kl"):
        assert tppo_algorithm(**scheduler, lr_scheduler={"metric": metric}).plateau.metric == metric
    with pytest.raises(
        ValueError,
        match=r"lr_scheduler\.metric: 'value_los' is not allowed; it must be one of .*value_loss.*total_loss",
    ):
        tppo_algorithm(**scheduler, lr_scheduler={"metric": "value_los"})
    with pytest.raises(ValueError, match="value_loss"):  # without PPO there is none
        tppo_algorithm(**scheduler, lr_scheduler={"metric": "value_loss"}, using_ppo=False)


def test_a_cycle_sets_rate_and_momentum():
    arguments = {"base_lr": 0.1, "max_lr": 0.3, "step_size_up": 2}
    algorithm = tppo_algorithm(lr_scheduler_class_name="CyclicLR", lr_scheduler=arguments)
    rates = [float(algorithm.learning_rates(jnp.int32(i))["policy"]) for i in range(5)]
    np.testing.assert_allclose(rates, [0.1, 0.2, 0.3, 0.2, 0.1], rtol=1e-6)
    momenta = [float(algorithm.momenta["policy"](jnp.int32(i))) for i in range(5)]
    np.testing.assert_allclose(momenta, [0.9, 0.85, 0.8, 0.85, 0.9], rtol=1e-6)
    arguments |= {"cycle_momentum": False}
    assert not tppo_algorithm(lr_scheduler_class_name="CyclicLR", lr_scheduler=arguments).momenta


@pytest.mark.parametrize("name", ["GRU", "gru", "Gru", "LSTM"])
def test_the_type_of_a_memory_in_any_case(name):
    values = {"env": {"name": "probe:constant"}, "policy": {"class_name": "ActorCriticRecurrent", "rnn_type": name}}
    assert from_dict(values)[0].policy.rnn_type == name.lower()


@pytest.mark.parametrize("name", ["LeakyReLU", "mish", "TANHSHRINK", "ELU", "Softplus"])
def test_an_activation_of_torch_everywhere(name):
    policy = {"activation": name, "mu_activation": name}
    values = {"env": {"name": "probe:constant"}, "policy": policy, "algorithm": {"rnd_cfg": {"activation": name}}}
    config, _ = from_dict(values)
    assert (config.policy.activation, config.policy.mu_activation, config.algorithm.rnd_cfg.activation) == (name,) * 3


@pytest.mark.parametrize("name", ["PReLU", "RReLU", "GLU", "Softmax", "Threshold", "MultiheadAttention"])
def test_a_class_of_torch_that_is_no_activation(name):
    with pytest.raises(ConfigError, match=rf"policy\.activation: '{name}' is not allowed; it must be one of elu, "):
        from_dict({"env": {"name": "probe:constant"}, "policy": {"activation": name}})


def test_unclipped_gradients():
    optimizer, params = optimizers.make("SGD", None), {"w": jnp.zeros(1)}
    state = optimizers.init(optimizer, params)
    params, *_ = optimizers.step(optimizer, params, {"w": jnp.full(1, 1e6)}, state, 1.0)
    np.testing.assert_allclose(params["w"], -1e6)


def refused(data: dict) -> str:
    """The message of a config with one fault."""
    with pytest.raises(ConfigError) as caught:
        from_dict({"env": {"name": "probe:constant"}, **data})
    return str(caught.value)


@pytest.mark.parametrize("name", ["ASGD", "Rprop", "LBFGS", "SparseAdam"])
@pytest.mark.parametrize("key", ["optimizer_class_name", "discriminator_optimizer_class_name"])
def test_an_optimizer_of_torch_that_there_is_not(name, key):
    line = refused({"algorithm": {key: name}, "runner": {"algorithm_class_name": "APPO"}})
    assert line.startswith(
        f"algorithm.{key}: {name!r} is not allowed; it must be one of {', '.join(optimizers.OPTIMIZERS)}"
    )


@pytest.mark.parametrize(
    ("name", "key", "value", "allowed"),
    [
        ("Adagrad", "eps", -1.0, ">= 0"),
        ("Adagrad", "betas", [0.9, 0.99], "Adagrad takes weight_decay, lr_decay, initial_accumulator_value, eps"),
        ("Adadelta", "rho", 1.0, "< 1"),
        ("Adam", "amsgrad", True, "Adam takes weight_decay, betas, eps"),
        ("Adam", "betas", [0.9], "missing"),
        ("Adam", "betas", 0.9, "a list"),
        ("SGD", "nesterov", 1, "true or false"),
    ],
)
def test_an_argument_of_an_optimizer(name, key, value, allowed):
    line = refused({"algorithm": {"optimizer_class_name": name, "optimizer_kwargs": {key: value}}})
    assert line.startswith(f"algorithm.optimizer_kwargs.{key}")
    assert allowed in line
    assert "\n" not in line
