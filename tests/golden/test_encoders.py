"""Encoders of actor and critic, feed-forward and before a memory: latents, actions, values, gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from golden.files import Golden, paths, precision_fixture, segments, to_flax
from strl_jax.modules.policy import Policy
from strl_jax.modules.stages import EncoderStage, MemoryStage

FILES = paths("encoder_*.npz")


precision = precision_fixture("module", (pytest.mark.slow,))


def stages(config: dict, prefix: str = "") -> tuple[EncoderStage, ...]:
    """The encoders under ``prefix``; one class name stands for all of them."""
    names, kwargs = config[f"{prefix}encoder_component_names"], config[f"{prefix}encoder_kwargs"]
    kwargs = [kwargs] * len(names) if isinstance(kwargs, dict) else kwargs
    return tuple(
        EncoderStage(
            component=name,
            latent_size=config["encoder_output_size"],
            **{key: tuple(value) if isinstance(value, list) else value for key, value in own.items()},
        )
        for name, own in zip(names, kwargs, strict=True)
    )


def make_policy(config: dict) -> Policy:
    memory = None
    if "rnn_type" in config:
        memory = MemoryStage(config["rnn_type"], config["rnn_hidden_size"], config["rnn_num_layers"])
    critic = config.get("critic_encoder_component_names")
    return Policy(
        action_size=config["num_actions"],
        actor_hidden_dims=tuple(config["actor_hidden_dims"]),
        critic_hidden_dims=tuple(config["critic_hidden_dims"]),
        activation=config["activation"],
        log_std=False,
        actor_obs=segments(config["obs_segments"]),
        critic_obs=segments(config["privileged_obs_segments"]),
        memory=memory,
        encoders=stages(config),
        critic_encoders=critic if critic == "shared" else stages(config, "critic_") if critic else (),
    )


class Computed:
    """All that a file tells about, from one compiled function."""

    def __init__(self, golden: Golden, dtype):
        self.policy, self.golden, self.dtype = make_policy(golden.config), golden, dtype
        obs, critic_obs = (jnp.asarray(golden[f"in/{key}"], dtype) for key in ("obs", "critic_obs"))
        reset = jnp.ones(obs.shape[:-1], bool)
        if "in/dones" in golden:  # an episode ends after its step
            reset = reset.at[1:].set(jnp.asarray(golden["in/dones"][:-1], bool))
        carry = self.policy.initial_carry(obs.shape[-2], dtype=dtype)
        weights = to_flax(golden.group("param"), dtype)
        inputs = ({"actor": obs, "critic": critic_obs}, carry, reset)
        fresh = jax.eval_shape(self.policy.init, jax.random.key(0), *inputs)
        assert jax.tree.map(jnp.shape, weights) == jax.tree.map(jnp.shape, fresh)
        self.found = jax.jit(self._compute)(weights, *inputs)

    def _compute(self, weights, groups, carry, reset):
        def probe(weights):
            output = self.policy.apply(weights, groups, carry, reset)
            return jnp.sum(jnp.square(output.mean)) + jnp.sum(jnp.square(output.value)), output

        def run(method, *args):
            return self.policy.apply(weights, *args, method=method)

        (loss, output), grads = jax.value_and_grad(probe, has_aux=True)(weights)
        return {
            "output": output,
            "latent": run("get_encoder_latent", groups["actor"]),
            "critic_latent": run("get_encoder_latent", groups["critic"], True),
            "embedded": run("embed_actor", groups["actor"]),
            "loss": loss,
            "grads": grads,
        }


@pytest.fixture(scope="module", params=FILES, ids=lambda path: path.stem)
def computed(request, precision):
    return Computed(Golden(request.param), precision[1])


def close(actual, expected, tolerance, message=""):
    np.testing.assert_allclose(actual, expected, **tolerance, err_msg=message)


def test_actions_and_values(computed, precision):
    prefix, dtype, tolerance = precision
    output, golden = computed.found["output"], computed.golden
    assert output.mean.dtype == dtype
    close(output.mean, golden[f"{prefix}/action_mean"], tolerance)
    close(output.value[..., None], golden[f"{prefix}/values"], tolerance)


def test_latents(computed, precision):
    prefix, _, tolerance = precision
    found, golden = computed.found, computed.golden
    names = set(golden.config["encoder_component_names"])
    assert set(found["latent"]) == set(found["output"].latents) == names
    for name, value in golden.group(f"{prefix}/latent").items():
        close(found["latent"][name], value, tolerance, name)
        close(found["output"].latents[name], value, tolerance, name)
    critic = golden.config.get("critic_encoder_component_names", [])
    assert set(found["critic_latent"]) == (names if critic == "shared" else set(critic))
    for name, value in golden.group(f"{prefix}/critic_latent").items():
        close(found["critic_latent"][name], value, tolerance, name)
    if f"{prefix}/embedded_obs" in golden:
        close(found["embedded"], golden[f"{prefix}/embedded_obs"], tolerance)


def test_gradients(computed, precision):
    prefix, dtype, tolerance = precision
    found, golden = computed.found, computed.golden
    if f"{prefix}/probe_loss" not in golden:
        pytest.skip("the file has no probe loss")
    close(found["loss"], golden[f"{prefix}/probe_loss"], tolerance)
    if prefix == "exp":
        expected = to_flax(golden.group("exp/probe_grad"), dtype)
        jax.tree.map(lambda a, b: close(a, b, tolerance), found["grads"], expected)
