"""Distillations of real runners of rsl_rl: the student becomes the actor, the teacher teaches in TPPO."""

import numpy as np
import pytest
from commands import log, write
from rsl_rl_files import EXACT, FOLDER, LARGE, check_continues, observations, outputs, read, recorded, resets, settings

from strl_jax import train
from strl_jax.builders.algorithm import assemble
from strl_jax.builders.environment import make_env
from strl_jax.config import from_dict
from strl_jax.torch_files.file import load_torch

STUDENTS = ["2_student", "3_student", "3_student_gru", "4_student", "4_student_gru", "5_student", "5_student_gru"]


@pytest.mark.parametrize("name", STUDENTS)
def test_a_student_becomes_the_actor(name, tmp_path):
    parts, lines, runner = read(name, tmp_path)
    arrays = recorded(name)
    mean, _, _ = outputs(parts, runner, arrays, method="act")
    np.testing.assert_allclose(mean, arrays["actions"], **EXACT)
    assert not any(key.endswith("critic") for key in parts["params"]["policy"]["params"])
    assert "log_std" in parts["params"]["policy"]["params"]
    assert parts["stats"].keys() == {"actor"}
    assert parts["opt_state"] == {}
    assert parts["learning_rate"]["policy"] == np.float32(1e-3)
    (line,) = [line for line in lines if line.startswith("distillation: ")]
    assert all(word in line for word in ("student", "actor", "critic", "optimizer", "fresh"))


def test_a_student_without_a_standard_deviation(tmp_path):
    file = load_torch(FOLDER / "rsl_rl_5_student.pt")
    del file["student_state_dict"]["distribution.std_param"]
    parts, lines, _ = read("5_student", tmp_path, file)
    assert "log_std" not in parts["params"]["policy"]["params"]
    assert "policy.init_noise_std" in lines[0]


def teaching(name: str, tmp_path, **algorithm) -> dict:
    """The config of TPPO with the teacher of a distillation."""
    values = settings(name, tmp_path, class_name="TPPO", **algorithm)
    values["env"]["groups"]["teacher"] = LARGE
    policy = values["policy"] | {"actor_hidden_dims": [4]}
    values["algorithm"]["teacher_policy"] = policy | {"teacher_ac_path": str(FOLDER / f"rsl_rl_{name}.pt")}
    return values


@pytest.mark.parametrize("name", STUDENTS)
def test_a_teacher_teaches(name, tmp_path):
    config, _ = from_dict(teaching(name, tmp_path))
    made, arrays = assemble(config, make_env(config.env)), recorded(name)
    teacher, data = made.algorithm.act_hook.teacher, made.data["teacher"]
    groups, reset = teacher.pack({"teacher": data}, observations(arrays)), resets(arrays)
    carry = teacher.policy.initial_carry(reset.shape[1])
    mean, _, _ = teacher.policy.apply(data["variables"], groups, carry, reset, method="act")
    np.testing.assert_allclose(mean, arrays["second"], **EXACT)


def test_a_teacher_without_a_standard_deviation(tmp_path):
    """Up to version 3, the only standard deviation of the file is the student's."""
    for change in ({"distill_target": "kl"}, {"action_labels_from_sample": True}):
        config, _ = from_dict(teaching("3_student", tmp_path, **change))
        with pytest.raises(ValueError, match=r"teacher_ac_path: .*rsl_rl_3_student\.pt: it has no std") as caught:
            assemble(config, make_env(config.env))
        assert "kl" in str(caught.value)
    config, _ = from_dict(teaching("5_student", tmp_path, distill_target="kl"))
    std = assemble(config, make_env(config.env)).data["teacher"]["variables"]["params"]["std"]
    file = load_torch(FOLDER / "rsl_rl_5_student.pt")["teacher_state_dict"]
    np.testing.assert_array_equal(std, file["distribution.std_param"])


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDENTS)
def test_training_of_a_student_continues(name, tmp_path):
    check_continues(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["3_student_gru", "5_student"])
def test_a_student_is_trained(name, tmp_path):
    config = write(tmp_path / "config.yaml", teaching(name, tmp_path))
    arguments = ["--config", str(config), "--log-dir", str(tmp_path / "run"), "runner.max_iterations=1"]
    assert train.main(arguments) == 0
    (line,) = log(tmp_path / "run")
    assert line["Loss/distillation_loss"] > 0
