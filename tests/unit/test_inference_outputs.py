"""All outputs of a policy outside of the training: samples, log-probabilities, estimates, latents, memories."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats as scipy_stats
from tiny import filled, make_algorithm, make_obs, make_state, normal

from strl_jax.algorithms.base import Algorithm
from strl_jax.modules.mutex import MutexPolicy, SubPolicy, gather_variables
from strl_jax.modules.policy import Policy
from strl_jax.modules.stages import EncoderStage, EstimatorStage, MemoryStage
from strl_jax.observations import Segments
from strl_jax.runners.inference import InferencePolicy

ENVS = 3
GRU, LSTM = MemoryStage("gru", 4, 2), MemoryStage("lstm", 4)
ENCODER = EncoderStage("joints", (4,), 5)
ESTIMATOR = EstimatorStage(("joints",), ("heights", "command"), (4,))
REPLACING = EstimatorStage(("joints",), ("command",), (4,), replace_prob=0.5)
ADAPTOR = EstimatorStage(("joints",), ("heights",), (4,))
ON_MEMORY = EstimatorStage((), ("heights",), (4,), on_actor_memory=True)
LAYERS, CELLS = {"hidden": (ENVS, 2, 4)}, {"cell": (ENVS, 1, 4), "hidden": (ENVS, 1, 4)}
HEIGHTS, COMMAND = {"heights": (ENVS, 1, 2)}, {"command": (ENVS, 1)}
POLICIES = {  # stages -> shapes of the estimates, latents and memories
    "mlp": ({}, {}, {}, {}),
    "gru": ({"memory": GRU}, {}, {}, {"actor": LAYERS, "critic": LAYERS}),
    "encoder": ({"encoders": (ENCODER,)}, {}, {"joints": (ENVS, 5)}, {}),
    "estimator": ({"estimator": ESTIMATOR}, {"estimator": HEIGHTS | COMMAND}, {}, {}),
    "everything": (
        {"estimator": REPLACING, "adaptor": ADAPTOR, "encoders": (ENCODER,), "memory": GRU},
        {"estimator": COMMAND, "adaptor": HEIGHTS},
        {"joints": (ENVS, 5)},
        dict.fromkeys(("adaptor", "estimator", "actor", "critic"), LAYERS),
    ),
    "on the actor's memory": (
        {"estimator": ON_MEMORY, "memory": LSTM},
        {"estimator": HEIGHTS},
        {},
        {"actor": CELLS, "critic": CELLS},
    ),
}


def make(**stages) -> tuple[Algorithm, dict, dict]:
    """An algorithm over ``tiny.SHAPES``, weights, and statistics that differ from component to component."""
    plain = make_algorithm(empirical_normalization=True)
    actor, critic = plain.groups["actor"], plain.groups["critic"]
    algorithm = replace(plain, policy=plain.policy.clone(actor_obs=actor, critic_obs=critic, **stages))
    state = make_state(algorithm)
    leaves, structure = jax.tree.flatten(state.stats)
    changed = [leaf + 0.5 + abs(normal(7, i, leaf.shape)) for i, leaf in enumerate(leaves)]
    return algorithm, state.params["policy"], jax.tree.unflatten(structure, changed)


def shapes(tree) -> dict:
    return jax.tree.map(lambda leaf: leaf.shape, tree)


@pytest.mark.parametrize("name", POLICIES)
def test_shapes(name):
    stages, estimates, latents, carry = POLICIES[name]
    policy = InferencePolicy(*make(**stages))
    for step in range(2):
        output = policy(make_obs(step, (ENVS,)), details=True)
        assert [x.shape for x in (output.action, output.mean, output.std, output.log_prob)] == [(ENVS, 2)] * 3 + [
            (ENVS,)
        ]
        assert (shapes(output.estimates), shapes(output.latents), shapes(output.carry)) == (estimates, latents, carry)


@pytest.mark.parametrize("name", POLICIES)
def test_values_are_those_of_the_module(name):
    """Two steps by hand, with another call of the module, one that needs the critic's observation."""
    algorithm, variables, stats = make(**POLICIES[name][0])
    policy = InferencePolicy(algorithm, variables, stats)
    apply = jax.jit(partial(algorithm.policy.apply, variables))
    carry, reset = algorithm.policy.initial_carry(ENVS), jnp.ones(ENVS, bool)
    for step in range(2):
        obs = make_obs(step, (ENVS,))
        expected = apply(algorithm.pack(stats, obs), carry, reset)
        output = policy(obs, details=True)
        np.testing.assert_array_equal(output.action, output.mean)
        for now, then in ((output.mean, expected.mean), (output.std, expected.std), (output.latents, expected.latents)):
            jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), now, then)
        for memory in expected.carry.keys() - {"critic"}:  # the critic's is not advanced
            np.testing.assert_allclose(output.carry[memory]["hidden"], expected.carry[memory]["hidden"], atol=1e-6)
        for stage, raw in expected.estimates.items():
            parts = output.estimates[stage]
            names = [name for name in ("command", "heights") if name in parts]  # the order of the estimate
            moments = [stats["critic"][name] for name in names]
            scaled = [(parts[name] - x.mean) / (np.sqrt(x.var) + 1e-2) for name, x in zip(names, moments, strict=True)]
            flat = np.concatenate([np.reshape(x, (ENVS, -1)) for x in scaled], axis=1)
            np.testing.assert_allclose(flat, raw, rtol=1e-4, atol=1e-5)
        carry, reset = expected.carry, jnp.zeros(ENVS, bool)


def test_calls_with_and_without_details_advance_the_same_memory():
    plain, detailed = (InferencePolicy(*make(memory=GRU)) for _ in range(2))
    for step in range(3):
        obs, key = make_obs(step, (ENVS,)), jax.random.key(step)
        np.testing.assert_allclose(plain(obs, key=key), detailed(obs, key=key, details=True).action, rtol=1e-6)
        done = np.array([step == 0, False, step == 1])
        plain.reset(done)
        detailed.reset(done)


def test_sampled_actions_and_their_density():
    algorithm, variables, stats = make()
    variables = {"params": variables["params"] | {"log_std": jnp.array([-1.0, 0.5])}}
    policy, obs = InferencePolicy(algorithm, variables, stats), make_obs(0, (ENVS,))
    keys = jax.random.split(jax.random.key(1), 400)
    outputs = [policy(obs, key=key, details=True) for key in keys]
    samples = np.stack([output.action for output in outputs])
    std = np.exp([-1.0, 0.5])
    np.testing.assert_allclose(outputs[0].std, np.tile(std, (ENVS, 1)), rtol=1e-6)
    np.testing.assert_allclose(samples.mean(axis=0), policy(obs), atol=0.25)  # 1.65 / sqrt(400) = 0.08 is one sigma
    np.testing.assert_allclose(samples.std(axis=0), outputs[0].std, rtol=0.15)
    expected = scipy_stats.norm(outputs[0].mean, std).logpdf(samples[0]).sum(axis=1)
    np.testing.assert_allclose(outputs[0].log_prob, expected, rtol=1e-5)
    np.testing.assert_array_equal(policy(obs, key=keys[0]), policy(obs, key=keys[0]))
    assert np.abs(samples[0] - samples[1]).min() > 0


def test_a_deterministic_policy_has_no_density():
    policy, obs = InferencePolicy(*make(deterministic=True)), make_obs(0, (ENVS,))
    output = policy(obs, key=jax.random.key(0), details=True)
    assert output.log_prob is None
    np.testing.assert_array_equal(output.action, policy(obs))


def test_mutex_policy():
    """Its sub-policies are listed by the names of their memories."""
    shapes_by_name = {"proprioception": (12,), "height": (2,)}
    actor = Segments(tuple(shapes_by_name), tuple(shapes_by_name.values()))
    stage = EstimatorStage(("proprioception",), ("height",), (3,))
    subs = [
        Policy(2, (4,), (4,), actor_obs=actor, critic_obs=actor, estimator=stage, memory=GRU),
        Policy(2, (4,), (4,), actor_obs=actor, critic_obs=actor, encoders=(EncoderStage("height", (3,), 2),)),
    ]
    flat = {name: jnp.ones((1, 14)) for name in ("actor", "critic")}
    start = [(jax.random.key(0), flat, sub.initial_carry(1), jnp.ones(1, bool)) for sub in subs]
    variables = [filled(jax.eval_shape(sub.init, *args), 1) for sub, args in zip(subs, start, strict=True)]
    mutex = MutexPolicy(2, actor, tuple(SubPolicy(sub, 0.5, 1.0) for sub in subs), "explicit", 0.5)
    plain = make_algorithm()
    groups = {"actor": actor, "critic": actor, "selection": Segments(("pick",), ((2,),))}
    algorithm = replace(plain, policy=mutex, groups=groups, act_groups=("actor", "selection"))
    policy = InferencePolicy(algorithm, gather_variables(variables), {})
    obs = {name: normal(0, i, (ENVS, *shape)) for i, (name, shape) in enumerate(shapes_by_name.items())}
    output = policy(obs | {"pick": jnp.eye(2)[jnp.array([0, 1, 0])]}, details=True)
    assert output.log_prob is None
    assert shapes(output.estimates) == {"submodules_0": {"estimator": {"height": (ENVS, 2)}}}
    assert shapes(output.latents) == {"submodules_1": {"height": (ENVS, 2)}}
    assert shapes(output.carry["submodules_0"]["actor"]) == {"hidden": (ENVS, 2, 4)}
    infer = jax.jit(partial(subs[0].apply, method="infer"))
    raw = infer(variables[0], {"actor": actor.flatten(obs)}, subs[0].initial_carry(ENVS), jnp.ones(ENVS, bool))
    np.testing.assert_allclose(
        output.estimates["submodules_0"]["estimator"]["height"], raw.estimates["estimator"], rtol=1e-5
    )
    np.testing.assert_allclose(output.action[0], raw.mean[0], rtol=1e-5)


def test_the_device_of_a_policy():
    made, device = make(memory=GRU), jax.devices()[1]
    policy = InferencePolicy(*made, device)
    obs = jax.device_put(make_obs(0, (ENVS,)), jax.devices()[2])  # as of a training on another device
    output = policy(obs, details=True)
    assert output.action.devices() == {device}
    np.testing.assert_allclose(output.action, InferencePolicy(*made)(make_obs(0, (ENVS,))), rtol=1e-6)
