"""The actor that sees images and acts without noise, feed-forward and recurrent."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from golden.files import Golden, paths, precision_fixture, segments, to_flax
from strl_jax.algorithms import ppo, rollout
from strl_jax.algorithms.compat import Compat
from strl_jax.modules.policy import Policy
from strl_jax.modules.stages import EncoderStage, MemoryStage
from strl_jax.observations import Segments
from strl_jax.types import EnvState, EpisodeState, RolloutState, TrainState

FILES = paths("visual_*.npz")


precision = precision_fixture(double_marks=(pytest.mark.slow,))


def make_policy(config: dict) -> Policy:
    kwargs = {key: tuple(value) if isinstance(value, list) else value for key, value in config["visual_kwargs"].items()}
    encoder = EncoderStage(
        component=config["visual_component_name"], latent_size=config["visual_latent_size"], linear=True, **kwargs
    )
    memory = None
    if "rnn_type" in config:
        memory = MemoryStage(config["rnn_type"], config["rnn_hidden_size"], config["rnn_num_layers"])
    return Policy(
        action_size=config["num_actions"],
        actor_hidden_dims=tuple(config["actor_hidden_dims"]),
        critic_hidden_dims=tuple(config["critic_hidden_dims"]),
        activation=config["activation"],
        log_std=False,
        deterministic=True,
        actor_obs=segments(config["obs_segments"]),
        memory=memory,
        encoders=(encoder,),
    )


def act(policy: Policy, weights: dict, obs, reset, carry):
    """``rollout.choose`` step by step, with noise that must not count."""
    critic = Segments(("unused",), ((1,),))
    algorithm = ppo.make(ppo.PPOConfig(), policy, policy.actor_obs, critic, Compat.st_rl())

    def step(carry, now):
        flat, reset = now
        components = {name: policy.actor_obs.select(flat, name) for name in policy.actor_obs.names}
        env = EpisodeState(EnvState({}, components, None, None, None, {}, {}), None)
        state = RolloutState(env, carry, reset, None, None, {}, {}, None)
        noise = jnp.ones((flat.shape[0], policy.action_size), flat.dtype)
        train = TrainState({"policy": weights}, {}, {}, jnp.int32(0), {})
        decision = rollout.choose(algorithm, train, state, {}, rollout.Drawn(noise, None, {}, None))
        return decision.carry, decision.action

    return jax.lax.scan(step, carry, (obs, reset))[1]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_visual(path, precision):
    prefix, dtype, tolerance = precision
    golden = Golden(path)
    policy, weights = make_policy(golden.config), to_flax(golden.group("param"), dtype)
    obs, critic_obs = (jnp.asarray(golden[f"in/{key}"], dtype) for key in ("obs", "critic_obs"))
    reset = jnp.ones(obs.shape[:-1], bool)
    if "in/dones" in golden:  # an episode ends after its step
        reset = reset.at[1:].set(jnp.asarray(golden["in/dones"][:-1], bool))
    carry = policy.initial_carry(obs.shape[1], dtype=dtype)
    groups = {"actor": obs, "critic": critic_obs}
    fresh = jax.eval_shape(policy.init, jax.random.key(0), groups, carry, reset)
    assert jax.tree.map(jnp.shape, weights) == jax.tree.map(jnp.shape, fresh)

    @jax.jit
    def compute(weights):
        def run(method, *args):
            return policy.apply(weights, *args, method=method)

        embedded = run("embed_actor", obs)
        from_latent, _ = run("act_with_embedded_latent", embedded, carry, reset)
        value, _ = run("value", groups, carry, reset)
        return embedded, from_latent, value, act(policy, weights, obs, reset, carry)

    embedded, from_latent, value, action = compute(weights)
    assert action.dtype == dtype
    for name, actual in [("embedded_obs", embedded), ("action", action), ("values", value[..., None])]:
        np.testing.assert_allclose(actual, golden[f"{prefix}/{name}"], **tolerance, err_msg=name)
    np.testing.assert_allclose(from_latent, golden[f"{prefix}/action"], **tolerance)
