"""Memories that start from given states instead of zeros or of what they remember."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from strl_jax.modules import recurrence
from strl_jax.modules.policy import Policy
from strl_jax.modules.random_carry import draw_random_carry
from strl_jax.modules.rnn import Memory, initial_carry
from strl_jax.modules.stages import EstimatorStage, MemoryStage
from strl_jax.observations import Segments

T, B, D, H = 4, 4, 3, 5
RESET = np.zeros((T, B), bool)
RESET[0, 1] = RESET[2, 0] = RESET[3, 1] = RESET[3, 2] = True
STARTED = np.zeros((T, B), bool)
STARTED[0, 0] = STARTED[0, 1] = STARTED[2, 0] = STARTED[3, 2] = True  # the last three at a reset
CASES = pytest.mark.parametrize(("kind", "layers"), [(kind, n) for kind in ("lstm", "gru") for n in (1, 2)])


def numbers(seed: int, tree):
    """The same tree with numbers in U(-1, 1)."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: jnp.asarray(rng.uniform(-1, 1, leaf.shape), jnp.float32), tree)


def made_up(kind: str, layers: int):
    """A memory with its parameters, inputs, carry and states to start from."""
    module, empty = Memory(kind, H, layers), initial_carry(kind, B, layers, H)
    x = jnp.zeros((T, B, D))
    params = jax.eval_shape(module.init, jax.random.key(0), x, empty, jnp.asarray(RESET))
    start = jax.tree.map(lambda leaf: jnp.zeros((T, *leaf.shape)), empty)
    return module, numbers(0, params), numbers(1, x), numbers(2, empty), numbers(3, start)


def unrolled(kind: str, layers: int, variables, x, carry, start):
    """Outputs by a loop over steps and layers, for plain differentiation; also the last carry."""
    params, outputs = variables["params"], []
    for t in range(T):
        now, after = x[t], []
        for i in range(layers):
            own = jax.tree.map(lambda leaf, i=i: leaf[:, i], carry)
            own = jax.tree.map(lambda leaf, t=t: jnp.where(RESET[t][:, None], 0.0, leaf), own)
            given = jax.tree.map(lambda leaf, t=t, i=i: leaf[t, :, i], start)
            own = jax.tree.map(lambda leaf, g, t=t: jnp.where(STARTED[t][:, None], g, leaf), own, given)
            inputs = now @ params[f"weight_ih_l{i}"] + params[f"bias_ih_l{i}"]
            hidden = own["hidden"] @ params[f"weight_hh_l{i}"] + params[f"bias_hh_l{i}"]
            gates = inputs + hidden if kind == "lstm" else jnp.concatenate([inputs, hidden], axis=-1)
            after.append(recurrence.CELLS[kind](gates, own))
            now = after[-1]["hidden"]
        carry = jax.tree.map(lambda *leaves: jnp.stack(leaves, axis=1), *after)
        outputs.append(now)
    return jnp.stack(outputs), carry


def scalar(y, last):
    """A number in which every output and every last state counts differently."""
    leaves = jax.tree.leaves((y, last))
    return sum(jnp.sum(jnp.cos(jnp.arange(leaf.size).reshape(leaf.shape)) * leaf) for leaf in leaves)


@CASES
def test_is_the_loop_of_single_steps(kind, layers):
    module, variables, x, carry, start = made_up(kind, layers)
    y, carries = jax.jit(module.apply)(variables, x, carry, RESET, start, STARTED)
    step = jax.jit(module.apply)
    now = carry
    for t in range(T):
        where = STARTED[t][:, None, None]
        replaced = jax.tree.map(lambda leaf, given, t=t, w=where: jnp.where(w, given[t], leaf), now, start)
        out, now = step(variables, x[t], replaced, RESET[t] & ~STARTED[t])
        np.testing.assert_allclose(y[t], out, rtol=1e-5, atol=1e-6)
        jax.tree.map(lambda a, b, t=t: np.testing.assert_allclose(a[t], b, rtol=1e-5, atol=1e-6), carries, now)


@CASES
def test_one_step(kind, layers):
    """``[B]``: a given state has precedence over the carry and over a reset."""
    module, variables, x, carry, start = made_up(kind, layers)
    reset, started = np.array([False, True, False, True]), np.array([True, True, False, False])
    first = jax.tree.map(lambda leaf: leaf[0], start)
    step = jax.jit(module.apply)
    y, after = step(variables, x[0], carry, reset, first, started)
    before = jax.tree.map(lambda given, own: jnp.stack([given[0], given[1], own[2], 0 * own[3]]), first, carry)
    expected, expected_after = step(variables, x[0], before, np.zeros(B, bool))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), (y, after), (expected, expected_after)
    )


@CASES
def test_gradients_are_those_of_plain_differentiation(kind, layers):
    module, *arguments = made_up(kind, layers)

    def ours(variables, x, carry, start):
        y, carries = module.apply(variables, x, carry, RESET, start, STARTED)
        return scalar(y, jax.tree.map(lambda leaf: leaf[-1], carries))

    def plain(variables, x, carry, start):
        return scalar(*unrolled(kind, layers, variables, x, carry, jax.lax.stop_gradient(start)))

    actual = jax.jit(jax.value_and_grad(ours, argnums=(0, 1, 2, 3)))(*arguments)
    expected = jax.jit(jax.value_and_grad(plain, argnums=(0, 1, 2, 3)))(*arguments)
    for (path, a), b in zip(jax.tree.leaves_with_path(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=jax.tree_util.keystr(path))
    d_carry, d_start = actual[1][2], actual[1][3]
    assert not any(leaf.any() for leaf in jax.tree.leaves(d_start))
    for leaf in jax.tree.leaves(d_carry):  # environments 0 and 1 start anew at t = 0
        assert not leaf[:2].any()
        assert leaf[2:].all()


@CASES
def test_nothing_crosses_a_start(kind, layers):
    """Neither gradient nor NaN of the steps before it."""
    module, variables, x, carry, start = made_up(kind, layers)
    broken = x.at[1, 0].set(jnp.nan)  # environment 0 starts anew at t = 2

    @jax.jit
    @jax.grad
    def gradient(x):
        y, _ = module.apply(variables, x, carry, RESET, start, STARTED)
        return y[2:, 0].sum()

    d_x = gradient(x)
    assert not d_x[:2].any()
    assert d_x[2:, 0].all()
    y, _ = jax.jit(module.apply)(variables, broken, carry, RESET, start, STARTED)
    assert jnp.isnan(y[1, 0]).all()
    assert jnp.isfinite(y[2:]).all()


OBS = Segments(("state", "command"), ((3,), (2,)))


def make_policy(kind: str, layers: int) -> Policy:
    """With an estimator that has a memory of its own."""
    return Policy(
        action_size=2,
        actor_hidden_dims=(4,),
        critic_hidden_dims=(4,),
        actor_obs=OBS,
        critic_obs=OBS,
        memory=MemoryStage(kind, H, layers),
        estimator=EstimatorStage(inputs=("command",), targets=("state",), hidden_sizes=(4,)),
    )


def policy_inputs(policy: Policy):
    """Variables, groups and carry."""
    empty = policy.initial_carry(B)
    groups = {"actor": jnp.zeros((T, B, OBS.size)), "critic": jnp.zeros((T, B, OBS.size))}
    variables = jax.eval_shape(policy.init, jax.random.key(0), groups, empty, jnp.asarray(RESET))
    return numbers(0, variables), numbers(1, groups), numbers(2, empty)


def some_starts(policy: Policy, mask) -> dict:
    empty = jax.tree.map(lambda leaf: jnp.zeros((T, *leaf.shape)), policy.initial_carry(B))
    return {"mask": jnp.asarray(mask), "carry": numbers(3, empty)}


@pytest.mark.parametrize(("kind", "layers"), [pytest.param("lstm", 1, marks=pytest.mark.slow), ("gru", 2)])
def test_a_mask_that_is_nowhere_changes_nothing(kind, layers):
    policy = make_policy(kind, layers)
    variables, groups, carry = policy_inputs(policy)

    @jax.jit
    def evaluate(variables, carry, starts):
        def total(variables, carry):
            output = policy.apply(variables, groups, carry, RESET, random_carry=starts)
            return scalar((output.mean, output.value, output.estimates), output.carry), output

        return jax.value_and_grad(total, argnums=(0, 1), has_aux=True)(variables, carry)

    plain = evaluate(variables, carry, None)
    never = jax.jit(lambda key: draw_random_carry(policy, key, jnp.asarray(RESET), 0.0))(jax.random.key(0))
    assert not never["mask"].any()
    masked, others = evaluate(variables, carry, never), some_starts(policy, STARTED)["carry"]
    jax.tree.map(np.testing.assert_array_equal, masked, evaluate(variables, carry, never | {"carry": others}))
    # another program, whose sums may differ in the last bit
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7), masked, plain)
    moved = evaluate(variables, carry, some_starts(policy, STARTED))
    assert moved[0][0] != plain[0][0]


def test_each_memory_takes_its_own():
    """Started everywhere at t = 0 it is the policy whose carry is these states."""
    policy = make_policy("gru", 1)
    variables, groups, carry = policy_inputs(policy)
    reset = RESET.copy()
    reset[0] = False
    at_first = np.zeros((T, B), bool)
    at_first[0] = True
    starts = some_starts(policy, at_first)
    apply = jax.jit(policy.apply)
    actual = apply(variables, groups, carry, reset, random_carry=starts)
    expected = apply(variables, groups, jax.tree.map(lambda leaf: leaf[0], starts["carry"]), reset)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), actual, expected)
    for name, read in [
        ("actor", lambda output: output.mean),
        ("critic", lambda output: output.value),
        ("estimator", lambda output: output.estimates["estimator"]),
    ]:
        swapped = starts | {"carry": starts["carry"] | {name: jax.tree.map(jnp.negative, starts["carry"][name])}}
        assert (read(apply(variables, groups, carry, reset, random_carry=swapped))[0] != read(actual)[0]).any(), name


@pytest.mark.parametrize(("kind", "layers"), [("lstm", 2), ("gru", 1)])
def test_draws(kind, layers):
    policy = make_policy(kind, layers)
    steps, envs = 8, 500
    reset = jnp.asarray(np.random.default_rng(0).uniform(size=(steps, envs)) < 0.3)
    draw = jax.jit(lambda key, prob: draw_random_carry(policy, key, reset, prob))
    starts = draw(jax.random.key(0), 0.25)
    begins = np.asarray(reset).copy()
    begins[0] = True
    assert not starts["mask"][~begins].any()
    # about 500 + 7 * 500 * 0.3 = 1550 trajectories; sqrt(0.25 * 0.75 / 1550) = 0.011 is one deviation
    assert abs(starts["mask"][begins].mean() - 0.25) < 0.045
    np.testing.assert_array_equal(draw(jax.random.key(0), 1.0)["mask"], begins)

    shapes = jax.tree.map(lambda leaf: (steps, *leaf.shape), policy.initial_carry(envs))
    assert jax.tree.map(jnp.shape, starts["carry"]) == shapes
    assert set(starts["carry"]) == {"actor", "critic", "estimator"}
    leaves = jax.tree.leaves(starts["carry"])
    for leaf in leaves:  # U(-1, 1): mean 0, variance 1 / 3
        assert -1.0 <= leaf.min() < -0.99
        assert 0.99 < leaf.max() <= 1.0
        np.testing.assert_allclose(leaf.mean(), 0.0, atol=0.02)
        np.testing.assert_allclose(leaf.var(), 1 / 3, atol=0.01)
    assert all((leaf != leaves[0]).any() for leaf in leaves[1:])
    again, other = draw(jax.random.key(0), 0.25), draw(jax.random.key(1), 0.25)
    jax.tree.map(np.testing.assert_array_equal, again, starts)
    assert (other["mask"] != starts["mask"]).any()
