"""TPPO against torch's: a teacher that acts and labels, targets, memories, latents."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from golden.files import FLOAT32, Golden, make_algorithm, paths, precision_fixture, segments, to_flax
from golden.replay import Replay
from strl_jax.algorithms import losses, minibatch, tppo, update
from strl_jax.algorithms.base import Algorithm, apply_policy
from strl_jax.algorithms.prepare import bootstrapped_reward
from strl_jax.algorithms.teacher import ACTING, LABELS, LATENT
from strl_jax.modules.policy import Policy
from strl_jax.modules.stages import EncoderStage
from strl_jax.observations import Segments
from strl_jax.types import Batch

FIELDS = ("distill_target", "distillation_loss_coef", "distill_latent_coef", "using_ppo", "teacher_act_prob")
MORE_FIELDS = ("update_times_scale", "action_labels_from_sample", "label_action_with_critic_obs")
precision = precision_fixture(double_marks=(pytest.mark.slow,))


def close(actual, expected, tolerance, message=""):
    np.testing.assert_allclose(actual, expected, **tolerance, err_msg=message)


def make_teacher(config: dict, **attributes) -> tppo.Teacher:
    """The teacher of a file, over the critic's observation unless the file says the actor's."""
    own = config.get("teacher", {})
    name, size = ("privileged", "C") if config.get("label_action_with_critic_obs", True) else ("obs", "O")
    policy = Policy(
        action_size=own.get("num_actions", config["A"]),
        actor_hidden_dims=tuple(own.get("actor_hidden_dims", config["hid"])),
        critic_hidden_dims=tuple(own.get("critic_hidden_dims", config["chid"])),
        activation=own.get("activation", config["act"]),
        mu_activation=own.get("mu_activation"),
        log_std=False,
        **attributes,
    )
    return tppo.Teacher(policy, {"actor": attributes.get("actor_obs", Segments((name,), ((config[size],),)))})


def make_tppo(config: dict, teacher: tppo.Teacher, *, policy: dict | None = None, **fields) -> Algorithm:
    """TPPO with st_rl's habits from a file's config; ``fields`` are more of ``TPPOConfig``."""
    own = {key: config[key] for key in (*FIELDS, *MORE_FIELDS) if key in config} | fields

    def make(ppo_config, module, actor, critic, compat):
        tppo_config = tppo.TPPOConfig(**(ppo_config.model_dump() | own))
        return tppo.make(tppo_config, module, actor, critic, teacher, compat)

    minibatches = {"num_mini_batches": config["num_mini_batches"]} if "num_mini_batches" in config else {}
    return make_algorithm(config, policy=policy, make=make, **minibatches)


def teacher_data(golden: Golden, dtype) -> dict:
    return {"teacher": {"variables": to_flax(golden.group("teacher"), dtype), "stats": {}}}


def evaluate(algorithm: Algorithm, params: dict, sample: Batch):
    """Losses by name, total, gradients, metrics."""

    def total(params):
        terms, metrics = update.losses(algorithm, params, sample)
        return sum(term.coef(0) * terms[term.name] for term in algorithm.terms), (terms, metrics)

    (value, (terms, metrics)), grads = jax.value_and_grad(total, has_aux=True)(params)
    return terms, value, grads["policy"], metrics


def norm(tree):
    return np.sqrt(sum(np.sum(np.square(leaf, dtype=np.float64)) for leaf in jax.tree.leaves(tree)))


def same_gradients(grads: dict, golden: Golden, prefix: str, dtype, tolerance: dict):
    """What the file does not name has no gradient."""
    recorded, weights = golden.group(prefix), golden.group("param")
    assert recorded
    expected = to_flax({name: np.zeros_like(value) for name, value in weights.items()} | recorded, dtype)
    jax.tree.map(lambda a, b: close(a, b, tolerance, prefix), grads, expected)


def fields(golden: Golden, prefix: str, dtype, names: dict[str, str]) -> dict:
    """Fields of a batch from the keys ``prefix/names[field]``; scalars without their last axis."""
    scalars = ("log_prob", "value", "advantage", "return_")
    arrays = {field: jnp.asarray(golden[f"{prefix}/{key}"], dtype) for field, key in names.items()}
    return {field: array[..., 0] if field in scalars else array for field, array in arrays.items()}


STORED = {
    "action": "actions",
    "log_prob": "actions_log_prob",
    "value": "values",
    "mean": "mu",
    "std": "sigma",
    "advantage": "advantages",
    "return_": "returns",
}
MINIBATCH = STORED | {"log_prob": "old_actions_log_prob", "mean": "old_mu", "std": "old_sigma"}


@pytest.mark.parametrize("path", paths("tppo_rollout*.npz"), ids=lambda path: path.stem)
def test_rollout(path):
    golden = Golden(path)
    config = golden.config
    recorded = golden.group("in")
    recorded["actions"] = recorded.pop("sampled_actions")
    recorded["last_critic_obs"] = np.zeros_like(recorded["critic_obs"][0])  # the file's returns are not asked for
    golden.arrays |= {f"in/roll0/{name}": value for name, value in recorded.items()}
    algorithm = make_tppo(config, make_teacher(config))
    replay = Replay(golden, algorithm, jnp.float32, teacher_data(golden, jnp.float32))
    rollout, batch = replay.collect(0)
    steps = rollout.steps

    acting = np.asarray(steps.extras[ACTING], bool)
    np.testing.assert_array_equal(acting, golden["exp/mask_used"])
    np.testing.assert_array_equal(acting[1:], golden["exp/mask_after"][:-1])
    np.testing.assert_array_equal(replay.state.hooks["teacher"]["acts"], golden["exp/mask_after"][-1])
    assert 0 < acting.mean() < 1
    close(steps.extras["received"], golden["exp/actions_returned"], FLOAT32)
    reward = jax.jit(lambda steps: bootstrapped_reward(algorithm, steps))(steps)
    for name, actual in {
        "actions": steps.action,
        "actions_log_prob": steps.log_prob[..., None],
        "action_labels": steps.extras[LABELS],
        "mu": steps.mean,
        "values": steps.value[..., None],
        "rewards": reward[..., None],
    }.items():
        close(actual, golden[f"exp/storage/{name}"], FLOAT32, name)
    close(batch.extras[LABELS], golden["exp/storage/action_labels"], FLOAT32)


@pytest.mark.parametrize("path", paths("tppo_targets*.npz"), ids=lambda path: path.stem)
def test_targets(path, precision):
    prefix, dtype, tolerance = precision
    golden = Golden(path)
    config = golden.config
    flat = fields(golden, "in/mb", dtype, MINIBATCH)
    size = flat["value"].size
    sample = Batch(
        groups={name: jnp.asarray(golden[f"in/mb/{key}"], dtype) for name, key in GROUPS.items()},
        **flat,
        weight=jnp.full(size, 1 / size, dtype),
        reset=jnp.zeros(size, bool),
        masks={},
        carry={},
        extras={LABELS: jnp.asarray(golden["in/mb/action_labels"], dtype)},
    )
    algorithms = {
        (kind, using_ppo): make_tppo(config, make_teacher(config), distill_target=kind, using_ppo=using_ppo)
        for kind in config["targets"]
        for using_ppo in (True, False)
    }
    params = {"policy": to_flax(golden.group("param"), dtype)}
    run = jax.jit(lambda *args: [evaluate(algorithm, *args) for algorithm in algorithms.values()])
    for ((kind, using_ppo), algorithm), found in zip(algorithms.items(), run(params, sample), strict=True):
        terms, total, grads, metrics = found
        here, end = f"{prefix}/{kind}", "with_ppo" if using_ppo else "no_ppo"
        names = {term.name for term in algorithm.terms}
        assert names == {"distillation_loss", *(PPO_TERMS if using_ppo else ())}
        for name in names:
            key = f"{here}/{name}" if name == "distillation_loss" else f"{prefix}/ppo/{name}"
            close(terms[name], golden[key], tolerance, key)
        close(total, golden[f"{here}/total_{end}"], tolerance, f"{here} {end}")
        close(norm(grads), golden[f"{here}/grad_norm_{end}"], tolerance, f"{here} {end}")
        if prefix == "exp" and not using_ppo:
            same_gradients(grads, golden, f"exp/{kind}/grad_no_ppo", dtype, tolerance)
        recorded = golden.group(f"{here}/stat")
        assert metrics.keys() == {"kl", *recorded}
        for name, value in recorded.items():
            close(metrics[name], value, tolerance, f"{here} {name}")


GROUPS = {"actor": "obs", "critic": "critic_obs"}
PPO_TERMS = ("surrogate_loss", "value_loss", "entropy")


class Recurrent:
    """A file's second rollout as a batch, its algorithm and its teacher."""

    def __init__(self, golden: Golden, dtype):
        self.golden, self.dtype = golden, dtype
        self.teacher = make_teacher(golden.config)
        self.algorithm = make_tppo(golden.config, self.teacher)
        done = jnp.asarray(golden["in/storage1/dones"][..., 0], bool)
        stored = {"actor": "observations", "critic": "privileged_observations"}
        groups = {name: jnp.asarray(golden[f"in/storage1/{key}"], dtype) for name, key in stored.items()}
        self.batch = Batch(
            groups=groups,
            **fields(golden, "in/storage1", dtype, STORED),
            weight=jnp.ones(done.shape, dtype),
            reset=jnp.concatenate([jnp.zeros_like(done[:1]), done[:-1]]),  # the recorded memory is reset already
            masks={},
            carry=self._carry(),
            extras={LABELS: jnp.asarray(golden["in/storage1/action_labels"], dtype)},
        )

    def _carry(self) -> dict:
        """Memories before the first step, ``[E, layers, H]``."""

        def first(key):
            return jnp.moveaxis(jnp.asarray(self.golden[key][0], self.dtype), 0, 1)

        shapes = jax.eval_shape(lambda: self.algorithm.policy.initial_carry(self.golden.config["E"]))
        prefix = "in/storage1/saved_hidden"
        carry = {
            name: {part: first(f"{prefix}/{name}/{part}" if len(parts) > 1 else f"{prefix}/{name}") for part in parts}
            for name, parts in shapes.items()
        }
        assert jax.tree.map(jnp.shape, carry) == jax.tree.map(jnp.shape, shapes)
        return carry


@pytest.mark.parametrize("path", paths("tppo_recurrent_*.npz"), ids=lambda path: path.stem)
def test_recurrent_collecting(path):
    """Means, values and labels of the rollout, with the weights that collected it."""
    golden = Golden(path)
    recurrent = Recurrent(golden, jnp.float32)
    algorithm, batch, teacher = recurrent.algorithm, recurrent.batch, recurrent.teacher
    params = {"policy": to_flax(golden.group("param"))}
    obs = {teacher.groups["actor"].names[0]: batch.groups["critic"]}
    hook, data = algorithm.act_hook, teacher_data(golden, jnp.float32)

    @jax.jit
    def run(params, data, batch):
        start = hook.init(jax.random.key(0), batch.value.shape[1])

        def label(state, obs):
            _, extras, state = hook.act(data, state, obs, jnp.zeros_like(batch.action[0]), {})
            return state, extras[LABELS]

        return apply_policy(algorithm, params, batch), jax.lax.scan(label, start, obs)[1]

    output, labels = run(params, data, batch)
    close(output.mean, golden["in/storage1/mu"], FLOAT32)
    close(output.std, golden["in/storage1/sigma"], FLOAT32)
    close(output.value[..., None], golden["in/storage1/values"], FLOAT32)
    close(labels, golden["in/storage1/action_labels"], FLOAT32)


@pytest.mark.parametrize("path", paths("tppo_recurrent_*.npz"), ids=lambda path: path.stem)
def test_recurrent_minibatches(path, precision):
    prefix, dtype, tolerance = precision
    golden = Golden(path)
    config, recurrent = golden.config, Recurrent(golden, dtype)
    algorithm, weights = recurrent.algorithm, golden.group("param_upd")
    params = {"policy": to_flax(weights, dtype)}
    plan = minibatch.plan(jax.random.key(0), config["E"], config["num_mini_batches"], 1, shuffle=False)
    run = jax.jit(lambda *args: (apply_policy(algorithm, *args), *evaluate(algorithm, *args)))
    for number, envs in enumerate(plan):
        sample = minibatch.gather_envs(recurrent.batch, envs)
        for field, key in MINIBATCH.items():
            expected = golden[f"exp/mb{number}/{key}"]
            np.testing.assert_array_equal(np.reshape(getattr(sample, field), expected.shape), expected)
        sample = sample.replace(weight=sample.weight / sample.weight.size)
        output, terms, total, grads, _ = run(params, sample)
        here = f"{prefix}/mb{number}"
        close(output.mean, golden[f"{here}/mu"], tolerance)
        if config["using_ppo"]:
            ratio = jnp.exp(losses.log_prob(sample.action, output.mean, output.std) - sample.log_prob)
            close(ratio, golden[f"{here}/ratio"], tolerance)
        recorded = golden.group(f"{here}/loss")
        assert terms.keys() == recorded.keys()
        for name, value in recorded.items():
            close(terms[name], value, tolerance, name)
        close(total, golden[f"{here}/total"], tolerance)
        close(norm(grads), golden[f"{here}/grad_norm"], tolerance)
        norms = golden.group(f"{here}/param_grad_norm")
        filled = to_flax({name: np.full(weights[name].shape, value) for name, value in norms.items()}, dtype)
        jax.tree.map(lambda grad, value: close(norm(grad), value.ravel()[0], tolerance), grads, filled)
        if f"{here}/grad/std" in golden:
            same_gradients(grads, golden, f"{here}/grad", dtype, tolerance)


@pytest.mark.parametrize("path", paths("tppo_latent*.npz"), ids=lambda path: path.stem)
def test_latents(path, precision):
    prefix, dtype, tolerance = precision
    golden = Golden(path)
    config = {"mu_activation": "tanh"} | golden.config  # as in every file of TPPO; this one does not say it
    ((own, wanted),) = config["mapping"].items()
    teacher_obs = segments(config["teacher_segments"])
    kwargs = {name: tuple(x) if isinstance(x, list) else x for name, x in config["encoder_kwargs"].items()}
    encoders = {
        name: (EncoderStage(component=name, latent_size=config["encoder_output_size"], **kwargs),)
        for name in (own, wanted)
    }
    layout = {"obs_segments": config["student_segments"], "privileged_obs_segments": config["teacher_segments"]}
    teacher = make_teacher(config, actor_obs=teacher_obs, critic_obs=teacher_obs, encoders=encoders[wanted])
    algorithms = {
        kind: make_tppo(
            config | layout,
            teacher,
            policy={"encoders": encoders[own]},
            distill_latent_target=kind,
            distill_latent_obs_component_mapping=config["mapping"],
        )
        for kind in config["targets"]
    }
    flat = {name: jnp.asarray(golden[f"in/{key}"], dtype) for name, key in GROUPS.items()}
    labels = jnp.asarray(golden["in/action_labels"], dtype)
    zeros, size = jnp.zeros(len(labels), dtype), len(labels)

    @jax.jit
    def run(params, data, flat):
        found = []
        for algorithm in algorithms.values():
            obs = {name: teacher_obs.select(flat["critic"], name) for name in teacher_obs.names}
            extras = algorithm.act_hook.prepare(data, SimpleNamespace(obs=obs))
            sample = Batch(
                groups=flat,
                action=0 * labels,
                mean=0 * labels,
                std=jnp.ones_like(labels),
                **dict.fromkeys(("log_prob", "value", "advantage", "return_"), zeros),
                weight=zeros + 1 / size,
                reset=zeros.astype(bool),
                masks={},
                carry={},
                extras=extras | {LABELS: labels},
            )
            latent = apply_policy(algorithm, params, sample).latents[own]
            found.append((extras, latent, evaluate(algorithm, params, sample)))
        return found

    params = {"policy": to_flax(golden.group("param"), dtype)}
    results = run(params, teacher_data(golden, dtype), flat)
    for kind, (extras, latent, (terms, total, grads, _)) in zip(algorithms, results, strict=True):
        assert extras.keys() == {f"{LATENT}/{wanted}"}
        close(extras[f"{LATENT}/{wanted}"], golden[f"{prefix}/target_latent"], tolerance)
        close(latent, golden[f"{prefix}/latent"], tolerance)
        assert terms.keys() == {"distillation_loss", f"distill_latent_{own}"}
        close(terms["distillation_loss"], golden[f"{prefix}/distillation_loss"], tolerance)
        here = f"{prefix}/{kind}"
        close(terms[f"distill_latent_{own}"], golden[f"{here}/distill_latent_{own}"], tolerance, kind)
        close(total, golden[f"{here}/total"], tolerance, kind)
        close(norm(grads), golden[f"{here}/grad_norm"], tolerance, kind)
        if prefix == "exp":
            same_gradients(grads, golden, f"{here}/grad", dtype, tolerance)
