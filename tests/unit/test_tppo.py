"""A teacher that acts, labels and remembers; the terms and errors of TPPO."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import (
    ACTION_SIZE,
    SHAPES,
    filled,
    make_algorithm,
    make_batch,
    make_env,
    make_state,
    normal,
    start_states,
)

from strl_jax.algorithms import rollout, tppo, update
from strl_jax.algorithms.base import apply_policy
from strl_jax.algorithms.finish import finish
from strl_jax.algorithms.losses import log_prob
from strl_jax.algorithms.prepare import prepare
from strl_jax.algorithms.teacher import ACTING, LABEL_STD, LABELS, TeacherHook
from strl_jax.modules.policy import Policy
from strl_jax.modules.stages import EncoderStage, MemoryStage
from strl_jax.observations import Segments

T, B, SCALE = 6, 16, 4
ITERATIONS = (0, 1, 3, 9, 9)
# 1 - x / 4 at the last update's iteration: 0 before the first one, then 0, 2, 8, 8
PROBABILITIES = (1.0, 1.0, 0.5, 0.0, 0.0)


def make_teacher(shapes: dict = SHAPES, action_size: int = ACTION_SIZE, **attributes) -> tppo.Teacher:
    """A small teacher that sees all components."""
    policy = Policy(action_size=action_size, actor_hidden_dims=(4,), critic_hidden_dims=(4,), **attributes)
    return tppo.Teacher(policy, {"actor": Segments.select_from(shapes, list(shapes))})


def make_data(teacher: tppo.Teacher) -> dict:
    policy, group = teacher.policy, teacher.groups["actor"]
    groups = {name: jnp.zeros((1, group.size)) for name in ("actor", "critic")}
    variables = jax.eval_shape(policy.init, jax.random.key(0), groups, policy.initial_carry(1), jnp.ones(1, bool))
    return {"teacher": {"variables": filled(variables, 7), "stats": {}}}


def with_teacher(algorithm, teacher: tppo.Teacher, **fields):
    return tppo.add(algorithm, tppo.TeacherFields(**fields), teacher)


class Collected:
    """Rollouts one after the other at ``ITERATIONS``, with a teacher that has a memory."""

    def __init__(self):
        self.env = env = make_env("teacher", 3, delay=2)
        shapes, size = env.env.observation_shapes, env.env.action_size
        self.teacher = make_teacher(shapes, size, memory=MemoryStage("gru", 3, 1))
        self.data = make_data(self.teacher)
        fields = {"teacher_act_prob": "linear", "update_times_scale": SCALE}
        self.algorithm = with_teacher(make_algorithm(env=env.env), self.teacher, **fields)
        state, pool = start_states(env, self.algorithm, B, T)
        hook = self.algorithm.act_hook
        state = state.replace(hooks={hook.name: hook.init(jax.random.key(0), B)})
        train, step, self.found = make_state(self.algorithm), jax.jit(self._step), []
        for number, iteration in enumerate(ITERATIONS):
            train = train.replace(iteration=jnp.int32(iteration))
            state, results = step(train, state, pool, jax.random.key(number))
            self.found.append(jax.device_get(results))

    def _step(self, train, first, pool, key):
        """The new state; steps, draws, the policy's own actions, log, and ratios in both habits."""

        def env_step(episode, action, draw):
            return self.env.step(episode, action, pool, draw)

        def one(loop, drawn):
            return rollout.one_step(self.algorithm, env_step, train, *loop, drawn, None, data=self.data)

        def ratio(rolled, algorithm):
            batch = prepare(algorithm, rolled, data=self.data)
            output = apply_policy(algorithm, train.params, batch)
            return jnp.exp(log_prob(batch.action, output.mean, output.std) - batch.log_prob)

        drawn = rollout.draw(self.algorithm, key, T, B)
        (state, stats), outputs = jax.lax.scan(one, (first, {}), drawn)
        compat = self.algorithm.compat.model_copy(update={"sample_log_prob": True})
        literal = replace(self.algorithm, compat=compat)
        both = []
        for algorithm in (self.algorithm, literal):
            _, end, rolled, log = finish(algorithm, train, first, state, stats, outputs, None, data=self.data, key=key)
            both.append(ratio(rolled, algorithm))
        return end, (rolled.steps, drawn, outputs.sampled, log, both)


@pytest.fixture(scope="module")
def collected():
    return Collected()


def test_who_acts(collected):
    """All follow the teacher until their first episode ends; then they draw at every end."""
    acts, told_apart = np.ones(B, bool), 0
    for probability, (steps, drawn, sampled, log, _) in zip(PROBABILITIES, collected.found, strict=True):
        acting = steps.extras[ACTING]
        for t in range(T):
            np.testing.assert_array_equal(acting[t], acts)
            uniform = drawn.hook["acts"][t]
            acts = np.where(steps.done[t], uniform < probability, acts)
            # An iteration later the probability would be 1 / 4 lower.
            told_apart += (steps.done[t] & (uniform < probability) & (uniform > probability - 0.25)).sum()
        np.testing.assert_array_equal(steps.action, np.where(acting[..., None] > 0, steps.extras[LABELS], sampled))
        (logged,) = log.hooks.values()
        np.testing.assert_allclose(logged, acting.mean(), rtol=1e-5)
    means = [steps.extras[ACTING].mean() for steps, *_ in collected.found]
    assert means[:2] == [1.0, 1.0]
    assert 0 < means[2] < 1
    assert means[4] == 0.0
    assert told_apart > 0


def test_first_ratio(collected):
    """1, for the log-probability is that of the action taken; st_rl stores the one of the action not taken."""
    apart = []
    for steps, _, _, _, (ours, literal) in collected.found:
        np.testing.assert_allclose(ours, 1.0, atol=1e-5)
        acting = steps.extras[ACTING] > 0
        np.testing.assert_allclose(literal[~acting], 1.0, atol=1e-5)
        apart.extend(abs(literal[acting] - 1.0))
    assert min(apart) > 1e-5
    assert np.median(apart) > 0.1


def test_teacher_remembers(collected):
    """Its labels are those of single steps, its memory is cleared at the ends of episodes and kept between rollouts."""
    teacher, data = collected.teacher, collected.data
    policy, group = teacher.policy, teacher.groups["actor"]
    act = jax.jit(
        lambda flat, carry: policy.apply(
            data["teacher"]["variables"], {"actor": flat}, carry, jnp.zeros(B, bool), method="act"
        )
    )
    carry, unlike = policy.initial_carry(B), 0.0
    forgetful = policy.initial_carry(B)
    for steps, *_ in collected.found:
        for t in range(T):
            flat = group.flatten({name: leaf[t] for name, leaf in steps.obs.items()})
            label, _, carry = act(flat, carry)
            np.testing.assert_allclose(steps.extras[LABELS][t], label, rtol=1e-5, atol=1e-6)
            unlike = max(unlike, abs(act(flat, forgetful)[0] - label).max())
            done = steps.done[t]
            carry = jax.tree.map(lambda leaf, done=done: jnp.where(done[:, None, None], 0.0, leaf), carry)
    assert unlike > 1e-3


def test_labels_that_are_samples():
    """mean + std * noise, with the deviation beside it; actions of others stay."""
    teacher = make_teacher()
    data = make_data(teacher)
    hook = TeacherHook(teacher, lambda iteration: 1.0, from_sample=True, with_std=True)
    obs = {name: normal(1, i, (B, *shape)) for i, (name, shape) in enumerate(SHAPES.items())}
    action, acts = normal(2, 0, (B, ACTION_SIZE)), jnp.arange(B) % 2 == 0

    @jax.jit
    def run(obs, action):
        state = hook.init(jax.random.key(0), B) | {"acts": acts}
        drawn = jax.tree.map(lambda leaf: leaf[0], hook.draw(jax.random.key(1), 1, B))
        groups = {"actor": teacher.groups["actor"].flatten(obs)}
        variables = data["teacher"]["variables"]
        mean, std, _ = teacher.policy.apply(variables, groups, {}, jnp.ones(B, bool), method="act")
        return hook.act(data, state, obs, action, drawn), drawn, mean, std

    (taken, extras, _), drawn, mean, std = run(obs, action)
    np.testing.assert_allclose(extras[LABELS], mean + std * drawn["noise"], rtol=1e-5, atol=1e-6)
    assert abs(drawn["noise"]).max() > 1
    np.testing.assert_allclose(extras[LABEL_STD], std, rtol=1e-6)
    np.testing.assert_array_equal(taken, jnp.where(acts[:, None], extras[LABELS], action))


def test_divergence_without_ppo():
    """Only KL(teacher || student), which needs both deviations; the critic has no gradient."""
    algorithm = with_teacher(make_algorithm(), make_teacher(), using_ppo=False, distill_target="kl")
    state, shape = make_state(algorithm), (2, 3)
    batch = jax.jit(lambda state: make_batch(algorithm, state, 1, *shape))(state)
    labels, label_std = normal(3, 0, (*shape, ACTION_SIZE)), jnp.exp(normal(3, 1, (*shape, ACTION_SIZE)))
    batch = batch.replace(extras={LABELS: labels, LABEL_STD: label_std}, weight=batch.weight / batch.weight.size)

    def total(params):
        terms, _ = update.losses(algorithm, params, batch)
        return sum(terms.values()), terms

    grads, terms = jax.jit(jax.grad(total, has_aux=True))(state.params)
    leaves = grads["policy"]["params"]
    assert terms.keys() == {"distillation_loss"}
    std, mean = np.asarray(batch.std), np.asarray(batch.mean)
    ratio = np.log(std / label_std) + (label_std**2 + (labels - mean) ** 2) / (2 * std**2) - 0.5
    np.testing.assert_allclose(terms["distillation_loss"], ratio.sum(axis=-1).mean(), rtol=1e-5)
    assert not any(leaf.any() for leaf in jax.tree.leaves(leaves["critic"]))
    assert all(leaf.any() for leaf in jax.tree.leaves((leaves["actor"], leaves["log_std"])))

    def without(params):
        return update.losses(algorithm, params, batch.replace(extras={LABELS: labels}))

    with pytest.raises(ValueError, match="'kl' needs std and wanted_std"):
        jax.eval_shape(without, state.params)


def test_learning_rate_follows_torchs_scheduler():
    config = tppo.TPPOConfig(
        learning_rate=0.5, lr_scheduler_class_name="MultiStepLR", lr_scheduler={"milestones": [1, 3]}
    )
    plain = make_algorithm()
    algorithm = tppo.make(config, plain.policy, plain.groups["actor"], plain.groups["critic"], make_teacher())
    rates = jax.jit(jax.vmap(algorithm.learning_rates))(jnp.arange(5))["policy"]
    # 0.5, times 0.1 from iteration 1 on, times 0.1 again from iteration 3 on
    np.testing.assert_allclose(rates, [0.5, 0.05, 0.05, 0.005, 0.005], rtol=1e-5)


@pytest.mark.slow
def test_random_memories_of_the_update():
    """With a given plan the key decides about them alone: the same gradient again, another from another key."""
    flat, steps, envs = make_algorithm(), 3, 4
    plain = replace(flat, policy=flat.policy.clone(memory=MemoryStage("gru", 3, 1)))
    algorithm = with_teacher(plain, make_teacher(), hidden_state_resample_prob=0.7)
    batch = jax.jit(lambda state: make_batch(flat, state, 1, steps, envs))(make_state(flat))
    batch = batch.replace(
        extras={LABELS: 0.5 * batch.action},
        carry=plain.policy.initial_carry(envs),
        reset=batch.reset.at[1, 2].set(True),
    )
    state, plan = make_state(algorithm), jnp.arange(envs, dtype=jnp.int32)[None]
    step = jax.jit(lambda key: update.epochs(algorithm, state, batch, key, plan=plan))
    first, again, other = (step(jax.random.key(seed)) for seed in (0, 0, 1))
    jax.tree.map(np.testing.assert_array_equal, first, again)
    norms = [float(metrics["grad_norm"][0]) for _, metrics in (first, other)]
    assert min(norms) > 0
    assert abs(norms[0] / norms[1] - 1) > 1e-4
    assert first[1]["skipped"].sum() == 0


BAD_FIELDS = [
    ({"distill_target": "huber"}, "distill_target"),
    ({"distill_latent_target": "kl"}, "distill_latent_target"),
    ({"teacher_act_prob": 1.5}, "teacher_act_prob"),
    ({"teacher_act_prob": "cosine"}, "teacher_act_prob"),
    ({"teacher_act_prob": "exp", "update_times_scale": 0.5}, "must be at least 1 with teacher_act_prob 'exp'"),
    ({"update_times_scale": 0}, "update_times_scale"),
    ({"buffer_dilation_ratio": 0.5}, "buffer_dilation_ratio"),
    ({"hidden_state_resample_prob": -0.1}, "hidden_state_resample_prob"),
    ({"distil_target": "real"}, "distil_target"),
]


@pytest.mark.parametrize(("fields", "message"), BAD_FIELDS, ids=lambda value: str(value)[:40])
def test_config_errors(fields, message):
    with pytest.raises(ValueError, match="validation error") as caught:
        tppo.TPPOConfig(**fields)
    assert message in str(caught.value)


def encoder(component: str, size: int) -> tuple[EncoderStage, ...]:
    return (EncoderStage(component=component, hidden_sizes=(4,), latent_size=size),)


MAPPING = {"distill_latent_obs_component_mapping": {"command": "heights"}}
BAD_PAIRS = [
    ({}, {}, {"action_size": 3}, "the teacher has 3 actions, the student 2"),
    ({"distill_target": "tanh"}, {}, {}, "distill_target 'tanh' needs mu_activation: tanh, for means in [-1, 1]"),
    ({"distill_target": "scaled_tanh"}, {"mu_activation": "elu"}, {}, "'scaled_tanh' needs mu_activation: tanh"),
    ({"hidden_state_resample_prob": 0.5}, {}, {}, "hidden_state_resample_prob needs a policy with a memory"),
    (MAPPING, {}, {}, "the student has no encoder of 'command'; it encodes nothing"),
    (MAPPING, {"encoders": encoder("joints", 2)}, {}, "the student has no encoder of 'command'; it encodes joints"),
    (MAPPING, {"encoders": encoder("command", 2)}, {}, "the teacher has no encoder of 'heights'; it encodes nothing"),
    (
        MAPPING,
        {"encoders": encoder("command", 2)},
        {"encoders": encoder("heights", 5)},
        "the latent of command has 2 entries, that of the teacher's heights 5",
    ),
]


@pytest.mark.parametrize(("fields", "student", "teacher", "message"), BAD_PAIRS, ids=lambda value: str(value)[:40])
def test_errors_of_teacher_and_student(fields, student, teacher, message):
    plain = make_algorithm()
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the message is compared below)
        tppo.make(
            tppo.TPPOConfig(**fields),
            plain.policy.clone(**student),
            plain.groups["actor"],
            plain.groups["critic"],
            make_teacher(**teacher),
        )
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
