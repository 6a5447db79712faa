"""Checkpoints of real rsl_rl runners with recorded outputs (``data/rsl_rl``), and the configs that fit them."""

from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from strl_jax.envs.base import Env
from strl_jax.types import EnvState

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
    "reward_normalization": "discounted",
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
