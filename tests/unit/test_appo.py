"""APPO: its terms by hand, who moves the discriminator, whole iterations, one device and four."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from pydantic import ValidationError
from tiny import SHAPES, make_batch, make_outputs, make_rollout_state, make_state, normal

from strl_jax.algorithms import appo, hooks, optimizers, update
from strl_jax.algorithms.amp_input import AmpInput
from strl_jax.algorithms.compat import Compat
from strl_jax.algorithms.finish import finish
from strl_jax.algorithms.style import Style
from strl_jax.algorithms.train_step import init_states, make_train_step
from strl_jax.envs import probe
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.modules.policy import Policy
from strl_jax.modules.stages import MemoryStage
from strl_jax.observations import Segments
from strl_jax.sharding import AXIS, make_mesh, shard_jit
from strl_jax.storage import ring as storage_ring

T, B, D = 4, 6, 2
TOGETHER = Compat(discriminator_with_policy=True)
ONE = make_mesh(jax.devices()[:1])


def make_algorithm(compat=None, *, style=None, amp=None, shapes=SHAPES, actions=2, memory=None, **config):
    """APPO with ``config`` fields; unless they or ``style`` say more, its discriminator has one hidden layer of four.

    It learns from all samples, unless ``config`` says otherwise.
    """
    compat = Compat() if compat is None else compat
    names = list(shapes)
    return appo.make(
        appo.APPOConfig(**({"discriminator_batch_fraction": 1.0} | config)),
        Policy(actions, (8,), (8,), log_std=not compat.linear_std, memory=memory),
        Segments.select_from(shapes, names[:2]),
        Segments.select_from(shapes, names),
        Style(**({"hidden_dims": (4,)} | (style or {}))),
        AmpInput(None, True, D) if amp is None else amp,
        compat,
    )


def start(algorithm):
    """A train state with weights from numpy, the discriminator's too."""
    shapes = jax.eval_shape(algorithm.init, jax.random.key(0))
    plain = dataclasses.replace(algorithm, optimizers={}, reward_hooks=())
    state = make_state(plain)
    rng = np.random.default_rng(9)
    drawn = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), jnp.float32), shapes.params["discriminator"])
    params = state.params | {"discriminator": drawn}
    opt_state = {
        name: optimizers.init(optimizer, algorithm.trained(params, name))
        for name, optimizer in algorithm.optimizers.items()
    }
    fresh = jax.tree.map(lambda x: jnp.full(x.shape, x.ndim == 1, x.dtype), shapes.stats)
    return state.replace(
        params=params,
        opt_state=opt_state,
        learning_rate=algorithm.learning_rates(jnp.int32(0)),
        stats=fresh,
    )


def make_amp_batch(algorithm, state, policy=None, expert=None):
    batch = make_batch(algorithm, state, 1, T, B)
    policy = normal(5, 0, (T, B, D)) if policy is None else policy
    expert = normal(5, 1, (T, B, D)) + 1 if expert is None else expert
    return batch.replace(extras={"ref_obs": policy, "ref_motion": expert, "action_labels": batch.mean + 3.0})


def losses_of(algorithm, params, batch):
    return jax.jit(lambda *args: update.losses(algorithm, *args))(params, batch)


# d(x) = 2 relu(x_0) - relu(x_1) - 0.5, out of a hidden layer of two
BY_HAND = {
    "layer_0": {"kernel": jnp.eye(2), "bias": jnp.zeros(2)},
    "layer_1": {"kernel": jnp.array([[2.0], [-1.0]]), "bias": jnp.array([-0.5])},
}
# Scores of the policy: 2 - 0.5 = 1.5, -1.5, -0.5; of the expert: 0.5, 3.5, 2 - 1 - 0.5 = 0.5.
POLICY = jnp.array([[1.0, -1.0], [0.0, 1.0], [-1.0, -1.0]])
EXPERT = jnp.array([[0.5, -1.0], [2.0, 0.0], [1.0, 1.0]])
WEIGHT = jnp.array([0.5, 0.25, 0.25])


def by_hand(compat=None, **config):
    """Terms and metrics of three samples of the weights above."""
    algorithm = make_algorithm(compat, style={"hidden_dims": (2,), "discriminator_grad_pen": 3.0}, **config)
    state = start(algorithm)
    params = state.params | {"discriminator": {"params": {"trunk": BY_HAND}}}
    batch = jax.tree.map(lambda x: x[0, :3], make_amp_batch(algorithm, state))
    extras = {"ref_obs": POLICY, "ref_motion": EXPERT, "action_labels": batch.mean + jnp.array([3.0, 4.0])}
    return algorithm, losses_of(algorithm, params, batch.replace(extras=extras, weight=WEIGHT))


def test_terms_by_hand():
    algorithm, (terms, metrics) = by_hand(dagger_loss_coef=0.5)
    # (0.5 * 0.5^2 + 0.25 * 2.5^2 + 0.25 * 0.5^2) / 2
    np.testing.assert_allclose(terms["discriminator_expert_loss"], 0.875, rtol=1e-6)
    # (0.5 * 2.5^2 + 0.25 * 0.5^2 + 0.25 * 0.5^2) / 2
    np.testing.assert_allclose(terms["discriminator_policy_loss"], 1.625, rtol=1e-6)
    # Gradients (2, 0), (2, 0) and (2, -1): 3 (0.5 * 4 + 0.25 * 4 + 0.25 * 5)
    np.testing.assert_allclose(terms["discriminator_grad_len_loss"], 12.75, rtol=1e-6)
    # 0.5 * 2 + 0.25 * 2 + 0.25 * sqrt(5)
    np.testing.assert_allclose(metrics["grad_penalty_norm"], 2.059017, rtol=1e-6)
    np.testing.assert_allclose(terms["dagger_loss"], 5.0, rtol=1e-6)
    # Differences (0.5, 0), (2, 1) and (2, 2): 0.5 * 0.5 + 0.25 * sqrt(5) + 0.25 * sqrt(8)
    np.testing.assert_allclose(metrics["mimic_loss"], 1.5161238, rtol=1e-6)
    assert metrics["expert_accuracy"] == 1.0
    assert metrics["policy_accuracy"] == 0.5  # 0.25 + 0.25
    np.testing.assert_allclose(metrics["policy_logit"], 0.25, rtol=1e-6)  # 0.75 - 0.375 - 0.125
    np.testing.assert_allclose(metrics["expert_logit"], 1.25, rtol=1e-6)  # 0.25 + 0.875 + 0.125
    assert {term.name: float(term.coef(0)) for term in algorithm.terms[3:]} == {
        "discriminator_expert_loss": 1.0,
        "discriminator_policy_loss": 1.0,
        "discriminator_grad_len_loss": 1.0,
        "dagger_loss": 0.5,
    }


def test_mimic_loss_is_a_term_on_request():
    compat = Compat(mimic_in_loss=True)
    algorithm, (terms, metrics) = by_hand(compat, mimic_loss_coef=0.25)
    np.testing.assert_allclose(terms["mimic_loss"], 1.5161238, rtol=1e-6)
    assert "mimic_loss" not in metrics
    assert algorithm.terms[-1].coef(0) == 0.25
    assert "dagger_loss" not in terms
    assert "mimic_loss" in [metric.name for metric in make_algorithm(compat).metrics]


@pytest.mark.parametrize(("compat", "expected"), [(Compat(), [0.5, 0.25, 0.0]), (TOGETHER, [1.0, 1.0, 0.0])])
def test_coefficient_scales_or_gates(compat, expected):
    falling = {"name": "linear", "init_value": 0.5, "end_value": 0.0, "transition_steps": 2}
    algorithm = make_algorithm(compat, discriminator_loss_coef=falling)
    for term in algorithm.terms[3:]:
        assert [float(term.coef(jnp.int32(i))) for i in range(3)] == expected


@pytest.mark.parametrize(
    "wrong",
    [
        {"discriminator_loss_coef": {"name": "line"}},
        {"discriminator_learning_rate": 0.0},
        {"discriminator_optimizer_class_name": "Adan"},
        {"task_reward_w": -1.0},
        {"discriminator_termination_threshold": 1.5},
        {"amp_obs_dim": 0},
        {"amp_replay_size": -1},
        {"discriminator_coef": 1.0},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_wrong_fields(wrong):
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        appo.APPOConfig(**wrong)


def run_epochs(algorithm, state, batch):
    return jax.jit(lambda *args: update.epochs(algorithm, *args, jax.random.key(0)))(state, batch)


def discriminator_gradient(algorithm, params, batch):
    """Of the three terms, over all samples."""
    flat = jax.tree.map(lambda x: x.reshape(T * B, *x.shape[2:]), batch)
    flat = flat.replace(weight=flat.weight / (T * B))

    def total(params):
        terms, _ = update.losses(algorithm, params, flat)
        return sum(value for name, value in terms.items() if name.startswith("discriminator")), terms

    return jax.jit(jax.grad(total, has_aux=True))(params)[0]["discriminator"]


def difference(algorithm, before, after):
    return jax.tree.map(lambda a, b: a - b, after.params, before.params)


def norm(tree):
    return float(jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree))))


def test_discriminator_has_its_own_optimiser_clip_and_rate():
    """One step of plain gradient descent: minus rate * gradient, the gradient clipped to a norm of 0.1."""
    algorithm = make_algorithm(
        discriminator_optimizer_class_name="SGD",
        discriminator_max_grad_norm=0.1,
        discriminator_learning_rate=0.5,
        discriminator_loss_coef=2.0,
        learning_rate=1e-3,
        schedule="adaptive",
    )
    before = start(algorithm)
    batch = make_amp_batch(algorithm, before)
    after, metrics = run_epochs(algorithm, before, batch)
    grads = discriminator_gradient(algorithm, before.params, batch)
    assert 2 * norm(grads) > 0.1
    moved = difference(algorithm, before, after)["discriminator"]
    expected = jax.tree.map(lambda g: -0.5 * 0.1 * g / norm(grads), grads)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6), moved, expected)
    assert set(after.opt_state) == {"policy", "discriminator"}
    total = sum(metrics[t.name] * t.coef(0) for t in algorithm.terms)
    np.testing.assert_allclose(metrics["total_loss"], total, rtol=1e-5)


def test_policy_does_not_see_the_discriminator():
    """Its weights after an update are those with a coefficient of 0; one program, so every bit is the same."""
    coef = {"name": "linear", "init_value": 1.0, "end_value": 0.0, "transition_steps": 1}
    algorithm = make_algorithm(discriminator_loss_coef=coef, num_learning_epochs=2, num_mini_batches=3)
    before = start(algorithm)
    batch = make_amp_batch(algorithm, before)
    run = jax.jit(lambda state: update.epochs(algorithm, state, batch, jax.random.key(0))[0])
    on, off = (run(before.replace(iteration=jnp.int32(iteration))) for iteration in (0, 1))
    jax.tree.map(np.testing.assert_array_equal, on.params["policy"], off.params["policy"])
    jax.tree.map(np.testing.assert_array_equal, off.params["discriminator"], before.params["discriminator"])
    assert norm(difference(algorithm, before, on)["discriminator"]) > 0


@pytest.mark.slow
def test_discriminator_shares_the_policys_optimiser_and_clip_on_request():
    """All gradients together are clipped to a norm of 0.01; plain gradient descent at rate 1 moves by so much."""
    algorithm = make_algorithm(TOGETHER, optimizer_class_name="SGD", max_grad_norm=0.01, learning_rate=1.0)
    assert set(algorithm.optimizers) == {"policy"}
    before = start(algorithm)
    batch = make_amp_batch(algorithm, before)
    after, metrics = run_epochs(algorithm, before, batch)
    assert set(after.learning_rate) == {"policy"}
    grads = discriminator_gradient(algorithm, before.params, batch)
    moved = difference(algorithm, before, after)
    np.testing.assert_allclose(norm(moved), 0.01, rtol=1e-3)
    assert metrics["grad_norm"][0] > norm(grads)  # that of both
    scale = 0.01 / metrics["grad_norm"][0]
    jax.tree.map(
        lambda a, g: np.testing.assert_allclose(a, -scale * g, rtol=1e-3, atol=1e-6), moved["discriminator"], grads
    )


def test_rate_of_the_discriminator():
    """The policy's start by default; neither a schedule nor the KL moves it."""
    falling = {"name": "linear", "init_value": 1e-2, "end_value": 0.0, "transition_steps": 2}
    rates = make_algorithm(schedule=falling, learning_rate=3e-4).learning_rates(jnp.int32(2))
    np.testing.assert_allclose([rates["policy"], rates["discriminator"]], [0.0, 3e-4], rtol=1e-6)
    algorithm = make_algorithm(
        schedule="adaptive", desired_kl=1e-9, num_mini_batches=3, learning_rate=9e-3, discriminator_learning_rate=1e-4
    )
    state = start(algorithm)
    state, _ = run_epochs(algorithm, state, make_amp_batch(algorithm, state))
    np.testing.assert_allclose(state.learning_rate["policy"], 4e-3, rtol=1e-5)  # 9e-3 / 1.5^2
    np.testing.assert_allclose(state.learning_rate["discriminator"], 1e-4, rtol=1e-6)


def test_labels_of_a_teacher():
    """Executed actions are the labels without an act hook, and under compat with one."""

    def judged(compat, act_hook):
        algorithm = dataclasses.replace(make_algorithm(compat), reward_hooks=(), networks={}, act_hook=act_hook)
        config = appo.APPOConfig()
        (hook,) = appo.add(algorithm, config, Style((4,)), AmpInput(None, True, D)).reward_hooks
        return hook.executed_labels

    teacher = hooks.ActHook()
    assert [judged(Compat(), hook) for hook in (None, teacher)] == [True, False]
    assert [judged(Compat(executed_labels=True), hook) for hook in (None, teacher)] == [True, True]


def train(algorithm, env, iterations, *, data=None, steps=5, num_envs=8, change=lambda state: state):
    """States before and after, and the metrics of every iteration."""
    states = init_states(
        env, algorithm, ONE, jax.random.key(0), num_envs, num_steps=steps, data=data or {}, random_lengths=False
    )
    first = change(jax.tree.map(jnp.copy, states[0]))
    step, metrics = make_train_step(env, algorithm, ONE, steps), []
    states = (jax.tree.map(jnp.copy, first), states[1])
    for _ in range(iterations):
        *states, new = step(*states, data or {})
        metrics.append(jax.device_get(new))
    return first, states, metrics


NAN_SHAPES = {"state": (1,)}


@pytest.mark.parametrize(
    ("compat", "memory"),
    [
        (Compat(), None),
        pytest.param(Compat.st_rl(), None, marks=pytest.mark.slow),
        pytest.param(Compat(), MemoryStage("gru", 4), marks=pytest.mark.slow),
    ],
    ids=["default", "st_rl", "recurrent"],
)
def test_broken_environments_are_contained(compat, memory):
    """Pairs of observations, a replay and an expert's data; a third of the steps are not valid."""
    env = EpisodeEnv(probe.make("nan", probability=0.3), 2)
    amp = AmpInput(Segments(("state",), ((1,),)), False, D)
    options = {"amp_replay_size": 10, "num_mini_batches": 2, "dagger_loss_coef": 0.1, "mimic_loss_coef": 0.1}
    algorithm = make_algorithm(compat, amp=amp, shapes=NAN_SHAPES, actions=1, memory=memory, **options)
    data = {"expert": jnp.ones((3, D))}
    first, (state, kept), metrics = train(algorithm, env, 3, data=data)
    assert sum(m.invalid for m in metrics) > 0
    assert all(m.update["skipped"] == 0 for m in metrics)
    leaves = (state.params, state.opt_state, state.stats, [(m.update, m.hooks) for m in metrics])
    for path, leaf in jax.tree.leaves_with_path(leaves):
        assert np.isfinite(leaf).all(), jax.tree_util.keystr(path)
    moved = jax.tree.map(lambda a, b: bool((a != b).any()), first.params, state.params)
    still = [jax.tree_util.keystr(path) for path, value in jax.tree.leaves_with_path(moved) if not value]
    assert all("weight_hh" in path for path in still)  # in episodes of one step a memory is always empty
    ring = kept.memory["style"]
    assert (ring.count == 10).all()
    valid = 3 * 5 * 8 - sum(m.invalid for m in metrics)
    if compat.separate_amp_normalizers:
        assert state.stats["ref_obs"].count == state.stats["ref_motion"].count == valid
    else:
        assert state.stats["amp"].count == 2 * valid


@pytest.mark.slow
def test_replay_is_what_the_discriminator_learns_from():
    """A replay of zeros alone: the mean score of the policy's states is that of 0, whatever the minibatch holds."""
    algorithm = make_algorithm(amp_replay_size=T, discriminator_loss_coef=0.0)
    state = start(algorithm)
    rows = {"state": jnp.zeros((T, B, D)), "valid": jnp.ones((T, B), bool)}
    ring = storage_ring.push(storage_ring.init(T, rows), rows)
    batch = make_amp_batch(algorithm, state)

    @jax.jit
    def logit(state, batch, ring):
        kept = {"style": ring} if ring is not None else None
        _, metrics = update.epochs(algorithm, state, batch, jax.random.key(0), memory=kept)
        return metrics["policy_logit"][0], metrics["mimic_loss"][0]

    hook = algorithm.reward_hooks[0]
    zero = hook.prepare(state.stats, Extras({"ref_obs": jnp.zeros(D), "ref_motion": jnp.zeros(D)}))["ref_obs"]
    score = Style((4,)).score(state.params, zero)
    with_ring, mimic = logit(state, batch, ring)
    without, same_mimic = logit(state, batch, None)
    np.testing.assert_allclose(with_ring, score, rtol=1e-5)
    assert abs(without - score) > 0.1
    np.testing.assert_allclose(mimic, same_mimic, rtol=1e-6)  # that of each step's own state


@dataclasses.dataclass
class Extras:
    """As much of a transition as ``prepare`` reads."""

    extras: dict
    action: None = None


@pytest.mark.slow
def test_termination_ends_episodes_early():
    """With a threshold of 1 every step ends its episode, with one of 0 the time limit of five steps does."""
    finished = {}
    for threshold in (0.0, 1.0):
        env = EpisodeEnv(probe.make("gait"), 5)
        amp = AmpInput(Segments(("phase",), ((2,),)), False, 4)
        shapes = {"state": (1,), "phase": (2,)}
        fields = {"discriminator_termination_threshold": threshold}
        algorithm = make_algorithm(amp=amp, shapes=shapes, actions=1, **fields)
        *_, (metrics,) = train(algorithm, env, 1, data={"expert": jnp.ones((3, 4))})
        finished[threshold] = int(metrics.finished)
    assert finished == {0.0: 8, 1.0: 40}


@pytest.mark.parametrize(("fraction", "rows"), [(0.5, [0, 2, 4, 6]), (0.4, [0, 2, 5]), (0.01, [0]), (1.0, range(8))])
def test_the_discriminator_learns_from_a_share(fraction, rows):
    """Evenly spread rows of a minibatch of eight, of 2 steps of 4 environments too; weights in proportion."""
    algorithm = make_algorithm(discriminator_batch_fraction=fraction)
    batch = make_amp_batch(algorithm, start(algorithm))
    few = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:8], batch.replace(carry={}))
    few = few.replace(weight=jnp.arange(8.0) / 28)  # 0 + 1 + ... + 7 = 28
    whole = make_algorithm().networks["discriminator"](start(algorithm).params, few)
    rows = np.asarray(rows)
    for samples in (few, jax.tree.map(lambda leaf: leaf.reshape(2, 4, *leaf.shape[1:]), few)):
        part = algorithm.networks["discriminator"](start(algorithm).params, samples)
        np.testing.assert_allclose(part.policy, whole.policy[rows], rtol=1e-5)
        np.testing.assert_allclose(part.gradient, whole.gradient[rows], rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(part.weight, rows / 28 * 8 / len(rows), rtol=1e-6)


@pytest.mark.parametrize("fraction", [0.25, pytest.param(1.0, marks=pytest.mark.slow)])
def test_means_of_the_discriminator_are_over_its_valid_samples(fraction):
    """Half of the steps are not valid: an accuracy of 1 is 1."""
    algorithm = make_algorithm(discriminator_batch_fraction=fraction, num_mini_batches=3)
    state = start(algorithm)
    always = state.params["discriminator"]["params"]["trunk"]
    always = jax.tree.map(jnp.zeros_like, always) | {"layer_1": {"kernel": jnp.zeros((4, 1)), "bias": jnp.ones(1)}}
    state = state.replace(params=state.params | {"discriminator": {"params": {"trunk": always}}})
    batch = make_amp_batch(algorithm, state)
    batch = batch.replace(weight=(normal(9, 0, batch.weight.shape) > 0).astype(jnp.float32))
    _, metrics = jax.jit(lambda *args: update.epochs(algorithm, *args))(state, batch, jax.random.key(0))
    np.testing.assert_allclose(metrics["expert_accuracy"][0], 1.0, rtol=1e-6)
    np.testing.assert_allclose(metrics["policy_accuracy"][0], 0.0, atol=1e-6)


SHARDS, EPOCHS, MINIBATCHES = 4, 2, 3
ENVS = 8


def iterate(algorithm, devices: int, plan):
    """One iteration on so many devices, from the end of the steps to new weights; as in equivalence/test_devices."""
    state, states = start(algorithm), (make_rollout_state(5, ENVS), make_rollout_state(6, ENVS))
    valid = jnp.ones((T, ENVS), bool).at[:, :2].set(False).at[0, 3].set(False)  # shard 0 has not one valid step
    outputs = make_outputs(algorithm, state, 7, T, ENVS, valid)
    extras = {"ref_obs": 2 * normal(8, 0, (T, ENVS, D)) + 1, "ref_motion": normal(8, 1, (T, ENVS, D))}
    outputs = outputs.replace(extras=extras)
    key = jax.random.key(0)

    def iteration(state, states, outputs, plan):
        state, _, data, metrics = finish(algorithm, state, *states, state.stats, outputs, AXIS, key=key)
        state, summary = update.update(algorithm, state, data, key, plan=plan[0], axis_name=AXIS)
        return state, summary | metrics.hooks

    specs = (P(), P(AXIS), P(None, AXIS), P(AXIS))
    step = shard_jit(iteration, make_mesh(jax.devices()[:devices]), in_specs=specs, out_specs=(P(), P()))
    return state, step(state, states, outputs, jnp.asarray(plan))


@pytest.mark.slow
@pytest.mark.parametrize("compat", [Compat(), Compat.st_rl()], ids=["default", "st_rl"])
def test_one_device_is_four(compat):
    """The same minibatches in the indices of a shard and of the whole."""
    compat = compat.model_copy(update={"normalize_while_collecting": False})
    algorithm = make_algorithm(
        compat,
        num_learning_epochs=EPOCHS,
        num_mini_batches=MINIBATCHES,
        dagger_loss_coef=0.1,
        mimic_loss_coef=0.1,
        style={"task_reward_lerp": 0.5},
        discriminator_batch_fraction=0.5,  # one of a shard's two samples, four of all eight
    )
    size, rng = T * ENVS // SHARDS, np.random.default_rng(3)
    local = [[rng.permutation(size)[:6].reshape(MINIBATCHES, -1) for _ in range(EPOCHS)] for _ in range(SHARDS)]
    local = np.asarray(local, np.int32).reshape(SHARDS, EPOCHS * MINIBATCHES, -1)
    per_shard = ENVS // SHARDS
    env = local % per_shard + per_shard * np.arange(SHARDS)[:, None, None]
    whole = np.concatenate(local // per_shard * ENVS + env, axis=-1)
    before, one = iterate(algorithm, 1, whole[None])
    _, four = iterate(algorithm, SHARDS, local)
    for (path, a), b in zip(jax.tree.leaves_with_path(one), jax.tree.leaves(four), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=jax.tree_util.keystr(path))
    moved = jax.tree.map(
        lambda a, b: bool((a != b).any()), (before.params, before.stats), (one[0].params, one[0].stats)
    )
    assert all(jax.tree.leaves(moved))
    # 32 steps less 8 of shard 0 and one
    if compat.separate_amp_normalizers:
        assert one[0].stats["ref_obs"].count == 23
    else:
        assert one[0].stats["amp"].count == 2 * 23
    assert one[1]["expert_accuracy"] > 0
