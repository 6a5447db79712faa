"""A mutex policy over two quadrupeds with action scales of their own, as the README shows it."""

import math
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from strl_jax.config import from_dict
from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.sharding import make_mesh

ROOT = Path(__file__).parents[2]
GROUPS = {"actor": ["proprioception", "engaging_block"]}
LAST_ACTION = slice(36, 48)
BLOCK = 48 + 1 + 3  # after proprioception: the distance, then the flags of the ids 0 to 4


def trained(name: str, action_scale: float) -> OnPolicyRunner:
    """The runner of a run in logs/, after two iterations."""
    settings = {
        "env": {
            "name": "legged:rough",
            "num_envs": 4,
            "groups": GROUPS,
            "kwargs": {"control": {"action_scale": action_scale}},
        },
        "policy": {"actor_hidden_dims": [8], "critic_hidden_dims": [8]},
        "algorithm": {"num_learning_epochs": 1, "num_mini_batches": 2},
        "runner": {"num_steps_per_env": 2, "logger": "none", "time_split": False},
    }
    runner = OnPolicyRunner(None, from_dict(settings)[0], Path("logs") / name, mesh=make_mesh(jax.devices()[:1]))
    runner.learn(2)
    runner.close()
    return runner


@pytest.mark.slow
def test_the_example_acts_as_the_selected_robot(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    walk, leap = (trained(name, scale).get_inference_policy() for name, scale in (("walk", 0.25), ("leap", 0.5)))
    (example,) = re.findall(
        r"^```python\n(from [^`]*sub_policy_paths.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    capsys.readouterr()
    names = {}
    exec(compile(example.replace('"num_envs": 16,', '"num_envs": 16, "episode_length": 20,'), "README", "exec"), names)
    assert 0 <= float(capsys.readouterr().out.strip().splitlines()[-1]) <= 1
    result = names["runner"].evaluation()
    assert result["Eval/max_length"] <= 20
    assert all(math.isfinite(value) for value in result.values())

    obs = np.random.default_rng(0).normal(size=(2, 56)).astype(np.float32)
    obs[:, 48:] = 0
    obs[1, BLOCK] = 1.0  # the second robot stands before a block
    actions = names["policy"](jnp.asarray(obs))
    # The environment's actions are of 0.25 rad, those of leap of 0.5.
    np.testing.assert_allclose(actions[0], walk(jnp.asarray(obs))[0], rtol=1e-5, atol=1e-6)
    obs[1, LAST_ACTION] *= 0.25 / 0.5
    np.testing.assert_allclose(actions[1], leap(jnp.asarray(obs))[1] * 0.5 / 0.25, rtol=1e-5, atol=1e-6)
