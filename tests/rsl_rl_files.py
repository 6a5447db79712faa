"""Checkpoints of real rsl_rl runners with recorded outputs (``data/rsl_rl``), and the configs that fit them."""

from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from commands import log, write

from strl_jax import train
from strl_jax.builders import torch_state
from strl_jax.config import from_dict
from strl_jax.envs.base import Env
from strl_jax.interop import torch_checkpoint
from strl_jax.run_folder import run_dir
from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.torch_files.file import load_torch
from strl_jax.types import EnvState

EXACT = {"rtol": 0, "atol": 1e-6}
FOLDER = Path(__file__).parent / "data" / "rsl_rl"
SMALL, LARGE = ["proprio", "command"], ["command", "privileged", "proprio"]
LSTM = {"class_name": "ActorCriticRecurrent", "rnn_type": "lstm", "rnn_hidden_size": 4, "rnn_num_layers": 2}
GRU = {"class_name": "ActorCriticRecurrent", "rnn_type": "gru", "rnn_hidden_size": 5, "rnn_num_layers": 1}
RND = {
    "num_outputs": 2,
    "predictor_hidden_dims": [5],
    "target_hidden_dims": [3, 4],
    "learning_rate": 5e-4,
    "state_normalization": True,
    "reward_normalization": True,
    "weight": 2.0,
    "rsl_rl": True,
}
# Variant -> policy, whether the observations are normalised, the critic's components, and RND.
VARIANTS = {
    "mlp": ({}, True, LARGE, None),
    "lstm": (LSTM, True, LARGE, None),
    "gru": (GRU, True, SMALL, None),
    "rnd": ({}, False, SMALL, RND),
    "heteroscedastic": ({}, False, SMALL, None),
    "student": ({}, True, LARGE, None),
    "student_gru": (GRU, True, LARGE, None),
}


@dataclass(frozen=True)
class Noise(Env):
    """The observations of the recorded runs, as noise; the reward is 0."""

    observation_shapes = {"proprio": (3,), "command": (2,), "privileged": (4,)}  # noqa: RUF012 (read only)
    action_size = 2
    dt = 0.1
    episode_length = 5

    def reset(self, key):
        return self._state(key)

    def step(self, state, action):
        return self._state(jax.vmap(lambda key: jax.random.split(key)[0])(state.physics))

    def _state(self, key):
        sizes = {name: shape[0] for name, shape in self.observation_shapes.items()}
        flat = jax.vmap(lambda key: jax.random.normal(key, (sum(sizes.values()),)))(key)
        parts = jnp.split(flat, np.cumsum([*sizes.values()])[:-1], axis=1)
        no, zero = jnp.zeros(len(flat), bool), jnp.zeros(len(flat))
        return EnvState(key, dict(zip(sizes, parts, strict=True)), zero, no, no, {}, {})


def settings(name: str, log_root: Path, **algorithm) -> dict:
    """The config for the file ``rsl_rl_NAME.pt``."""
    policy, normalized, critic, rnd = VARIANTS[name.split("_", 1)[1]]
    return {
        "env": {
            "name": "rsl_rl_files:Noise",
            "num_envs": 4,
            "groups": {"actor": SMALL, "critic": critic, "rnd": ["privileged"]},
        },
        "policy": {"actor_hidden_dims": [6, 5], "critic_hidden_dims": [4], "activation": "elu", **policy},
        "algorithm": {"schedule": "adaptive", "empirical_normalization": normalized, "rnd_cfg": rnd, **algorithm},
        "runner": {
            "num_steps_per_env": 4,
            "num_eval_envs": 4,
            "log_root": str(log_root),
            "logger": "none",
            "time_split": False,
        },
    }


def recorded(name: str) -> dict[str, np.ndarray]:
    """The arrays of ``rsl_rl_NAME.npz``."""
    with np.load(FOLDER / f"rsl_rl_{name}.npz") as arrays:
        return dict(arrays)


def observations(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Component -> observations ``[T, B, ...]``."""
    return {name: arrays[f"obs/{name}"] for name in Noise.observation_shapes}


def resets(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """Bool ``[T, B]``: the memory is cleared before this step."""
    dones = arrays["dones"]
    return np.concatenate([np.ones_like(dones[:1]), dones[:-1]])


def read(name: str, tmp_path, file: dict | None = None, **algorithm):
    """The parts of a file, the notes, and the runner."""
    runner = OnPolicyRunner(None, from_dict(settings(name, tmp_path, **algorithm))[0])
    runner.close()
    file = load_torch(FOLDER / f"rsl_rl_{name}.pt") if file is None else file
    fresh = runner.programs.states[0]
    return *torch_state.read_parts(file, runner.algorithm, fresh, runner.steps_per_iteration), runner


def outputs(parts: dict, runner: OnPolicyRunner, arrays: dict, method: str | None = None):
    """Result of the policy on the recorded observations."""
    algorithm, reset = runner.algorithm, resets(arrays)
    names = ("actor",) if method == "act" else ("actor", "critic")
    groups = algorithm.pack(parts["stats"], observations(arrays), names)
    carry = algorithm.policy.initial_carry(reset.shape[1])
    return jax.jit(algorithm.policy.apply, static_argnames="method")(
        parts["params"]["policy"], groups, carry, reset, method=method
    )


def check_continues(name: str, tmp_path: Path) -> None:
    """The command makes a run folder with the weights of the file, and ``train`` resumes it for one iteration."""
    config = write(tmp_path / "config.yaml", settings(name, tmp_path / "logs"))
    file, out = FOLDER / f"rsl_rl_{name}.pt", tmp_path / "run"
    assert torch_checkpoint.main([str(file), "--config", str(config), "--out", str(out)]) == 0
    runner = OnPolicyRunner(None, run_dir.read_config(out)[0])
    runner.load(out)
    state = jax.device_get(runner.train_state)
    runner.close()
    parts, _, _ = read(name, tmp_path)
    for group, expected in parts["params"].items():
        for network, values in expected["params"].items():
            jax.tree.map(np.testing.assert_array_equal, state.params[group]["params"][network], values)
    start = int(state.iteration)
    assert start == recorded(name)["iteration"]
    assert train.main(["--resume", str(out), f"runner.max_iterations={start + 1}"]) == 0
    (line,) = log(out)
    assert line["iteration"] == start + 1
    assert all(np.isfinite(value) for key, value in line.items() if key.startswith("Loss/"))
