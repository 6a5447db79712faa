"""Algorithms from their configs: what is made of each, a line for what does not fit, and their runs as sources."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from commands import Walk, same, settings, write
from tiny import normal
from torch_writer import save

from strl_jax import train
from strl_jax.builders import checks
from strl_jax.builders.algorithm import assemble, changed_data
from strl_jax.config import ConfigError, from_dict
from strl_jax.envs import probe
from strl_jax.interop import export
from strl_jax.run_folder import run_dir
from strl_jax.run_folder.errors import CheckpointError
from strl_jax.runners import loading
from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.sharding import make_mesh

AMP = {"class_name": "AmpActorCritic", "amp_discriminator": {"hidden_dims": [3]}}
MEMORY = {"class_name": "ActorCriticRecurrent", "rnn_type": "gru", "rnn_hidden_size": 3}
ENCODER = {
    "class_name": "EncoderActorCritic",
    "encoder_component_names": ["goal"],
    "encoder_kwargs": {"hidden_sizes": [3]},
    "encoder_output_size": 2,
}
TORCH = {"actor_hidden_dims": [], "critic_hidden_dims": []}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Experts' states and teachers by their names."""
    folder = tmp_path_factory.mktemp("files")
    arrays = {
        "pairs": np.zeros((5, 2)),
        "integers": np.arange(10).reshape(5, 2),
        "line": np.zeros(5),
        "empty": np.zeros((0, 2)),
        "nan": np.full((5, 2), np.nan),
        "large": np.full((5, 2), 1e39),
        "huge": np.full((5, 2), 3e38),
        "wide": np.zeros((5, 7)),
        "words": np.array([["a", "b"]]),
    }
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    np.save(folder / "objects.npy", np.array([[None]]), allow_pickle=True)
    np.savez(folder / "archive.npz", pairs=np.zeros((5, 2)))
    (folder / "text.npy").write_text("0 0")
    (folder / "junk.npy").write_bytes(b"PK\x03\x04junk")
    (folder / "short.npy").write_bytes((folder / "pairs.npy").read_bytes()[:-8])
    (folder / "folder.npy").mkdir()
    save(folder / "teacher.pt", {"model_state_dict": teacher_weights(3), "iter": 0})
    save(folder / "encoder.pt", {"model_state_dict": teacher_weights(3, 2), "iter": 0})
    return folder


def teacher_weights(seen: int, latent: int | None = None) -> dict:
    """A linear policy for ``commands.Walk``; with a latent, its two goals come as one of that size."""
    size = seen if latent is None else seen - 2 + latent
    shapes = {"std": (1,), "actor.0.weight": (1, size), "actor.0.bias": (1,)}
    shapes |= {"critic.0.weight": (1, 3), "critic.0.bias": (1,)}
    if latent is not None:
        shapes |= {"encoders.0.model.0.weight": (3, 2), "encoders.0.model.0.bias": (3,)}
        shapes |= {"encoders.0.model.2.weight": (latent, 3), "encoders.0.model.2.bias": (latent,)}
    return {name: np.ones(shape, np.float32) for name, shape in shapes.items()}


def make(files, name="PPO", policy=None, env=None, groups=None, runner=None, compat=None, **algorithm) -> dict:
    """A config; HERE in a string stands for the folder of the files."""
    values = settings(files / "logs", **(runner or {}))
    values["env"] |= (env or {}) | ({} if groups is None else {"groups": groups})
    values["policy"] |= policy or {}
    values["algorithm"] |= {"class_name": name, **algorithm}
    values["compat"] = compat or {}
    return yaml.safe_load(yaml.safe_dump(values).replace("HERE", str(files)))


def amp(files, **changes) -> dict:
    """APPO for ``commands.Walk``, whose discriminator sees pairs of positions."""
    given = {"groups": {"amp": ["position"]}, "policy": AMP, "expert_file": "HERE/pairs.npy"} | changes
    return make(files, "APPO", **given)


def style(files, **changes) -> dict:
    """APPO for a probe that shows policy and expert in its extras, of size 1."""
    return make(files, "APPO", **{"env": {"name": "probe:style"}, "policy": AMP} | changes)


def tppo(files, name="TPPO", teacher=TORCH, **changes) -> dict:
    """TPPO for ``commands.Walk``."""
    teacher = {"teacher_ac_path": "HERE/teacher.pt", **teacher}
    return make(files, name, **{"teacher_policy": teacher, "normalize_rewards": False} | changes)


def mapped(files, mapping: dict, latent: int = 2, policy=ENCODER, path="encoder.pt", **changes) -> dict:
    """TPPO with latents; those of the teacher have 2 entries."""
    teacher = TORCH | ENCODER | {"teacher_ac_path": f"HERE/{path}"}
    teacher = teacher if path == "encoder.pt" else TORCH | {"teacher_ac_path": f"HERE/{path}"}
    student = policy | ({"encoder_output_size": latent} if policy else {})
    return tppo(files, teacher=teacher, policy=student, distill_latent_obs_component_mapping=mapping, **changes)


EXPERT = r"algorithm\.expert_file: \S*/files\d*/"
STATES = "algorithm: amp_obs_dim is {}, the policy's states have {} numbers and the expert's {}; they must be the same"
NONE_OF = r"{} is not allowed; it must be one of position, goal"
FAULTS = {
    # discriminators
    "no states of the policy": (
        lambda files: amp(files, groups={}),
        r"env\.groups\.amp: null is not allowed for an environment without ref_obs; .* of position, goal$",
    ),
    "no states of the expert": (
        lambda files: amp(files, expert_file=None),
        r"algorithm\.expert_file: null is not allowed for an environment without ref_motion; .*\.npy file",
    ),
    "no file": (lambda files: amp(files, expert_file="HERE/none.npy"), EXPERT + r"none\.npy: no such file$"),
    "a folder": (
        lambda files: amp(files, expert_file="HERE/folder.npy"),
        EXPERT + r"folder\.npy: cannot be read as \.npy: ",
    ),
    "junk of an archive": (
        lambda files: amp(files, expert_file="HERE/junk.npy"),
        EXPERT + r"junk\.npy: cannot be read as \.npy: ",
    ),
    "numbers beyond any robot's": (
        lambda files: amp(files, expert_file="HERE/huge.npy"),
        EXPERT + r"huge\.npy: all numbers must be finite, .*below 1e\+09$",
    ),
    "an empty name": (lambda files: amp(files, expert_file=""), r"algorithm\.expert_file: '' is not allowed; "),
    "a group that nobody asks for": (
        lambda files: make(files, groups={"rnd": ["foo"]}),
        r"env\.groups\.rnd: 'foo' is not allowed; it must be one of position, goal$",
    ),
    "latents that have no bounds": (
        lambda files: mapped(files, {"goal": "goal"}, distill_latent_target="tanh"),
        r"algorithm: distill_latent_target 'tanh' needs encoders that end in Tanh, for latents in \[-1, 1\]; ",
    ),
    "text": (lambda files: amp(files, expert_file="HERE/text.npy"), EXPERT + r"text\.npy: cannot be read as \.npy: "),
    "cut off": (
        lambda files: amp(files, expert_file="HERE/short.npy"),
        EXPERT + r"short\.npy: cannot be read as \.npy: ",
    ),
    "objects": (
        lambda files: amp(files, expert_file="HERE/objects.npy"),
        EXPERT + r"objects\.npy: cannot be read as \.npy",
    ),
    "archive": (
        lambda files: amp(files, expert_file="HERE/archive.npz"),
        EXPERT + r"archive\.npz: it holds an archive; it must hold numbers \[N, amp_obs_dim\]$",
    ),
    "one axis": (
        lambda files: amp(files, expert_file="HERE/line.npy"),
        EXPERT + r"line\.npy: it holds float64 \[5\]; it must",
    ),
    "nothing": (
        lambda files: amp(files, expert_file="HERE/empty.npy"),
        EXPERT + r"empty\.npy: it holds float64 \[0, 2\]; it",
    ),
    "words": (
        lambda files: amp(files, expert_file="HERE/words.npy"),
        EXPERT + r"words\.npy: it holds <U1 \[1, 2\]; it must",
    ),
    "nan": (
        lambda files: amp(files, expert_file="HERE/nan.npy"),
        EXPERT + r"nan\.npy: all numbers must be finite, .*below 1e\+09$",
    ),
    "beyond float32": (
        lambda files: amp(files, expert_file="HERE/large.npy"),
        EXPERT + r"large\.npy: all numbers must be finite",
    ),
    "too wide": (lambda files: amp(files, expert_file="HERE/wide.npy"), re.escape(STATES.format(None, 2, 7)) + "$"),
    "amp_obs_dim": (lambda files: amp(files, amp_obs_dim=3), re.escape(STATES.format(3, 2, 2)) + "$"),
    "amp_obs_dim of extras": (lambda files: style(files, amp_obs_dim=2), re.escape(STATES.format(2, 1, 1)) + "$"),
    "extras and a file": (
        lambda files: style(files, expert_file="HERE/pairs.npy"),
        re.escape(STATES.format(None, 1, 2)) + "$",
    ),
    "short memory": (
        lambda files: amp(files, amp_replay_size=3),
        r"algorithm\.amp_replay_size: 3 is not allowed; it must be 0, or num_steps_per_env 4 or more$",
    ),
    # groups
    "teacher's group": (
        lambda files: tppo(files, groups={"teacher": ["goals"]}),
        r"env\.groups\.teacher: " + NONE_OF.format("'goals'") + "; nearest is goal$",
    ),
    "discriminator's group": (
        lambda files: amp(files, groups={"amp": ["gaol"]}),
        r"env\.groups\.amp: " + NONE_OF.format("'gaol'") + "; nearest is goal$",
    ),
    "rnd's group": (
        lambda files: make(files, rnd_cfg={}, groups={"rnd": ["x"]}),
        r"env\.groups\.rnd: " + NONE_OF.format("'x'") + "$",
    ),
    "a component twice": (
        lambda files: amp(files, groups={"amp": ["goal", "goal"]}),
        r"env\.groups\.amp: .*goal",
    ),
    # teachers
    "bounded target": (
        lambda files: tppo(files, distill_target="tanh"),
        r"algorithm: distill_target 'tanh' needs mu_activation: tanh, for means in \[-1, 1\]$",
    ),
    "random memories": (
        lambda files: tppo(files, hidden_state_resample_prob=0.5),
        "algorithm: hidden_state_resample_prob needs a policy with a memory$",
    ),
    "latent of nothing": (
        lambda files: mapped(files, {"goal": "goal"}, policy={}),
        "algorithm: distill_latent_obs_component_mapping: the student has no encoder of 'goal'; it encodes nothing$",
    ),
    "latent of another component": (
        lambda files: mapped(files, {"position": "goal"}),
        "algorithm: .*_mapping: the student has no encoder of 'position'; it encodes goal$",
    ),
    "latent that the teacher lacks": (
        lambda files: mapped(files, {"goal": "goal"}, path="teacher.pt"),
        "algorithm: .*_mapping: the teacher has no encoder of 'goal'; it encodes nothing$",
    ),
    "latent of another size": (
        lambda files: mapped(files, {"goal": "goal"}, latent=5),
        "algorithm: .*_mapping: the latent of goal has 5 entries, that of the teacher's goal 2$",
    ),
    # minibatches of a queue
    # int(1.5 x 4) = 6 steps of 4 environments are 24 samples; one of 4 devices has 6 of them
    "minibatches of a queue": (
        lambda files: tppo(files, buffer_dilation_ratio=1.5, num_mini_batches=5),
        r"algorithm\.num_mini_batches: 5 is not allowed; .* 24 samples .*: 1, 2, 3, 4, 6, 8, 12, 24$",
    ),
    "minibatches of a device's queue": (
        lambda files: tppo(files, buffer_dilation_ratio=1.5, num_mini_batches=4),
        r"algorithm\.num_mini_batches: 4 is not allowed; .* 6 samples .* each of 4 devices; .*: 1, 2, 3, 6$",
    ),
    "minibatches of whole environments": (
        lambda files: tppo(files, policy=MEMORY, buffer_dilation_ratio=2, num_mini_batches=3),
        r"algorithm\.num_mini_batches: 3 is not allowed; .* 4 whole environments .*: 1, 2, 4$",
    ),
    "no dilation": (
        lambda files: tppo(files, buffer_dilation_ratio=0.5),
        r"algorithm\.buffer_dilation_ratio: 0\.5 is not allowed; it must be >= 1$",
    ),
    # policies that an algorithm does not train
    "PPO and a discriminator": (
        lambda files: make(files, "PPO", policy=AMP),
        r"runner\.algorithm_class_name: PPO is not allowed with the policy class AmpActorCritic, whose "
        "discriminator it does not train; APPO and ATPPO train one$",
    ),
    "TPPO and a discriminator": (
        lambda files: tppo(files, policy=AMP),
        r"runner\.algorithm_class_name: TPPO is not allowed with the policy class AmpActorCritic, whose discriminator",
    ),
    "APPO without a discriminator": (
        lambda files: make(files, "APPO", groups={"amp": ["position"]}, expert_file="HERE/pairs.npy"),
        r"runner\.algorithm_class_name: APPO is not allowed with the policy class ActorCritic, which has no "
        "discriminator; APPO and ATPPO train one$",
    ),
    "ATPPO without a discriminator": (
        lambda files: tppo(files, "ATPPO"),
        r"runner\.algorithm_class_name: ATPPO is not allowed with the policy class ActorCritic, which has no discr",
    ),
    "EstimatorTPPO without an estimator": (
        lambda files: tppo(files, "EstimatorTPPO"),
        r"runner\.algorithm_class_name: EstimatorTPPO is not allowed with the policy class ActorCritic, which has no "
        "estimator; EstimatorPPO and EstimatorTPPO train one$",
    ),
    # random network distillation
    "rnd's keys": (
        lambda files: make(files, rnd_cfg={"wieght": 1}),
        r"algorithm\.rnd_cfg\.wieght: unknown key; nearest is weight$",
    ),
    "rnd's activation": (
        lambda files: make(files, rnd_cfg={"activation": "ellu"}),
        r"algorithm\.rnd_cfg\.activation: .*ellu",
    ),
    "rnd's widths": (
        lambda files: make(files, rnd_cfg={"target_hidden_dims": [0]}),
        r"algorithm\.rnd_cfg\.target_hidden_dims: \[0\] is not allowed; a hidden layer must have a size >= 1, or -1",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_one_line(fault, files, tmp_path, capsys):
    values, expected = FAULTS[fault]
    config = write(tmp_path / "config.yaml", values(files))
    code = train.main(["--config", str(config), f"runner.log_root={tmp_path}/logs"])
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert (code, captured.out) == (2, "")
    assert len(lines) == 1, lines
    assert re.match(f"error: {expected}", lines[0]), lines[0]
    assert not (tmp_path / "logs").exists()


def built(values: dict, env=None):
    return assemble(from_dict(values)[0], Walk() if env is None else env)


def hook(made, name: str):
    return next(hook for hook in made.algorithm.reward_hooks if hook.name == name)


def test_a_discriminator_of_the_environments_own_states(files):
    made = built(style(files), probe.make("style"))
    assert (made.data, made.references) == ({}, {})
    assert hook(made, "style").components == ()
    assert built(style(files, amp_obs_dim=1), probe.make("style")).algorithm.optimizers.keys() == {
        "policy",
        "discriminator",
    }


def test_a_discriminator_of_components_and_a_file(files):
    for name, dtype in (("pairs", "float32"), ("integers", "float32")):
        made = built(amp(files, expert_file=f"HERE/{name}.npy", amp_replay_size=4))
        assert hook(made, "style").components == ("position",)
        assert (made.data["expert"].shape, made.data["expert"].dtype) == ((5, 2), dtype)
        assert made.references["expert"]["path"] == f"{files}/{name}.npy"


def test_components_of_random_network_distillation(files):
    groups = {"actor": ["goal"]}
    assert hook(built(make(files, rnd_cfg={}, groups=groups)), "rnd").components == ("goal",)
    own = groups | {"rnd": ["position", "goal"]}
    assert hook(built(make(files, rnd_cfg={}, groups=own)), "rnd").components == ("position", "goal")
    assert built(make(files)).algorithm.reward_hooks == ()


def test_everything_at_once(files):
    values = tppo(
        files,
        "ATPPO",
        policy=AMP,
        groups={"amp": ["position"]},
        expert_file="HERE/pairs.npy",
        rnd_cfg={},
        schedule="fixed",
        lr_scheduler_class_name="StepLR",
        lr_scheduler={"step_size": 2, "gamma": 0.5},
        buffer_dilation_ratio=1.5,
        num_mini_batches=3,
    )
    made = built(values)
    checks.check_trains(from_dict(values)[0], made.algorithm.policy)
    assert made.algorithm.optimizers.keys() == {"policy", "discriminator", "rnd"}
    assert [hook.name for hook in made.algorithm.reward_hooks] == ["style", "rnd"]
    assert made.algorithm.act_hook.name == "teacher"
    assert made.data.keys() == made.references.keys() == {"teacher", "expert"}
    # 1e-3 is halved after 2 iterations
    assert [float(made.algorithm.rates["policy"](i)) for i in (1, 2)] == pytest.approx([1e-3, 5e-4])


@pytest.mark.parametrize("parts", [1, 2, 3, 6])
def test_minibatches_of_a_queue(parts, files):
    """4 devices have int(1.5 x 4) x 1 = 6 samples each."""
    config, _ = from_dict(tppo(files, buffer_dilation_ratio=1.5, num_mini_batches=parts))
    assert config.update_steps == 6
    checks.check_shards(config, 4)


def test_minibatches_of_a_queue_of_two_devices(files):
    """Each has int(1.25 x 4) x 2 = 10 samples: 4 minibatches fit the 20 of all, not those of one."""
    config, _ = from_dict(tppo(files, buffer_dilation_ratio=1.25, num_mini_batches=4))
    with pytest.raises(
        ConfigError, match=r"^algorithm\.num_mini_batches: 4 is not allowed; .* 10 samples .* 2 devices"
    ):
        checks.check_shards(config, 2)
    checks.check_shards(config, 1)


def test_data_that_changed(files, tmp_path):
    np.save(tmp_path / "expert.npy", np.zeros((5, 2)))
    path = str(tmp_path / "expert.npy")
    before = built(amp(files, expert_file=path)).references
    assert changed_data(before, built(amp(files, expert_file=path)).references) == []
    np.save(tmp_path / "expert.npy", np.ones((5, 2)))
    now = built(amp(files, expert_file=path)).references
    assert changed_data(before, now) == [f"expert: the numbers in {path} have changed since the run was saved"]
    assert changed_data({}, now) == changed_data(before, {}) == []


# Their runs as sources

ONE = make_mesh(jax.devices()[:1])


def everything(files, **changes) -> dict:
    """ATPPO with random network distillation, all statistics on."""
    given = {
        "policy": AMP,
        "groups": {"amp": ["position"], "actor": ["goal"]},
        "expert_file": "HERE/pairs.npy",
        "rnd_cfg": {"state_normalization": True, "predictor_hidden_dims": [3], "target_hidden_dims": [3]},
        "normalize_rewards": True,
    }
    return tppo(files, "ATPPO", **given | changes)


def random(tree, seed: int):
    """Numbers of their own in the place of every float, above 0: they may be variances."""
    leaves, form = jax.tree.flatten(tree)
    found = [0.1 + jnp.abs(normal(seed, i, x.shape)) if x.dtype == jnp.float32 else x for i, x in enumerate(leaves)]
    return jax.tree.unflatten(form, found)


@pytest.fixture(scope="module")
def source(files, tmp_path_factory):
    """A run of everything at once, with other numbers in ``last`` (seed 1) and in ``best`` (seed 2)."""
    folder = tmp_path_factory.mktemp("source")
    config, _ = from_dict(everything(files))
    runner = OnPolicyRunner(None, config, run_dir.create(folder / "run", config), mesh=ONE)
    fresh, runner.rollout_state = runner.fresh_states(False)
    for seed, kind in ((2, "best"), (1, "last")):
        runner.train_state = random(fresh, seed)
        runner.save(kind)
    runner.checkpointer.wait()
    yield runner
    runner.close()


@pytest.mark.parametrize("kind", ["last", "best"])
def test_weights_alone_are_all_networks_and_statistics(kind, source, files):
    runner = OnPolicyRunner(None, source.config, None, mesh=ONE)
    assert runner.load(source.log_dir, load_optimizer=False, kind=kind) == []
    saved = random(source.fresh_states(False)[0], {"last": 1, "best": 2}[kind])
    assert runner.train_state.params.keys() == {"policy", "discriminator", "rnd", "rnd_target"}
    assert runner.train_state.stats.keys() == {"actor", "critic", "reward", "amp", "rnd_state"}
    assert same(runner.train_state.params, saved.params)
    assert same(runner.train_state.stats, saved.stats)
    assert not same(runner.train_state.opt_state, saved.opt_state)
    obs = {"goal": normal(0, 0, (3, 1, 2))}
    if kind == "last":
        expected = source.get_inference_policy()(obs)
        np.testing.assert_array_equal(runner.get_inference_policy()(obs), expected)
        assert np.ptp(expected) > 1e-3
    runner.close()


def test_a_run_without_the_networks_does_not_fit(source, files):
    runner = OnPolicyRunner(None, from_dict(everything(files, rnd_cfg={"num_outputs": 2}))[0], None, mesh=ONE)
    with pytest.raises(CheckpointError, match=r"does not fit: .*rnd") as caught:
        runner.load(source.log_dir, load_optimizer=False)
    assert "\n" not in str(caught.value)
    runner.close()


def test_other_runs_start_from_its_policy(source, files):
    """Policy and statistics of its observations come over; what judges and what is curious starts anew."""
    start = {"runner": {"init_from": str(source.log_dir)}}
    groups = {"actor": ["goal"]}
    for values in (
        make(files, groups=groups, **start),
        everything(files, **start),
        tppo(files, groups=groups, **start),
    ):
        runner = OnPolicyRunner(None, values, None, mesh=ONE)
        loading.check_start(runner.config)
        fresh, _ = runner.fresh_states(False)
        lines = loading.start(runner, runner.config.runner.init_from, False)
        scaled = runner.config.algorithm.normalize_rewards
        assert lines == ([] if scaled else ["normalize_rewards: True in the checkpoint, False now"])
        state, saved = runner.train_state, random(source.fresh_states(False)[0], 2)  # the best
        assert same(state.params["policy"], saved.params["policy"])
        for group in ("actor", "critic"):
            assert same(state.stats[group], saved.stats[group])
        for group in state.params.keys() - {"policy"}:
            assert same(state.params[group], fresh.params[group])
        assert same(state.opt_state, fresh.opt_state)
        runner.close()


def test_it_is_exported(source, tmp_path, capsys):
    file = tmp_path / "policy.onnx"
    assert export.main([str(source.log_dir), "--onnx", str(file)]) == 0
    told = f"best checkpoint of iteration 0\n{file}: largest difference from the policy "
    assert capsys.readouterr().out.startswith(told)


def test_it_teaches(source, files):
    """The best policy of a run that had a teacher itself."""
    made = built(tppo(files, teacher={"teacher_ac_path": str(source.log_dir)}))
    saved = random(source.fresh_states(False)[0], 2)
    assert same(made.data["teacher"]["variables"], saved.params["policy"])
    assert made.data["teacher"]["stats"]["actor"].keys() == {"goal"}
    assert same(made.data["teacher"]["stats"]["actor"]["goal"], saved.stats["actor"]["goal"])
