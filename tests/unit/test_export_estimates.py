"""Exports whose outputs include the estimates: which, in which units, and what the command says."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
import saved_runs
from commands import fails, settings
from deployables import CRITIC, POLICIES, exported, make_deployable
from tiny import normal

from strl_jax.interop import deploy, export, stablehlo
from strl_jax.interop.deploy import Deployable, DeployError
from strl_jax.modules.stages import EstimatorStage

# The targets are neither in the order of the groups nor of the alphabet.
BOTH = {"estimator": EstimatorStage(("action", "height"), ("load", "velocity"), (4,))}
VELOCITY, LOAD = {"estimates.estimator.velocity": (2,)}, {"estimates.adaptor.load": (2, 2)}
OUTPUTS = {
    "encoder, estimator, adaptor": VELOCITY | LOAD,
    "estimator with memory": VELOCITY | LOAD,
    "estimator on the actor's memory": {"estimates.estimator.load": (2, 2)},
    "both": {"estimates.estimator.load": (2, 2)} | VELOCITY,
}


def inputs(deployable: Deployable, seed: int = 3) -> dict:
    return {name: normal(seed, i, (4, *shape)) for i, (name, shape) in enumerate(deployable.inputs.items())}


@pytest.mark.parametrize("name", OUTPUTS)
def test_exported_estimates_are_those_of_the_policy(name, tmp_path, monkeypatch):
    monkeypatch.setattr(deploy, "BATCHES", (3,))
    deployable = make_deployable(estimates=True, **(POLICIES | {"both": BOTH})[name])
    estimates = {key: shape for key, shape in deployable.outputs.items() if key.startswith("estimates.")}
    assert estimates == deployable.estimated == OUTPUTS[name]
    for form, step in exported(deployable, tmp_path).items():
        assert 0 <= deploy.largest_difference(deployable, step) <= 1e-5, form
        values = {key: np.asarray(value) for key, value in inputs(deployable).items()}
        assert {key: value.shape[1:] for key, value in step(values).items()} == deployable.outputs


def test_estimates_are_in_the_units_of_the_observation():
    deployable = make_deployable(estimates=True, **BOTH)
    algorithm, obs = deployable.algorithm, inputs(deployable)
    groups = algorithm.pack(deployable.stats, obs, ("actor",)) | {"critic": jnp.zeros((4, CRITIC.size))}
    raw = algorithm.policy.apply(deployable.variables, groups, {}, jnp.zeros(4, bool)).estimates["estimator"]
    outputs = jax.jit(deployable)(obs)
    # velocity is first: the actor has it too
    for name, part in {"velocity": raw[:, :2], "load": raw[:, 2:].reshape(4, 2, 2)}.items():
        moments = deployable.stats["critic"][name]
        expected = part * (np.sqrt(moments.var) + algorithm.config.normalization_eps) + moments.mean
        np.testing.assert_allclose(outputs[f"estimates.estimator.{name}"], expected, rtol=1e-5, atol=1e-5)
        assert np.abs(expected - part).max() > 0.1


def test_estimates_change_no_action_and_bring_their_memories():
    plain, whole = (make_deployable(estimates=flag, **POLICIES["estimator with memory"]) for flag in (False, True))
    assert whole.carry.keys() - plain.carry.keys() == {"carry.adaptor.hidden"}
    assert (plain.unread, whole.unread) == (("velocity",), ())  # the adaptor reads it, and replaces nothing
    values = inputs(whole)
    results = jax.jit(whole)(values)
    expected = jax.jit(plain)({name: values[name] for name in plain.inputs})
    for name in plain.outputs:
        np.testing.assert_allclose(results[name], expected[name], rtol=1e-6, atol=1e-6, err_msg=name)


def test_a_different_estimate_is_detected():
    deployable = make_deployable(estimates=True, **BOTH)
    step = jax.jit(deployable)

    def other(values):
        outputs = step(values)
        return outputs | {"estimates.estimator.load": outputs["estimates.estimator.load"] * 1.001}

    assert deploy.check(deployable, step, "policy.onnx") == 0.0
    with pytest.raises(DeployError, match=r"^policy\.onnx: differs from the policy by 0\."):
        deploy.check(deployable, other, "policy.onnx")


def test_command(tmp_path, capsys):
    (tmp_path / "run").mkdir()
    data = settings(tmp_path / "run")
    data["policy"] |= {
        "class_name": "StateAc",
        "estimator_obs_components": ["position"],
        "estimator_target_components": ["goal"],
        "estimator_kwargs": {"hidden_sizes": [3]},
    }
    data["algorithm"]["class_name"] = "EstimatorPPO"
    run = saved_runs.write(tmp_path / "run", ("last",), data)
    onnx, binary = tmp_path / "policy.onnx", tmp_path / "policy.bin"
    for option, outputs in (["--estimates"], ["action", "estimates.estimator.goal"]), ([], ["action"]):
        arguments = [str(run), "--onnx", str(onnx), "--stablehlo", str(binary), "--checkpoint", "last", *option]
        assert export.main(arguments) == 0
        about = json.loads((tmp_path / "policy.bin.json").read_text())
        session = onnxruntime.InferenceSession(str(onnx))
        assert about["outputs"] == [value.name for value in session.get_outputs()] == outputs
        assert [estimate["name"] for estimate in about["estimates"]] == outputs[1:]
        obs = {name: np.asarray(normal(1, i, (2, *shape))) for i, (name, shape) in enumerate(WALK.items())}
        result = stablehlo.load(binary)(obs)
        assert {name: value.shape for name, value in result.items()} == {name: SHAPES[name] for name in outputs}
    assert capsys.readouterr().err == ""


WALK = {"position": (1,), "goal": (1, 2)}
SHAPES = {"action": (2, 1), "estimates.estimator.goal": (2, 1, 2)}


def test_a_policy_without_estimates_is_refused(tmp_path, capsys):
    (tmp_path / "run").mkdir()
    run = saved_runs.recurrent(tmp_path / "run", ("last",))
    line = fails(capsys, export.main, run, "--onnx", tmp_path / "p", "--checkpoint", "last", "--estimates")
    assert line.startswith("--estimates: ")
    assert "estimator" in line
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
