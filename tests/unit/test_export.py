"""Exported policies act like the policy in this process, and the command writes whole files or none."""

import json
import re
import shutil
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
import saved_runs
from commands import fails
from deployables import ACTOR, POLICIES, exported, make_deployable
from tiny import make_state, normal

from strl_jax.builders import environment
from strl_jax.interop import deploy, export, stablehlo
from strl_jax.interop.deploy import DeployError
from strl_jax.interop.onnx import model as onnx_model
from strl_jax.modules.mlp import ACTIVATIONS, TORCH_ACTIVATIONS
from strl_jax.modules.stages import MemoryStage
from strl_jax.run_folder import run_dir
from strl_jax.run_folder.checkpoints import Checkpointer


@pytest.mark.parametrize("name", POLICIES)
def test_exported_policy_acts_like_the_policy(name, tmp_path, monkeypatch):
    monkeypatch.setattr(deploy, "BATCHES", (3,))
    deployable = make_deployable(**POLICIES[name])
    for form, step in exported(deployable, tmp_path).items():
        assert 0 <= deploy.largest_difference(deployable, step) <= 1e-5, form


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS | TORCH_ACTIVATIONS))
def test_activation_in_onnx(activation, tmp_path, monkeypatch):
    monkeypatch.setattr(deploy, "BATCHES", (8,))
    deployable = make_deployable(activation=activation)
    (tmp_path / "policy.onnx").write_bytes(onnx_model.dump(deployable, {}))
    assert 0 <= deploy.largest_difference(deployable, onnx_model.load(tmp_path / "policy.onnx")) <= 1e-5


def test_deployed_function_is_the_policy():
    """Normalised by hand, with the critic's memory and resets as in training."""
    deployable = make_deployable(memory=MemoryStage("gru", 5, 2))
    algorithm, policy = deployable.algorithm, deployable.algorithm.policy
    obs = {name: 2 * normal(5, i, (4, *shape)) for i, (name, shape) in enumerate(deployable.observations.items())}
    hidden = normal(6, 0, (4, 2, 5))
    stats, eps = deployable.stats["actor"], algorithm.config.normalization_eps
    parts = [
        np.reshape((obs[name] - stats[name].mean) / (np.sqrt(stats[name].var) + eps), (4, -1)) for name in ACTOR.names
    ]
    carry = {"actor": {"hidden": hidden}, "critic": {"hidden": normal(6, 1, (4, 2, 5))}}
    groups = {"actor": jnp.concatenate(parts, axis=-1)}
    act = jax.jit(partial(policy.apply, method="act"))
    mean, _, end = act(deployable.variables, groups, carry, jnp.zeros(4, bool))
    found = jax.jit(deployable)(obs | {"carry.actor.hidden": hidden})
    assert list(found) == ["action", "carry.actor.hidden"]
    np.testing.assert_allclose(found["action"], mean, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found["carry.actor.hidden"], end["actor"]["hidden"], rtol=1e-5, atol=1e-5)


def test_names_shapes_and_what_is_not_read():
    deployable = make_deployable(**POLICIES["estimator with memory"])
    # The adaptor replaces nothing, so its memory does not reach the action; velocity is estimated from the rest.
    assert deployable.carry == {"carry.actor.hidden": (2, 5), "carry.estimator.hidden": (2, 5)}
    assert list(deployable.inputs) == ["velocity", "action", "height", "image", *deployable.carry]
    assert deployable.outputs == {"action": (3,)} | deployable.carry
    assert deployable.unread == ("velocity",)
    assert make_deployable().unread == ()
    step = jax.jit(deployable)
    inputs = {name: normal(7, i, (2, *shape)) for i, (name, shape) in enumerate(deployable.inputs.items())}
    np.testing.assert_array_equal(step(inputs)["action"], step(inputs | {"velocity": jnp.ones((2, 2))})["action"])


def test_onnx_model_describes_itself(tmp_path):
    (tmp_path / "policy.onnx").write_bytes(onnx_model.dump(make_deployable(**POLICIES["lstm"]), {"dt": 0.02}))
    session = onnxruntime.InferenceSession(str(tmp_path / "policy.onnx"))
    shapes = {value.name: value.shape for value in [*session.get_inputs(), *session.get_outputs()]}
    assert shapes == {
        "velocity": ["batch", 2],
        "action": ["batch", 3],
        "height": ["batch"],
        "image": ["batch", 1, 6, 5],
        "carry.actor.cell": ["batch", 2, 5],
        "carry.actor.hidden": ["batch", 2, 5],
        "next.action": ["batch", 3],
        "next.carry.actor.cell": ["batch", 2, 5],
        "next.carry.actor.hidden": ["batch", 2, 5],
    }
    about = json.loads(session.get_modelmeta().custom_metadata_map["strl_jax"])
    outputs = ["next.action", "next.carry.actor.cell", "next.carry.actor.hidden"]
    assert about == {"dt": 0.02, "outputs": outputs}


def test_a_different_policy_is_detected():
    deployable = make_deployable()
    step = jax.jit(deployable)
    values = {name: np.zeros((2, *shape), np.float32) for name, shape in deployable.inputs.items()}
    assert step(values)["action"].shape == (2, 3)
    assert deploy.check(deployable, step, "policy.onnx") == 0.0
    with pytest.raises(DeployError, match=r"^policy\.onnx: differs from the policy by 0.*, more than 1e-05"):
        deploy.check(deployable, lambda values: {"action": step(values)["action"] * 1.001}, "policy.onnx")
    with pytest.raises(DeployError, match="differs from the policy by nan"):
        deploy.check(deployable, lambda values: {"action": step(values)["action"] * np.nan}, "policy.onnx")


def test_operation_without_onnx_operator_is_refused(monkeypatch):
    monkeypatch.setitem(ACTIVATIONS, "elu", jnp.sin)
    with pytest.raises(DeployError, match=r"the policy's operation sin on shapes .* cannot be exported to ONNX"):
        onnx_model.dump(make_deployable(), {})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder of a recurrent policy with a ``last`` and a ``best`` checkpoint of other weights."""
    return saved_runs.recurrent(tmp_path_factory.mktemp("run"), ("last", "best"))


@pytest.mark.parametrize(("asked", "kind", "seed"), [(["--checkpoint", "last"], "last", 0), ([], "best", 1)])
def test_command(asked, kind, seed, run, tmp_path, capsys):
    onnx, binary = tmp_path / "policy.onnx", tmp_path / "policy.bin"
    assert export.main([str(run), "--onnx", str(onnx), "--stablehlo", str(binary), *asked]) == 0
    captured = capsys.readouterr()
    first, *lines = captured.out.splitlines()
    assert (first, captured.err) == (f"{kind} checkpoint of iteration {10 + seed}", "")
    assert [re.sub(r"\S+$", "", line) for line in lines] == [
        f"{path}: largest difference from the policy " for path in (onnx, binary)
    ]
    assert all(0 <= float(line.split()[-1]) <= 1e-5 for line in lines)
    assert {path.name for path in tmp_path.iterdir()} == {"policy.onnx", "policy.bin", "policy.bin.json"}

    about = json.loads((tmp_path / "policy.bin.json").read_text())
    assert about["observations"] == [{"name": "position", "shape": [1]}, {"name": "goal", "shape": [1, 2]}]
    assert about["carry"] == [{"name": "carry.actor.hidden", "shape": [1, 4]}]
    assert about["outputs"] == ["action", "carry.actor.hidden"]
    names = ("action_size", "dt", "env", "policy", "iteration", "checkpoint", "unread")
    assert [about[n] for n in names] == [1, 0.5, "commands:Walk", "ActorCriticRecurrent", 10 + seed, kind, []]
    assert about["exported_with"]["jax"] == about["trained_with"]["jax"] == jax.__version__
    session = onnxruntime.InferenceSession(str(onnx))
    same = json.loads(session.get_modelmeta().custom_metadata_map["strl_jax"])
    assert same == about | {"outputs": ["action", "next.carry.actor.hidden"]}

    config = run_dir.read_config(run)[0]
    deployable, _ = export.read(Checkpointer(run), [(kind, 10 + seed)], config, environment.make_env(config.env))
    expected = make_state(deployable.algorithm, seed).params["policy"]
    jax.tree.map(np.testing.assert_array_equal, deployable.variables, expected)
    for step in (onnx_model.load(onnx), stablehlo.load(binary)):
        assert deploy.check(deployable, step, "") <= 1e-5


FAULTS = {
    "no output": ([], r"--onnx FILE or --stablehlo FILE is needed, or both"),
    "unknown kind": (["--onnx", "{out}/p", "--checkpoint", "newest"], r"--checkpoint: invalid choice: 'newest'"),
    "no such checkpoint": (
        ["--onnx", "{out}/p", "--checkpoint", "numbered"],
        r"run\d*: no numbered checkpoint; existing checkpoints: best 11; last 10$",
    ),
    "no such iteration": (
        ["--onnx", "{out}/p", "--iteration", "12"],
        r"run\d*: no checkpoint of iteration 12; existing checkpoints: best 11; last 10$",
    ),
    "no folder": (["--onnx", "{out}/no/p"], r"/no/p: cannot be written: there is no folder .*/no"),
    "a folder": (["--stablehlo", "{out}"], r"cannot be written: it is a folder"),
    "the run's config": (["--onnx", "{run}/config.yaml"], r"config\.yaml: cannot be written: it is a file of the run"),
    "its description": (["--stablehlo", "{run}/config"], r"config\.json: cannot be written: it is a file of the run"),
    "its checkpoints": (["--onnx", "{run}/checkpoints/p"], r"/p: cannot be written: it is a file of the run"),
    "one file twice": (["--onnx", "{out}/p", "--stablehlo", "{out}/p"], r"name the same file"),
}


@pytest.fixture
def out(tmp_path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_one_line(fault, run, out, capsys):
    arguments, expected = FAULTS[fault]
    filled = [argument.format(out=out, run=run) for argument in arguments]
    assert re.search(expected, fails(capsys, export.main, run, *filled))
    assert list(out.iterdir()) == []


def test_folder_that_is_no_run(out, capsys):
    assert fails(capsys, export.main, out, "--onnx", out / "p") == f"{out} is not a run folder: it has no config.yaml"


def test_packages_that_are_missing(run, out, capsys, monkeypatch):
    monkeypatch.delitem(sys.modules, "strl_jax.interop.onnx.model")
    for option, package in {"--onnx": "onnxruntime", "--stablehlo": "flatbuffers"}.items():
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)  # what Python does for a package that cannot be imported
            line = fails(capsys, export.main, run, option, out / "p")
        assert line == f"{option} needs the package {package}: pip install 'strl_jax[onnx]'"
    assert list(out.iterdir()) == []


def test_nothing_is_written_if_one_of_two_differs(run, out, capsys, monkeypatch):
    monkeypatch.setattr(deploy, "STEPS", 1)
    good = stablehlo.load

    def load(path):
        return lambda values: {name: x + 0.001 for name, x in good(path)(values).items()}

    monkeypatch.setattr(stablehlo, "load", load)
    (out / "p.onnx").write_text("as it was")
    line = fails(capsys, export.main, run, "--onnx", out / "p.onnx", "--stablehlo", out / "p.bin")
    assert re.search(r"p\.bin: differs from the policy by 0\.001, more than 1e-05; not written", line)
    assert [path.name for path in out.iterdir()] == ["p.onnx"]
    assert (out / "p.onnx").read_text() == "as it was"


def test_a_file_that_cannot_be_written(run, out, capsys):
    (out / ".p.bin.json.new").mkdir()  # a folder in the place of the temporary file
    line = fails(capsys, export.main, run, "--onnx", out / "p.onnx", "--stablehlo", out / "p.bin")
    assert re.search(r"p\.bin\.json\S*: Is a directory", line)
    assert [path.name for path in out.iterdir()] == [".p.bin.json.new"]


def test_a_damaged_checkpoint_is_passed_over_with_one_line(run, out, tmp_path, capsys):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    damaged = copy / "checkpoints" / "best" / "12"
    damaged.mkdir()
    shutil.rmtree(copy / "checkpoints" / "best" / "11")
    assert export.main([str(copy), "--stablehlo", str(out / "p")]) == 0
    captured = capsys.readouterr()
    assert captured.err == f"warning: {damaged}: damaged: record/metadata is missing; skipped\n"
    assert captured.out.splitlines()[0] == "last checkpoint of iteration 10"
    about = json.loads((out / "p.json").read_text())
    assert (about["checkpoint"], about["iteration"]) == ("last", 10)
    damaged.rmdir()
    assert export.main([str(copy), "--stablehlo", str(out / "p"), "--iteration", "10"]) == 0
    assert capsys.readouterr().err == ""
    assert export.main([str(copy), "--stablehlo", str(out / "p")]) == 0
    assert capsys.readouterr().err == "note: there is no best checkpoint; this is the last one\n"
