"""Sub-policy switching, step after step: selections, what sub-policies see, their outputs, memories, actions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from golden.files import Golden, paths, segments, to_flax
from strl_jax.modules.mutex import MutexPolicy, SubPolicy, gather_variables
from strl_jax.modules.policy import Policy
from strl_jax.modules.stages import MemoryStage

TOLERANCE = {"rtol": 1e-4, "atol": 2e-6}
SELECTIONS = {"ActorCriticFieldMutex": "field", "ActorCriticClimbMutex": "climb"}


def as_tuple(value):
    return tuple(value) if isinstance(value, list) else value


def make_sub_policy(config: dict, action_size: int) -> SubPolicy:
    """From one entry of ``sub_configs``, which is the config of the run that trained it."""
    policy = dict(config["policy"])
    memory = None
    if "rnn_type" in policy:
        memory = MemoryStage(policy.pop("rnn_type"), policy.pop("rnn_hidden_size"), policy.pop("rnn_num_layers"))
    for name in ("actor_hidden_dims", "critic_hidden_dims"):
        policy[name] = tuple(policy[name])
    module = Policy(action_size, log_std=False, memory=memory, **policy)
    scales = config["normalization"]["obs_scales"]
    return SubPolicy(module, as_tuple(config["control"]["action_scale"]), scales["lin_vel"])


def make_policy(config: dict) -> MutexPolicy:
    mapping = sorted((int(index), as_tuple(velocity)) for index, velocity in config["cmd_vel_mapping"].items())
    return MutexPolicy(
        action_size=config["num_actions"],
        actor_obs=segments(config["obs_segments"]),
        sub_policies=tuple(make_sub_policy(sub, config["num_actions"]) for sub in config["sub_configs"]),
        selection=SELECTIONS[config["cls"]],
        env_action_scale=as_tuple(config["env_action_scale"]),
        cmd_vel_mapping=tuple(mapping),
        reset_non_selected=config["reset_non_selected"],
        action_smoothing_buffer_len=config["action_smoothing_buffer_len"],
        jump_down_vel=as_tuple(config.get("jump_down_vel")),
        legacy=True,
    )


@pytest.fixture(scope="module", params=paths("mutex_*.npz"), ids=lambda path: path.stem)
def replayed(request):
    """The file, the policy, and what every step of the file gave, stacked over the steps."""
    golden = Golden(request.param)
    policy = make_policy(golden.config)
    own = [to_flax(golden.group(f"sub{i}")) for i in range(len(policy.sub_policies))]
    variables = gather_variables(own)

    def step(state, inputs):
        carry, reset = state
        flat, done = inputs
        groups = {"actor": flat}
        selection = policy.select(groups)
        seen = policy.observe(flat, selection, carry["command"])
        outputs = [
            sub.policy.apply(weights, {"actor": seen}, carry[f"submodules_{i}"], reset, method="act")[0]
            for i, (sub, weights) in enumerate(zip(policy.sub_policies, own, strict=True))
        ]
        mean, std, carry = policy.apply(variables, groups, carry, reset, method="act")
        record = {"mean": mean, "std": std, "selection": selection, "seen": seen, "after": groups["actor"]}
        return (carry, done), record | {"outputs": jnp.stack(outputs), "carry": carry}

    obs, dones = jnp.asarray(golden["in/obs"]), jnp.asarray(golden["in/dones"])
    start = policy.initial_carry(obs.shape[1]), jnp.zeros_like(dones[0])
    _, record = jax.jit(lambda start, inputs: jax.lax.scan(step, start, inputs))(start, (obs, dones))
    return golden, policy, record


def test_selection(replayed):
    golden, _, record = replayed
    np.testing.assert_array_equal(record["selection"], golden["exp/policy_selection"])


def test_actions(replayed):
    golden, _, record = replayed
    np.testing.assert_allclose(record["mean"], golden["exp/actions"], **TOLERANCE)
    assert not record["std"].any()


def test_smoothing_buffer(replayed):
    golden, _, record = replayed
    buffer = np.moveaxis(record["carry"]["buffer"], 1, 2)  # [S, N, len, n_sel] -> [S, len, N, n_sel]
    np.testing.assert_array_equal(buffer, golden["exp/smoothing_buffer"])


def test_what_sub_policies_see(replayed):
    golden, _, record = replayed
    np.testing.assert_allclose(record["seen"], golden["exp/obs_to_subpolicy"], **TOLERANCE)
    np.testing.assert_allclose(record["outputs"], golden["exp/sub_outputs"], **TOLERANCE)


def test_the_callers_observation_stays(replayed):
    """Torch writes into it; every file has a step where no obstacle is seen, so that it must show."""
    golden, _, record = replayed
    np.testing.assert_array_equal(record["after"], golden["in/obs"])
    assert (golden["exp/obs_after_call"] != golden["in/obs"]).any()


def test_velocity_in_force(replayed):
    golden, policy, record = replayed
    command = np.moveaxis(record["carry"]["command"], 1, 2)
    np.testing.assert_allclose(command, golden["exp/cmd_vel_current"], **TOLERANCE)
    valid = np.broadcast_to(np.asarray(policy.has_command)[:, None], command.shape)
    np.testing.assert_array_equal(valid, golden["exp/cmd_vel_current_valid"])


def test_memories(replayed):
    golden, policy, record = replayed
    if "exp/memory_a_hidden" not in golden:
        assert not any(sub.policy.is_recurrent for sub in policy.sub_policies)
        return
    for i in range(len(policy.sub_policies)):
        memory = record["carry"][f"submodules_{i}"]["actor"]
        parts = [memory[name] for name in ("hidden", "cell") if name in memory]
        ours = np.moveaxis(np.concatenate(parts, axis=2), 1, 2)  # [S, N, L, H] -> [S, L, N, H]
        np.testing.assert_allclose(ours, golden["exp/memory_a_hidden"][:, i], **TOLERANCE)
