"""A student with an LSTM that sees an inverted pendulum's positions learns from a teacher that sees velocities too.

The configs are those of experiments/. Counted are environment steps until an evaluation, one after
every iteration of 8192 steps, reaches 95 % of the teacher's return.
"""

from pathlib import Path

import jax
import pytest

from strl_jax import config as config_module
from strl_jax.algorithms.tppo import TeacherFields
from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.sharding import make_mesh

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
QUIET = ["runner.logger=none", "runner.time_split=false", "runner.eval_interval=1"]
# What PPO needs besides; the same with and without a teacher.
PPO = [
    "algorithm.schedule={name: linear, init_value: 2e-3, end_value: 1e-4, transition_steps: 180}",
    "algorithm.normalize_rewards=true",
    "algorithm.use_clipped_value_loss=false",
    "algorithm.lam=0.95",
]
SEEDS = (1, 2, 3)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """The teacher's run folder, and the return of its best evaluation."""
    path = tmp_path_factory.mktemp("teacher") / "run"
    settings = ["runner.logger=none", "runner.time_split=false", "runner.eval_interval=50"]
    config, _ = config_module.load(EXPERIMENTS / "pendulum_teacher.yaml", settings)
    runner = OnPolicyRunner(None, config, path, mesh=make_mesh(jax.devices()[:1]))
    runner.learn(config.runner.max_iterations)
    runner.close()
    assert runner.progress.best_score > 900
    return path, runner.progress.best_score


def student(path, seed: int, *overrides: str):
    """The student's config, taught by the run in ``path``."""
    settings = [f"seed={seed}", f"algorithm.teacher_policy.teacher_ac_path={path}", *QUIET, *overrides]
    return config_module.load(EXPERIMENTS / "pendulum_student.yaml", settings)[0]


def without_teacher(config):
    """The same student under PPO alone."""
    data = config_module.to_dict(config)
    data["runner"]["algorithm_class_name"] = "PPO"
    data["algorithm"] = {k: v for k, v in data["algorithm"].items() if k not in TeacherFields.model_fields}
    return config_module.from_dict(data)[0]


def steps_until(config, wanted: float, most: int) -> int | None:
    """Environment steps until an evaluation reaches ``wanted``; None if ``most`` iterations do not."""
    runner = OnPolicyRunner(None, config, mesh=make_mesh(jax.devices()[:1]))
    try:
        for _ in range(most):
            runner.learn(1)
            if runner.progress.evaluation["Eval/mean_return"] >= wanted:
                return runner.progress.env_steps
        return None
    finally:
        runner.close()


@pytest.mark.slow
def test_dagger_reaches_the_teacher(teacher):
    path, best = teacher
    assert steps_until(student(path, 1), 0.95 * best, 60) is not None


@pytest.mark.slow
def test_a_teacher_saves_steps(teacher):
    path, best = teacher
    for seed in SEEDS:
        guided = student(path, seed, "algorithm.using_ppo=true", *PPO)
        taught = steps_until(guided, 0.95 * best, 60)
        alone = steps_until(without_teacher(guided), 0.95 * best, 60)
        print(f"seed {seed}: {taught} steps with the teacher, {alone} without")
        assert taught is not None
        assert alone is None or taught < alone
