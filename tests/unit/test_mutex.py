"""The mutex policy on sub-policies whose outputs are known: selection, units, commands, buffer, resets, errors."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from strl_jax.modules import mutex_selection as steps
from strl_jax.modules.mutex import MutexPolicy, SubPolicy, gather_variables
from strl_jax.modules.policy import Policy
from strl_jax.modules.stages import MemoryStage
from strl_jax.observations import Segments

ACTIONS = 2
# proprioception: entry 9 is the command, 10 and 11 are the last actions; engaging_block: columns 1 to 5 flag the ids
SEGMENTS = Segments(("proprioception", "engaging_block"), ((12,), (8,)))
PLAIN = Policy(ACTIONS, (), (), actor_obs=SEGMENTS)
RECURRENT = Policy(ACTIONS, (), (), memory=MemoryStage("gru", 1))
START = jnp.array([True, True])
GO_ON = jnp.array([False, False])


def observation(*ids, height=1.0, command=0.0, last_action=0.0):
    """``[B, 20]`` of an environment for each id, which stands before that obstacle; None sees none."""
    flat = np.zeros((len(ids), 20), np.float32)
    flat[:, 9], flat[:, 10:12], flat[:, -1] = command, last_action, height
    for row, number in zip(flat, ids, strict=True):
        if number is not None:
            row[12 + 1 + number] = 1.0
    return {"actor": jnp.asarray(flat)}


def constant(number):
    """Weights with which the plain policy always returns ``number``."""
    return linear(number, [])


def linear(number, entries):
    """Weights with which its actions are ``number`` plus the sum of these entries of the observation."""
    kernel = np.zeros((20, ACTIONS), np.float32)
    kernel[entries] = 1.0
    layer = {"kernel": jnp.asarray(kernel), "bias": jnp.full(ACTIONS, float(number))}
    return {"params": {"actor": {"layer_0": layer}, "log_std": jnp.zeros(ACTIONS)}}


def counting():
    """Weights with which the recurrent policy tells how long it remembers: 1/2, 3/4, 7/8 after 1, 2, 3 steps.

    All weights are 0 but the input bias of the gate n, 20: n = tanh(20) = 1, z = s(0) = 1/2,
    h' = (1 - z) n + z h = 1/2 + h / 2; the action is h.
    """
    zeros = {"weight_ih_l0": jnp.zeros((20, 3)), "weight_hh_l0": jnp.zeros((1, 3)), "bias_hh_l0": jnp.zeros(3)}
    memory = zeros | {"bias_ih_l0": jnp.array([0.0, 0.0, 20.0])}
    layer = {"kernel": jnp.ones((1, ACTIONS)), "bias": jnp.zeros(ACTIONS)}
    return {"params": {"memory_actor": memory, "actor": {"layer_0": layer}, "log_std": jnp.zeros(ACTIONS)}}


def make(weights, scales=None, **kwargs):
    """A policy over sub-policies with these weights and action scales, and its jitted ``act``."""
    scales = scales or [1.0] * len(weights)
    modules = [RECURRENT if "memory_actor" in own["params"] else PLAIN for own in weights]
    subs = tuple(SubPolicy(module, scale, 2.0) for module, scale in zip(modules, scales, strict=True))
    policy = MutexPolicy(ACTIONS, SEGMENTS, subs, **({"selection": "field", "env_action_scale": 1.0} | kwargs))
    return policy, jax.jit(partial(policy.apply, gather_variables(weights), method="act"))


def tens(count=5):
    """Sub-policy i returns 10 i + 10."""
    return [constant(10 * i + 10) for i in range(count)]


def seen_at_the_start(policy, groups):
    """What the sub-policies see at the first step of two environments."""
    return policy.observe(groups["actor"], policy.select(groups), policy.initial_carry(2)["command"])


def first_column(act, groups, carry, reset):
    """The first action of each environment, and the carry."""
    mean, std, carry = act(groups, carry, reset)
    np.testing.assert_array_equal(mean[:, 0], mean[:, 1])
    assert not std.any()
    return mean[:, 0].tolist(), carry


def test_field_selects_and_changes_units():
    policy, act = make(tens(), [0.5, 0.25, 0.4, 1.0, 1.0], env_action_scale=0.5)
    # id 1: 20 x 0.25 / 0.5 = 10;  none is id 0: 10 x 0.5 / 0.5 = 10;  id 4: 50 x 1 / 0.5 = 100
    actions, carry = first_column(act, observation(1, None), policy.initial_carry(2), START)
    assert actions == [10.0, 10.0]
    assert first_column(act, observation(4, 1), carry, GO_ON)[0] == [100.0, 10.0]


def test_climb_goes_up_and_down():
    policy, act = make(tens(6), selection="climb")
    carry = policy.initial_carry(2)
    assert first_column(act, observation(3, 2), carry, START)[0] == [40.0, 30.0]
    assert first_column(act, observation(3, 2, height=-1.0), carry, START)[0] == [60.0, 30.0]
    assert first_column(act, observation(3, None, height=0.0), carry, START)[0] == [60.0, 10.0]  # 0 is down


def test_explicit_weights():
    policy, act = make(tens(2), [1.0, 0.5], selection="explicit")
    groups = observation(None, None) | {"selection": jnp.array([[0.25, 0.75], [0.0, 1.0]])}
    # 0.25 x 10 + 0.75 x 20 x 0.5 = 2.5 + 7.5;  20 x 0.5
    assert first_column(act, groups, policy.initial_carry(2), START)[0] == [10.0, 10.0]
    with pytest.raises(ValueError, match="one column for each of 2 policies; it has 3"):
        act(groups | {"selection": jnp.zeros((2, 3))}, policy.initial_carry(2), START)
    with pytest.raises(ValueError, match="one column for each of 2 policies; there is no such group"):
        act(observation(None, None), policy.initial_carry(2), START)


def test_explicit_needs_no_obstacles():
    segments = Segments(("proprioception",), ((12,),))
    subs = (SubPolicy(Policy(ACTIONS, (), ()), 1.0, 1.0),)
    policy = MutexPolicy(ACTIONS, segments, subs, "explicit", 1.0)
    assert policy.initial_carry(3)["buffer"].shape == (3, 1, 1)


def test_last_action_and_command_in_the_units_of_the_selected():
    read = [constant(0), linear(0, [9]), linear(0, [10]), constant(0), constant(0)]
    policy, act = make(read, [1.0, 1.0, (0.25, 0.5), 1.0, 1.0], env_action_scale=0.5, cmd_vel_mapping=((1, 1.5),))
    groups = observation(1, 2, command=7.0, last_action=3.0)
    mean, _, _ = act(groups, policy.initial_carry(2), START)
    # id 1: command 1.5 m/s x lin_vel scale 2 = 3, times 1 / 0.5;  id 2: 3 x 0.5 / 0.25 = 6, times 0.25 / 0.5, 0.5 / 0.5
    np.testing.assert_allclose(mean, [[6.0, 6.0], [3.0, 6.0]])
    seen = jax.jit(seen_at_the_start, static_argnums=0)(policy, groups)
    expected = np.array(groups["actor"])
    expected[0, 9:12] = [3.0, 3.0 * 0.5, 3.0 * 0.5]
    expected[1, 9:12] = [7.0, 3.0 * 0.5 / 0.25, 3.0 * 0.5 / 0.5]
    np.testing.assert_allclose(seen, expected)


def test_no_mapping_touches_no_command():
    policy, _ = make(tens(6), selection="climb", jump_down_vel=2.0)
    groups = observation(3, 0, height=-1.0, command=7.0)
    assert policy.has_command == (False,) * 6
    seen = jax.jit(seen_at_the_start, static_argnums=0)(policy, groups)
    np.testing.assert_array_equal(seen, groups["actor"])


@pytest.mark.parametrize(("legacy", "flag"), [(False, 0.0), (True, 1.0)])
def test_flag_where_no_obstacle_is_seen(legacy, flag):
    policy, act = make([linear(0, [13]), *tens(4)], legacy=legacy)  # sub-policy 0 reads the flag of id 0
    assert first_column(act, observation(None, 0), policy.initial_carry(2), START)[0] == [flag, 1.0]


def test_buffer_by_default():
    policy, act = make(tens(), action_smoothing_buffer_len=2)
    actions, carry = first_column(act, observation(1, 0), policy.initial_carry(2), GO_ON)
    assert actions == [20.0, 10.0]  # filled with the first selection, also without a reset
    actions, carry = first_column(act, observation(2, 2), carry, GO_ON)
    assert actions == [25.0, 20.0]  # (20 + 30) / 2, (10 + 30) / 2
    actions, carry = first_column(act, observation(4, 4), carry, jnp.array([True, False]))
    assert actions == [50.0, 40.0]  # refilled; (30 + 50) / 2
    np.testing.assert_array_equal(carry["buffer"][0], [[0, 0, 0, 0, 1]] * 2)
    np.testing.assert_array_equal(carry["buffer"][1], [[0, 0, 1, 0, 0], [0, 0, 0, 0, 1]])


def test_buffer_of_the_torch_library():
    policy, act = make(tens(), action_smoothing_buffer_len=2, legacy=True)
    actions, carry = first_column(act, observation(1, 0), policy.initial_carry(2), START)
    assert actions == [10.0, 5.0]  # (0 + 20) / 2, (0 + 10) / 2
    actions, carry = first_column(act, observation(2, 2), carry, GO_ON)
    assert actions == [25.0, 20.0]
    assert first_column(act, observation(4, 4), carry, jnp.array([True, False]))[0] == [40.0, 40.0]  # (30 + 50) / 2


def test_missing_sub_policy_of_the_torch_library():
    policy, act = make(tens(3), legacy=True)
    assert first_column(act, observation(3, 2), policy.initial_carry(2), START)[0] == [0.0, 30.0]


def remembered(carry, env=0):
    """The memories of the recurrent sub-policies 0 and 2 of ``make_mixed``."""
    return [carry[f"submodules_{i}"]["actor"]["hidden"][env, 0, 0].item() for i in (0, 2)]


def make_mixed(rule, length=1):
    """Recurrent sub-policies 0 and 2 among plain ones."""
    weights = [counting(), constant(20), counting(), constant(40), constant(50)]
    return make(weights, reset_non_selected=rule, action_smoothing_buffer_len=length)


def test_reset_of_all_others():
    policy, act = make_mixed("all")
    _, carry = first_column(act, observation(0, 2), policy.initial_carry(2), START)
    assert (remembered(carry, 0), remembered(carry, 1)) == ([0.5, 0.0], [0.0, 0.5])
    actions, carry = first_column(act, observation(0, 1), carry, GO_ON)
    assert actions == [0.75, 20.0]  # 1/2 + (1/2) / 2
    assert (remembered(carry, 0), remembered(carry, 1)) == ([0.75, 0.0], [0.0, 0.0])


def test_reset_waits_for_the_buffer():
    policy, act = make_mixed("all", length=2)
    _, carry = first_column(act, observation(0, 2), policy.initial_carry(2), START)
    _, carry = first_column(act, observation(1, 2), carry, GO_ON)
    assert remembered(carry) == [0.75, 0.0]  # still one of the two last selections
    _, carry = first_column(act, observation(1, 2), carry, GO_ON)
    assert remembered(carry) == [0.0, 0.0]


def test_reset_when_skill():
    policy, act = make_mixed("when_skill", length=2)
    _, carry = first_column(act, observation(0, 2), policy.initial_carry(2), START)
    assert (remembered(carry, 0), remembered(carry, 1)) == ([0.5, 0.5], [0.5, 0.5])  # the first keeps all; own skill
    _, carry = first_column(act, observation(1, 0), carry, GO_ON)
    # Env 0 has skill 1: 2 is reset, the first never is. Env 1 walks: nothing is reset.
    assert (remembered(carry, 0), remembered(carry, 1)) == ([0.75, 0.0], [0.75, 0.75])
    _, carry = first_column(act, observation(1, 1), carry, GO_ON)
    # Of the buffer only the newest row counts: env 1 has walked the step before.
    assert (remembered(carry, 0), remembered(carry, 1)) == ([0.875, 0.0], [0.875, 0.0])


def test_no_reset_of_others():
    policy, act = make_mixed(False)
    _, carry = first_column(act, observation(1, 2), policy.initial_carry(2), START)
    assert remembered(carry) == [0.5, 0.5]


@pytest.mark.parametrize("kind", [bool, int, float])
def test_memories_end_with_the_episode(kind):
    policy, act = make_mixed("when_skill")
    _, carry = first_column(act, observation(0, 0), policy.initial_carry(2), START)
    _, carry = first_column(act, observation(0, 0), carry, jnp.array([0, 1]).astype(kind))
    assert (remembered(carry, 0), remembered(carry, 1)) == ([0.75, 0.75], [0.5, 0.5])


def test_one_module_object_has_weights_for_each_place():
    policy, _ = make(tens())
    assert policy.sub_policies[0].policy is policy.sub_policies[1].policy
    groups = observation(0, 1)
    init = partial(policy.init, method="act")
    params = jax.eval_shape(init, jax.random.key(0), groups, policy.initial_carry(2), START)["params"]
    assert set(params) == {f"submodules_{i}" for i in range(5)}


@pytest.fixture(scope="module")
def ranged():
    return make(tens(6), selection="climb", cmd_vel_mapping=((1, 1.25), (3, (0.5, 1.5)), (4, (-2.0, -1.0))))


def test_ranges_are_drawn_for_each_environment(ranged):
    draw = jax.jit(lambda key: ranged[0].initial_carry(64, key)["command"])
    command = np.asarray(draw(jax.random.key(1)))
    np.testing.assert_array_equal(command[:, [0, 1, 2]], [[0.0, 1.25, 0.0]] * 64)
    np.testing.assert_array_equal(command[:, 3], command[:, 5])  # jump-down takes that of id 3
    for column, low in ((3, 0.5), (4, -2.0)):
        drawn = command[:, column] - low
        assert len(np.unique(drawn)) == 64
        assert 0.0 <= drawn.min() < 0.2
        assert 0.8 < drawn.max() <= 1.0
    assert np.abs(np.corrcoef(command[:, 3], command[:, 4])[0, 1]) < 0.5
    other = np.asarray(draw(jax.random.key(2)))
    assert (other[:, 3] != command[:, 3]).all()


@pytest.mark.parametrize("legacy", [False, True])
def test_ranges_stay_between_resets(ranged, legacy):
    policy, act = make(tens(6), selection="climb", cmd_vel_mapping=ranged[0].cmd_vel_mapping, legacy=legacy)
    start = jax.jit(policy.initial_carry, static_argnums=0)(2)
    _, _, same = act(observation(1, 1), start, GO_ON)
    np.testing.assert_array_equal(same["command"], start["command"])
    _, _, second = act(observation(1, 1), same, jnp.array([False, True]))
    np.testing.assert_array_equal(second["command"][0], start["command"][0])
    assert (second["command"][1, 3:] != start["command"][1, 3:]).all()
    _, _, third = act(observation(1, 1), second, jnp.array([False, True]))
    assert (third["command"][1, 3:] != second["command"][1, 3:]).all()  # from a new key


def test_an_environment_draws_alone(ranged):
    """What one environment draws does not hang on the resets of the other."""
    _, act = ranged
    start = jax.jit(ranged[0].initial_carry, static_argnums=0)(2)
    _, _, alone = act(observation(1, 1), start, jnp.array([False, True]))
    _, _, both = act(observation(1, 1), start, START)
    np.testing.assert_array_equal(alone["command"][1], both["command"][1])


def test_jump_down_has_a_velocity_of_its_own():
    policy, _ = make(tens(6), selection="climb", cmd_vel_mapping=((1, 1.0),), jump_down_vel=0.5)
    assert policy.has_command == (False, True, False, False, False, True)
    np.testing.assert_array_equal(policy.initial_carry(1)["command"], [[0.0, 1.0, 0.0, 0.0, 0.0, 0.5]])
    without, _ = make(tens(6), selection="climb", cmd_vel_mapping=((1, 1.0),))
    assert without.has_command == (False, True, False, False, False, False)


def test_carry_keeps_its_shape_and_has_one_row_for_each_environment(ranged):
    for policy, act in (make_mixed("all", length=3), ranged):
        carry = policy.initial_carry(2)
        assert all(leaf.shape[0] == 2 for leaf in jax.tree.leaves(carry))
        after = jax.eval_shape(act, observation(0, 1), carry, START)[2]
        before = jax.eval_shape(lambda carry=carry: carry)
        assert jax.tree.structure(after) == jax.tree.structure(before)
        assert jax.tree.map(lambda x: (x.shape, x.dtype), after) == jax.tree.map(lambda x: (x.shape, x.dtype), before)


def test_called_like_a_policy():
    policy, _ = make(tens())
    assert (policy.is_recurrent, policy.deterministic, policy.replace_probs) == (True, True, {})
    again, _ = make(tens())
    assert hash(again) == hash(policy)  # static arguments are hashed


def test_weights_average_the_units():
    proprioception, weights = jnp.ones((1, 12)), jnp.array([[0.25, 0.75]])
    ratios = jnp.array([[2.0, 4.0], [1.0, 1.0]])
    # 0.25 x 2 + 0.75 x 1 = 1.25;  0.25 x 4 + 0.75 x 1 = 1.75
    np.testing.assert_allclose(steps.recover_last_action(proprioception, weights, ratios)[0, 10:], [1.25, 1.75])
    # Only the second has a command: 0.75 x 3 + 0.25 x 1 = 2.5
    command = steps.override_command(proprioception, weights, jnp.array([[9.0, 3.0]]), (False, True))
    np.testing.assert_allclose(command[0, 9], 2.5)


SHORT = Segments(("proprioception", "engaging_block"), ((11,), (8,)))
SWAPPED = Segments(("engaging_block", "proprioception"), ((8,), (12,)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"selection": "fields"}, "selection must be one of explicit, field, climb, not 'fields'"),
        ({"reset_non_selected": "some"}, "reset_non_selected must be one of all, when_skill, False, not 'some'"),
        ({"action_smoothing_buffer_len": 0}, "action_smoothing_buffer_len must be at least 1, not 0"),
        ({"number": 4}, r"field needs exactly 5 sub-policies \(one for each obstacle id\), not 4"),
        ({"number": 6, "legacy": True}, r"field needs 1 to 5 sub-policies \(one for each obstacle id\), not 6"),
        ({"number": 5, "selection": "climb"}, r"climb needs exactly 6 sub-policies \(.*, then jump-down\), not 5"),
        (
            {"number": 0, "selection": "explicit"},
            r"explicit needs at least 1 sub-policies \(one for each column\), not 0",
        ),
        ({"cmd_vel_mapping": ((5, 1.0),)}, "cmd_vel_mapping: 5 is not allowed; .* sub-policies 0 to 4, each once"),
        (
            {"cmd_vel_mapping": ((1, 1.0), (1, 2.0))},
            "cmd_vel_mapping: 1 is not allowed; .* sub-policies 0 to 4, each once",
        ),
        (
            {"number": 6, "selection": "climb", "cmd_vel_mapping": ((5, 1.0),)},
            "cmd_vel_mapping: 5 is not allowed; .* 0 to 4, each once; the velocity of jump-down is jump_down_vel",
        ),
        ({"cmd_vel_mapping": ((1, (2.0, 1.0)),)}, r"sub-policy 1 must be a velocity or a range .*, not \(2.0, 1.0\)"),
        (
            {"number": 6, "selection": "climb", "jump_down_vel": (2.0, 1.0)},
            "jump_down_vel must be a velocity or a range",
        ),
        ({"jump_down_vel": 1.0}, "jump_down_vel needs the selection climb, not field"),
        (
            {"actor_obs": Segments(("engaging_block",), ((8,),))},
            "field needs the component 'proprioception'; the group",
        ),
        ({"actor_obs": Segments(("proprioception",), ((12,),))}, "the group has proprioception"),
        ({"actor_obs": SHORT}, "field needs at least 12 entries of 'proprioception', not 11"),
        ({"policy": Policy(3)}, "sub-policy 0 has 3 actions, all must have 2"),
        (
            {"policy": Policy(ACTIONS, actor_obs=SWAPPED)},
            r"sub-policy 0 reads engaging_block\[8\], proprioception\[12\]; all must read",
        ),
        (
            {"action_scale": (1.0, 1.0, 1.0)},
            "action_scale of sub-policy 0 must be one number above 0, or one for each of 2",
        ),
        ({"env_action_scale": 0.0}, "env_action_scale must be one number above 0"),
    ],
)
def test_wrong_descriptions(change, message):
    change = {"policy": Policy(ACTIONS), "action_scale": 1.0, "number": 5} | change
    sub = SubPolicy(change.pop("policy"), change.pop("action_scale"), 1.0)
    fields = {"actor_obs": SEGMENTS, "selection": "field", "env_action_scale": 1.0}
    with pytest.raises(ValueError, match=message):
        MutexPolicy(ACTIONS, sub_policies=(sub,) * change.pop("number"), **(fields | change))


def test_drawn_commands_follow_the_key(ranged):
    policy, _ = ranged
    first, again, other = (policy.initial_carry(4, jax.random.key(seed))["command"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first[:, 3:5] != other[:, 3:5]).all()
