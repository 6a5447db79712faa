"""Discriminator, its losses and their gradients, style rewards against torch's, through the algorithm itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from golden.files import Golden, by_path, nested, paths, precision_fixture
from strl_jax.algorithms import appo, losses, update
from strl_jax.algorithms.amp_input import AmpInput
from strl_jax.algorithms.compat import Compat
from strl_jax.algorithms.hooks import Collected
from strl_jax.algorithms.style import Style
from strl_jax.modules import normalizer
from strl_jax.modules.discriminator import mix_rewards, style_reward
from strl_jax.modules.policy import Policy
from strl_jax.observations import Segments
from strl_jax.torch_files import names as torch_names
from strl_jax.types import Batch

precision = precision_fixture()


@pytest.fixture(params=paths("amp_losses*.npz"), ids=lambda path: path.stem)
def golden(request):
    return Golden(request.param)


def variables(weights: dict, dtype) -> dict:
    return {"params": nested(by_path(weights, torch_names.discriminator_paths(weights)), dtype)}


def close(actual, golden, key, tolerance):
    np.testing.assert_allclose(actual, golden[key], **tolerance, err_msg=key)


def make_algorithm(golden, **changes):
    """APPO with the file's numbers; the policy's mean action is its observation, once ``params`` gave it weights."""
    config = golden.config
    numbers = {name: config[name] for name in ("style_reward_coef", "discriminator_grad_pen", "task_reward_lerp")}
    style = Style(hidden_dims=tuple(config["hidden_dims"]), **(numbers | changes))
    actions = golden["in/action_mean"].shape[-1]
    segments = Segments(("obs",), ((actions,),))
    policy = Policy(actions, (), (), log_std=False)
    fields = appo.APPOConfig(dagger_loss_coef=1.0, mimic_loss_coef=1.0, amp_obs_dim=config["input_dim"])
    amp = AmpInput(None, True, config["input_dim"])
    return appo.make(fields, policy, segments, segments, style, amp, Compat.st_rl())


def params(golden, algorithm, dtype) -> dict:
    """The file's discriminator, and a policy whose mean action is its observation."""
    policy = jax.eval_shape(algorithm.init, jax.random.key(0)).params["policy"]
    policy = jax.tree.map(lambda x: jnp.ones(x.shape, dtype), policy)
    policy["params"]["actor"] = {"layer_0": {"kernel": jnp.eye(algorithm.policy.action_size, dtype=dtype)}}
    policy["params"]["actor"]["layer_0"]["bias"] = jnp.zeros(algorithm.policy.action_size, dtype)
    return {"policy": policy, "discriminator": variables(golden.group("param"), dtype)}


def minibatch(golden, dtype) -> Batch:
    """The file's samples; what it does not tell is 1."""
    mean, labels, policy, expert = (
        jnp.asarray(golden[f"in/{name}"], dtype)
        for name in ("action_mean", "action_labels", "policy_state", "expert_state")
    )
    one = jnp.ones(mean.shape[:1], dtype)
    scalars = dict.fromkeys(("log_prob", "value", "advantage", "return_"), one)
    return Batch(
        groups={"actor": mean, "critic": mean},
        action=mean,
        mean=mean,
        std=jnp.ones_like(mean),
        **scalars,
        weight=one / one.size,
        reset=jnp.zeros(one.shape, bool),
        masks={},
        carry={},
        extras={"ref_obs": policy, "ref_motion": expert, "action_labels": labels},
    )


PENALTY = "discriminator_grad_len_loss"
DISCRIMINATOR = ("discriminator_expert_loss", "discriminator_policy_loss", PENALTY)


def test_losses_and_gradients(golden, precision):
    prefix, dtype, tolerance = precision
    algorithm, mb = make_algorithm(golden), minibatch(golden, dtype)
    coefs = {term.name: term.coef(0) for term in algorithm.terms}

    def total(params, names):
        terms, metrics = update.losses(algorithm, params, mb)
        return sum(coefs[name] * terms[name] for name in names), (terms, metrics)

    @jax.jit
    def everything(params):
        gradient = jax.grad(total, has_aux=True)
        grads, (terms, metrics) = gradient(params, DISCRIMINATOR)
        penalty, _ = gradient(params, (PENALTY,))
        return (
            terms,
            metrics,
            grads["discriminator"],
            penalty["discriminator"],
            algorithm.networks["discriminator"](params, mb),
        )

    terms, metrics, total_grad, penalty_grad, scores = everything(params(golden, algorithm, dtype))
    close(scores.policy[:, None], golden, f"{prefix}/policy_d", tolerance)
    close(scores.expert[:, None], golden, f"{prefix}/expert_d", tolerance)
    close(scores.gradient, golden, f"{prefix}/input_grad", tolerance)
    for name in (*DISCRIMINATOR, "mimic_loss", "dagger_loss"):
        close(terms[name], golden, f"{prefix}/{name}", tolerance)
    close(sum(terms[name] for name in DISCRIMINATOR), golden, f"{prefix}/total", tolerance)
    np.testing.assert_allclose(metrics["policy_accuracy"], (golden[f"{prefix}/policy_d"] < 0).mean(), **tolerance)
    np.testing.assert_allclose(metrics["expert_logit"], golden[f"{prefix}/expert_d"].mean(), **tolerance)
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


def test_rewards_of_the_hook(golden, precision):
    """The hook normalises states first; here by statistics that leave them as they are."""
    prefix, dtype, tolerance = precision
    config, mb = golden.config, minibatch(golden, dtype)
    still = normalizer.init((config["input_dim"],), count=1e8, dtype=dtype)  # moments of 1e8 samples stay
    still = still.replace(var=jnp.full_like(still.var, 0.99**2))  # (x - 0) / (0.99 + 0.01)
    stats = {"ref_obs": still, "ref_motion": still}
    lerps = {"reward_lerp0": 0.0, "reward_lerp": config["task_reward_lerp"], "reward_lerp1": 1.0}
    algorithms = {key: make_algorithm(golden, task_reward_lerp=lerp) for key, lerp in lerps.items()}

    @jax.jit
    def rewards(params, extras, task):
        valid = jnp.ones(task.shape, bool)
        seen = Collected({}, {}, {}, mb.action[None], valid, extras, jnp.int32(0), params, jax.random.key(0))
        hooks = {key: algorithm.reward_hooks[0] for key, algorithm in algorithms.items()}
        return {key: hook.reward(seen, stats, task) for key, hook in hooks.items()}

    extras = {name: mb.extras[name][None] for name in ("ref_obs", "ref_motion")}
    task = jnp.asarray(golden["in/task_reward"], dtype)[None]
    found = rewards(params(golden, algorithms["reward_lerp"], dtype), extras, task)
    for key, rewarded in found.items():
        close(rewarded.reward[0], golden, f"{prefix}/{key}", tolerance)
        close(rewarded.extras["ref_motion"][0], golden, "in/expert_state", tolerance)
        mean = golden[f"{prefix}/style_reward"].mean()
        np.testing.assert_allclose(rewarded.log["Episode_Reward/style_reward"], mean, **tolerance)
