"""The optional stages of the policy: what each reads, replaces and leaves alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import normal

from strl_jax.modules import estimators
from strl_jax.modules.policy import Policy
from strl_jax.modules.rnn import Memory, initial_carry
from strl_jax.modules.stages import EncoderStage, EstimatorStage, MemoryStage
from strl_jax.observations import Segments

# Both groups have 6 entries, and so have latents and memories: no layer changes its shape when a stage comes.
ACTOR = Segments(("a", "b", "c"), ((2,), (3,), (1,)))
CRITIC = Segments(("c", "a", "d"), ((1,), (2,), (3,)))
SIZE, ACTIONS, STEPS, ENVS = 6, 2, 5, 3
ESTIMATOR = EstimatorStage(inputs=("c", "a"), targets=("d",), hidden_sizes=(4,))
ADAPTOR = EstimatorStage(inputs=("b",), targets=("a",), hidden_sizes=(4,))
ENCODER = EncoderStage("b", (4,), latent_size=3)
MEMORY = MemoryStage("gru", SIZE)


def make_policy(**stages) -> Policy:
    return Policy(ACTIONS, (4, 4), (4, 4), actor_obs=ACTOR, critic_obs=CRITIC, **stages)


def inputs(policy: Policy, steps: int = STEPS, seed: int = 0):
    """Groups ``[T, B, D]``, a carry that is not empty, and resets inside."""
    groups = {name: normal(seed, i, (steps, ENVS, SIZE)) for i, name in enumerate(("actor", "critic"))}
    carry = jax.tree.map(lambda x: normal(seed, 2, x.shape), policy.initial_carry(ENVS))
    return groups, carry, jnp.zeros((steps, ENVS), bool).at[0, 1].set(True).at[2, :2].set(True)


def init(policy: Policy) -> dict:
    return jax.jit(lambda *args: policy.init(jax.random.key(0), *args))(*inputs(policy))


def shapes(policy: Policy) -> dict:
    return jax.eval_shape(policy.init, jax.random.key(0), *inputs(policy))["params"]


def weights(policy: Policy) -> dict:
    """Parameters from numpy: nothing to compile."""
    leaves, tree = jax.tree.flatten(shapes(policy))
    return jax.tree.unflatten(tree, [0.5 * normal(1, i, leaf.shape) for i, leaf in enumerate(leaves)])


def close(actual, expected):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), actual, expected)


def any_differ(first, second) -> bool:
    return any(jax.tree.leaves(jax.tree.map(lambda a, b: bool((a != b).any()), first, second)))


@pytest.fixture(scope="module")
def plain_params():
    return init(make_policy())["params"]


STAGES = [
    ({"estimator": ESTIMATOR}, {"state_estimator"}),
    ({"adaptor": ADAPTOR}, {"state_adaptor"}),
    ({"encoders": (ENCODER,)}, {"actor_encoder_0"}),
    ({"memory": MEMORY}, {"memory_actor", "memory_critic"}),
    (
        {"memory": MEMORY, "estimator": ESTIMATOR},
        {"memory_actor", "memory_critic", "memory_estimator", "state_estimator"},
    ),
]


@pytest.mark.parametrize(("stages", "names"), STAGES, ids=lambda value: "+".join(sorted(value)))
def test_a_stage_moves_no_other_parameter(plain_params, stages, names):
    params = init(make_policy(**stages))["params"]
    assert set(params) == set(plain_params) | names
    jax.tree.map(np.testing.assert_array_equal, {name: params[name] for name in plain_params}, plain_params)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_dones_of_any_type(kind):
    memory = Memory(kind, hidden_size=4)
    x = normal(0, 0, (ENVS, 2))
    carry = jax.tree.map(lambda leaf: normal(0, 1, leaf.shape), initial_carry(kind, ENVS, 1, 4))
    empty = jax.tree.map(jnp.zeros_like, carry)
    done = np.array([True, False, True])

    @jax.jit
    def compute():
        never = jnp.zeros(ENVS, bool)
        variables = memory.init(jax.random.key(0), x, carry, never)
        going, cleared = (memory.apply(variables, x, start, never)[0] for start in (carry, empty))
        given = [memory.apply(variables, x, carry, jnp.asarray(done, dtype))[0] for dtype in (bool, "int32", "float32")]
        return going, cleared, given

    going, cleared, given = compute()
    assert (jnp.abs(going - cleared) > 1e-3).any(axis=-1).all()
    for actual in given:
        close(actual, jnp.where(done[:, None], cleared, going))


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_sequence_is_its_steps(kind):
    policy = make_policy(memory=MemoryStage(kind, 4, 2), estimator=ESTIMATOR)
    groups, carry, reset = inputs(policy)
    variables = {"params": weights(policy)}

    @jax.jit
    def compute(variables):
        def step(carry, now):
            output = policy.apply(variables, now[0], carry, now[1])
            return output.carry, output

        whole = policy.apply(variables, groups, carry, reset)
        critic = policy.apply(variables, groups, carry, reset, method="value")
        acting = policy.apply(variables, groups, carry, reset, method="act")
        return whole, critic, acting, *jax.lax.scan(step, carry, (groups, reset))

    whole, (value, critic_carries), (mean, _, after_acting), end, steps = compute(variables)
    close(whole.carry, end)
    close((whole.mean, whole.value, whole.estimates), (steps.mean, steps.value, steps.estimates))
    close((value, critic_carries), (steps.value, {"critic": steps.carry["critic"]}))
    close((mean, after_acting), (steps.mean, end | {"critic": carry["critic"]}))
    assert any_differ(end, carry)


def test_no_gradient_through_an_estimate():
    policy = make_policy(adaptor=EstimatorStage(("b",), ("a",), (4,), replace_prob=1.0))
    groups, carry, reset = inputs(policy)

    @jax.jit
    def compute(params):
        def loss(params):
            return jnp.sum(jnp.square(policy.apply({"params": params}, groups, carry, reset).mean))

        other = params | {"state_adaptor": jax.tree.map(lambda leaf: leaf + 1.0, params["state_adaptor"])}
        return jax.grad(loss)(params), loss(params), loss(other)

    grads, here, there = compute(weights(policy))
    assert not any(leaf.any() for leaf in jax.tree.leaves(grads["state_adaptor"]))
    assert all(leaf.any() for leaf in jax.tree.leaves(grads["actor"]))
    assert jnp.abs(here - there) > 1e-3


def test_estimator_on_the_actor_memory():
    policy = make_policy(
        memory=MEMORY, estimator=EstimatorStage(("a",), ("d",), (4,), nonlinearity="ELU", on_actor_memory=True)
    )
    groups, carry, reset = inputs(policy)
    assert set(carry) == {"actor", "critic"}

    @jax.jit
    def compute(params):
        def loss(params):
            return jnp.sum(policy.apply({"params": params}, groups, carry, reset).estimates["estimator"])

        return jax.grad(loss)(params)

    grads = compute(weights(policy))
    reached = {name for name, tree in grads.items() if any(leaf.any() for leaf in jax.tree.leaves(tree))}
    assert reached == {"memory_actor", "state_estimator"}
    assert all(leaf.any() for leaf in jax.tree.leaves(grads["memory_actor"]))


def test_order_of_components():
    flat = jnp.arange(6.0)
    # actor: a = 0 1, b = 2 3 4, c = 5; critic: c = 0, a = 1 2, d = 3 4 5
    for names in [("d", "c", "a"), ("a", "d", "c")]:
        stage = EstimatorStage(("c", "a"), names, (4,))
        np.testing.assert_array_equal(estimators.estimator_inputs(stage, ACTOR, flat), [0, 1, 5])
        np.testing.assert_array_equal(estimators.estimation_targets(stage, ACTOR, CRITIC, flat), [1, 2, 0, 3, 4, 5])
        assert estimators.estimate_size(stage, CRITIC) == 6


def test_substitution():
    flat, estimate = jnp.stack([jnp.arange(6.0)] * 2), jnp.asarray([[10.0, 11.0, 12.0], [13.0, 14.0, 15.0]])
    for names in [("c", "a"), ("a", "c")]:
        stage = EstimatorStage(("b",), names, (4,))
        everywhere = estimators.substitute(stage, ACTOR, CRITIC, flat, estimate, None)
        np.testing.assert_array_equal(everywhere, [[10, 11, 2, 3, 4, 12], [13, 14, 2, 3, 4, 15]])
        once = estimators.substitute(stage, ACTOR, CRITIC, flat, estimate, jnp.asarray([False, True]))
        np.testing.assert_array_equal(once, [[0, 1, 2, 3, 4, 5], [13, 14, 2, 3, 4, 15]])


def test_shared_encoders():
    encoder = EncoderStage("a", (4,), latent_size=2)
    actor_only, shared = (make_policy(encoders=(encoder,), critic_encoders=kind) for kind in ((), "shared"))
    assert shapes(shared) == shapes(actor_only)
    assert set(shapes(make_policy(critic_encoders=(encoder,)))) - set(shapes(make_policy())) == {"critic_encoder_0"}
    groups, _, _ = inputs(shared)
    same = {name: segments.replace(groups[name], "a", groups["actor"][..., :2]) for name, segments in GROUPS.items()}

    @jax.jit
    def compute(params):
        variables = {"params": params}
        read = [shared.apply(variables, same[name], name == "critic", method="get_encoder_latent") for name in GROUPS]
        return *read, shared.apply(variables, same["critic"], method="encode_critic")

    actor, critic, embedded = compute(weights(shared))
    close(actor, critic)
    close(embedded, CRITIC.replace(same["critic"], "a", actor["a"]))


GROUPS = {"actor": ACTOR, "critic": CRITIC}


def test_estimator_reads_the_adaptors_estimate():
    """Where the adaptor replaces; elsewhere it reads the truth."""
    adaptor = EstimatorStage(("b",), ("a",), (4,), replace_prob=1.0)
    both, alone = make_policy(adaptor=adaptor, estimator=ESTIMATOR), make_policy(estimator=ESTIMATOR)
    groups, carry, reset = inputs(both)
    mask = normal(3, 0, (STEPS, ENVS)) > 0
    assert mask.any()
    assert not mask.all()

    @jax.jit
    def compute(params):
        without = {name: tree for name, tree in params.items() if name != "state_adaptor"}

        def run(policy, params, actor, masks):
            output = policy.apply({"params": params}, groups | {"actor": actor}, carry, reset, masks)
            return output.mean, output.estimates

        everywhere, masked = (run(both, params, groups["actor"], masks) for masks in ({}, {"adaptor": mask}))
        seen = ACTOR.replace(groups["actor"], "a", everywhere[1]["adaptor"])
        return everywhere, masked, run(alone, without, seen, {}), run(alone, without, groups["actor"], {})

    everywhere, masked, seen, truth = compute(weights(both))
    assert any_differ(seen, truth)
    for (mean, estimates), there in [(everywhere, jnp.ones_like(mask)), (masked, mask)]:
        close(estimates["estimator"], jnp.where(there[..., None], seen[1]["estimator"], truth[1]["estimator"]))
        close(mean, jnp.where(there[..., None], seen[0], truth[0]))
