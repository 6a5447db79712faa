"""A quadruped trains the way a user trains it."""

import json
import math

import jax
import numpy as np
import pytest
from commands import log

from strl_jax.config import from_dict
from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.sharding import make_mesh

ITERATIONS = 20
STEPS = 8


def config(**kwargs) -> dict:
    return {
        "env": {"name": "legged:flat", "num_envs": 16, "kwargs": kwargs},
        "policy": {"actor_hidden_dims": [16], "critic_hidden_dims": [16]},
        "algorithm": {"num_learning_epochs": 2, "num_mini_batches": 2, "schedule": "adaptive"},
        "runner": {"num_steps_per_env": STEPS, "logger": "none", "time_split": False},
    }


def trained(config: dict, iterations: int, folder) -> tuple[OnPolicyRunner, list[dict]]:
    """The runner after so many iterations, and its log."""
    runner = OnPolicyRunner(None, from_dict(config)[0], folder, mesh=make_mesh(jax.devices()[:1]))
    runner.learn(iterations)
    runner.close()
    return runner, log(folder)


def test_twenty_iterations_of_sixteen_robots(tmp_path):
    short = {"episode_length_s": 1.0}  # 50 steps: with random ages, episodes end in every iteration
    runner, lines = trained(config(episode=short, sim={"iterations": 1, "ls_iterations": 5}), ITERATIONS, tmp_path)
    assert [line["iteration"] for line in lines] == list(range(1, ITERATIONS + 1))
    assert all(line["Train/invalid_steps"] == 0 for line in lines)
    assert all(line["Loss/skipped_updates"] == 0 for line in lines)
    # 16 robots x 160 steps, each of whose episodes has 50 steps or fewer: at least 3 whole ones of each.
    assert sum(line["Train/finished_episodes"] for line in lines) >= 16 * 3
    assert 0 < lines[-1]["Train/mean_episode_length"] <= 50
    terms = {name for name in lines[-1] if name.startswith("Episode_Reward/")}
    assert {"Episode_Reward/reward_tracking_lin_vel", "Episode_Reward/reward_torques"} <= terms
    assert all(math.isfinite(lines[-1][name]) for name in terms)
    leaves = jax.tree.leaves(runner.train_state.params)
    assert all(np.isfinite(leaf).all() for leaf in leaves)

    saved = json.loads((tmp_path / "config.json").read_text())
    assert saved["env"]["kwargs"]["control"]["damping"] == 0.5  # a default, kept
    assert saved["control"] == {"action_scale": 0.25}  # what a mutex policy reads of its sub-policies
    assert saved["normalization"] == {"obs_scales": {"lin_vel": 2.0}}


@pytest.mark.slow
def test_a_simulator_that_breaks_does_not_poison_the_run(tmp_path):
    """Huge torques at a coarse step give NaN in some robots: these steps are counted, all else goes on."""
    wild = config(
        sim={"dt": 0.02},
        control={"decimation": 1, "action_scale": 100.0, "stiffness": 1e5},
        robot={"torque_limit": 1e6},
        episode={"max_tilt": None},
    )
    runner, lines = trained(wild, 5, tmp_path)
    broken = sum(line["Train/invalid_steps"] for line in lines)
    assert 0 < broken < 5 * STEPS * 16
    assert all(
        np.isfinite(leaf).all() for leaf in jax.tree.leaves((runner.train_state.params, runner.train_state.stats))
    )
    assert all(math.isfinite(line["Loss/value_loss"]) for line in lines)
