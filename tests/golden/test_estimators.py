"""Estimators: what they read and predict, what the actor sees instead, their losses and gradients."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from golden.files import FLOAT32, Golden, make_algorithm, paths, precision_fixture, to_flax
from golden.replay import Replay
from strl_jax.algorithms import estimator, losses, minibatch, update
from strl_jax.algorithms.base import Algorithm, Outputs, apply_policy
from strl_jax.modules import estimators
from strl_jax.modules.stages import EstimatorStage
from strl_jax.observations import Segments
from strl_jax.types import Batch

FEED_FORWARD = paths("estimator_ff.npz")
RECURRENT = [path for path in paths("estimator_*.npz") if path not in FEED_FORWARD]
PROBABILITIES = ["0", "0.5", "1"]


precision = precision_fixture(double_marks=(pytest.mark.slow,))


EVERY_RECURRENT = pytest.mark.parametrize("path", RECURRENT, ids=lambda path: path.stem)


def close(actual, expected, tolerance, message=""):
    np.testing.assert_allclose(actual, expected, **tolerance, err_msg=message)


def make_estimating(config: dict, probability: float, **overrides) -> Algorithm:
    """PPO and the estimator's term; its groups are flat, as a file may show actor and critic different values."""
    stage = EstimatorStage(
        inputs=tuple(config["estimator_obs_components"]),
        targets=tuple(config["estimator_target_components"]),
        hidden_sizes=tuple(config["estimator_kwargs"]["hidden_sizes"]),
        nonlinearity=config["estimator_kwargs"]["nonlinearity"],
        replace_prob=probability,
        on_actor_memory=config.get("use_actor_rnn", False),
    )
    algorithm = make_algorithm(config, policy={"estimator": stage}, **overrides)
    fields = {key: config[key] for key in ("estimator_loss_func", "estimator_loss_coef") if key in config}
    terms = algorithm.terms + estimator.terms(estimator.EstimatorFields(**fields), algorithm.policy)
    groups = {"actor": Segments(("actor",), ((config["O"],),)), "critic": Segments(("critic",), ((config["C"],),))}
    return dataclasses.replace(algorithm, terms=terms, groups=groups)


def evaluate(algorithm: Algorithm, params: dict, sample: Batch):
    """Output, losses by name, total, gradients."""

    def total(params):
        terms, _ = update.losses(algorithm, params, sample)
        return sum(term.coef(0) * terms[term.name] for term in algorithm.terms), terms

    (value, terms), grads = jax.value_and_grad(total, has_aux=True)(params)
    return apply_policy(algorithm, params, sample), terms, value, grads


def norm(tree):
    return np.sqrt(sum(np.sum(np.square(leaf, dtype=np.float64)) for leaf in jax.tree.leaves(tree)))


class FeedForward:
    """The minibatch of ``estimator_ff`` through the policy, once for each probability and precision."""

    def __init__(self, path):
        self.golden, self.results = Golden(path), {}

    def batch(self, dtype) -> Batch:
        golden = self.golden

        def flat(key):
            return golden.flat(f"in/mb/{key}", dtype)

        fields = {"action": "actions", "mean": "old_mu", "std": "old_sigma"}
        advantage = flat("advantages")
        return Batch(
            groups={name: jnp.asarray(golden[f"in/mb/{key}"], dtype) for name, key in GROUPS.items()},
            **{field: jnp.asarray(golden[f"in/mb/{key}"], dtype) for field, key in fields.items()},
            log_prob=flat("old_actions_log_prob"),
            value=flat("values"),
            advantage=advantage,
            return_=flat("returns"),
            weight=jnp.full_like(advantage, 1 / advantage.size),
            reset=jnp.zeros(advantage.shape, bool),
            masks={"estimator": jnp.asarray(golden["in/uniform"]) < 0.5},
            carry={},
            extras={},
        )

    def evaluate(self, probability: str, dtype):
        """Algorithm, weights, batch and ``evaluate``'s results; without a mask unless left to chance."""
        key = (probability, dtype)
        if key not in self.results:
            algorithm, batch = make_estimating(self.golden.config, float(probability)), self.batch(dtype)
            if not algorithm.policy.replace_probs:
                batch = batch.replace(masks={})
            params = {"policy": to_flax(self.golden.group("param"), dtype)}
            fresh = jax.eval_shape(algorithm.init, jax.random.key(0)).params
            assert jax.tree.map(jnp.shape, params) == jax.tree.map(jnp.shape, fresh)
            found = jax.jit(lambda *args: evaluate(algorithm, *args))(params, batch)
            self.results[key] = algorithm, params, batch, found
        return self.results[key]


GROUPS = {"actor": "obs", "critic": "critic_obs"}


@pytest.fixture(scope="module", params=FEED_FORWARD, ids=lambda path: path.stem)
def feed_forward(request):
    return FeedForward(request.param)


@pytest.mark.parametrize("probability", PROBABILITIES)
def test_actor_sees(feed_forward, precision, probability):
    prefix, dtype, tolerance = precision
    algorithm, _, batch, (output, *_) = feed_forward.evaluate(probability, dtype)
    policy, estimate = algorithm.policy, output.estimates["estimator"]
    golden = feed_forward.golden
    close(estimate, golden[f"{prefix}/estimated_state"], tolerance)
    flat = batch.groups["actor"]
    if policy.estimator.replace_prob > 0:
        mask = batch.masks.get("estimator")
        flat = estimators.substitute(policy.estimator, policy.actor_obs, policy.critic_obs, flat, estimate, mask)
    close(flat, golden[f"{prefix}/prob{probability}/actor_input"], tolerance)
    close(output.mean, golden[f"{prefix}/prob{probability}/action_mean"], tolerance)


@pytest.mark.parametrize("probability", ["0", "1"])
def test_inference(feed_forward, precision, probability):
    """Without a mask."""
    prefix, dtype, tolerance = precision
    algorithm, params, batch, _ = feed_forward.evaluate(probability, dtype)
    act = jax.jit(lambda *args: algorithm.policy.apply(*args, method="act"))
    mean, _, _ = act(params["policy"], {"actor": batch.groups["actor"]}, {}, batch.reset)
    close(mean, feed_forward.golden[f"{prefix}/prob{probability}/act_inference"], tolerance)


@pytest.mark.parametrize("probability", PROBABILITIES)
def test_losses_and_gradients(feed_forward, precision, probability):
    prefix, dtype, tolerance = precision
    golden = feed_forward.golden
    _, _, _, (_, terms, total, grads) = feed_forward.evaluate(probability, dtype)
    close(terms.pop("estimator_loss"), golden[f"{prefix}/estimator_loss"], tolerance)
    assert len(terms) == 3
    for name, value in terms.items():
        close(value, golden[f"{prefix}/prob{probability}/{name}"], tolerance, name)
    close(total, golden[f"{prefix}/prob{probability}/total"], tolerance)
    close(norm(grads), golden[f"{prefix}/prob{probability}/grad_norm"], tolerance)
    if prefix == "exp":
        expected = to_flax(golden.group(f"exp/prob{probability}/grad"), dtype)
        jax.tree.map(lambda a, b: close(a, b, tolerance), grads["policy"], expected)


ALTERNATIVES = [("l1_loss", {}), ("smooth_l1_loss", {"beta": 0.5}), ("huber_loss", {"delta": 0.7})]


@pytest.mark.parametrize(("name", "kwargs"), ALTERNATIVES)
def test_other_losses(feed_forward, precision, name, kwargs):
    prefix, dtype, tolerance = precision
    golden = feed_forward.golden
    algorithm, _, batch, (output, *_) = feed_forward.evaluate("0", dtype)
    fields = estimator.EstimatorFields(estimator_loss_func=name, estimator_loss_kwargs=kwargs)
    (term,) = estimator.terms(fields, algorithm.policy)
    close(jax.jit(term.fn)(Outputs(output, {}), batch), golden[f"{prefix}/alt/{name}"], tolerance)


def test_targets(feed_forward, precision):
    prefix, dtype, tolerance = precision
    algorithm, _, batch, _ = feed_forward.evaluate("0", dtype)
    policy = algorithm.policy
    target = estimators.estimation_targets(
        policy.estimator, policy.actor_obs, policy.critic_obs, batch.groups["critic"]
    )
    close(target, feed_forward.golden[f"{prefix}/target"], tolerance)


@EVERY_RECURRENT
def test_collecting(path):
    golden = Golden(path)
    algorithm = make_estimating(golden.config, golden.config["replace_state_prob"])
    replay = Replay(golden, algorithm, jnp.float32)
    for number in (0, 1):
        rollout, batch = replay.collect(number)
        close(rollout.steps.mean, golden[f"exp/roll{number}/action_mean"], FLOAT32)
        close(rollout.steps.value[..., None], golden[f"exp/roll{number}/values"], FLOAT32)
        if number == 0:
            output = jax.jit(lambda *args: apply_policy(algorithm, *args))(replay.train.params, batch)
            close(output.estimates["estimator"], golden["exp/roll0/estimated_state"], FLOAT32)
    replay.check_carry(rollout.carry0, "in/storage1/saved_hidden", lambda x: x[0], FLOAT32)


@EVERY_RECURRENT
def test_minibatches(path, precision):
    prefix, dtype, tolerance = precision
    golden = Golden(path)
    config = golden.config
    algorithm = make_estimating(config, config["replace_state_prob"], num_mini_batches=config["num_mini_batches"])
    batch = Replay(golden, algorithm, dtype).recorded_batch()
    weights = golden.group("param_upd")
    params = {"policy": to_flax(weights, dtype)}
    plan = minibatch.plan(jax.random.key(0), config["E"], config["num_mini_batches"], 1, shuffle=False)
    run = jax.jit(lambda *args: evaluate(algorithm, *args))
    for number, envs in enumerate(plan):
        sample = minibatch.gather_envs(batch, envs)
        close(sample.action, golden[f"exp/mb{number}/actions"], tolerance)
        sample = sample.replace(weight=sample.weight / sample.weight.size)
        output, terms, total, grads = run(params, sample)
        here = f"{prefix}/mb{number}"
        close(output.mean, golden[f"{here}/mu"], tolerance)
        ratio = jnp.exp(losses.log_prob(sample.action, output.mean, output.std) - sample.log_prob)
        close(ratio, golden[f"{here}/ratio"], tolerance)
        assert len(terms) == 4
        for name, value in terms.items():
            close(value, golden[f"{here}/loss/{name}"], tolerance, name)
        close(total, golden[f"{here}/total"], tolerance)
        close(norm(grads), golden[f"{here}/grad_norm"], tolerance)
        norms = golden.group(f"{here}/param_grad_norm")
        expected = to_flax({name: np.full(weights[name].shape, value) for name, value in norms.items()}, dtype)
        jax.tree.map(lambda grad, filled: close(norm(grad), filled.ravel()[0], tolerance), grads["policy"], expected)
