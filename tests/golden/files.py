"""Reads the golden files, and maps torch's weight names to the policy's variables and back."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from strl_jax.algorithms import ppo
from strl_jax.algorithms.base import Algorithm
from strl_jax.algorithms.compat import Compat
from strl_jax.modules.policy import Policy
from strl_jax.modules.stages import MemoryStage
from strl_jax.observations import Segments
from strl_jax.torch_files import names as torch_names

FOLDER = Path(__file__).parent
FLOAT32 = {"rtol": 1e-4, "atol": 2e-6}
FLOAT64 = {"rtol": 1e-6, "atol": 1e-9}


def precision_fixture(scope: str = "function", double_marks: tuple = ()):
    """A fixture that gives the prefix of the expected keys, dtype and tolerance, in float32 and in float64."""

    @pytest.fixture(scope=scope, params=["exp", pytest.param("exp64", marks=double_marks)], ids=["float32", "float64"])
    def precision(request):
        double = request.param == "exp64"
        with jax.enable_x64(double):
            yield (request.param, jnp.float64, FLOAT64) if double else (request.param, jnp.float32, FLOAT32)

    return precision


def paths(pattern: str) -> list[Path]:
    """Golden files of this name, at least one.

    Raises:
        FileNotFoundError: there is none; a test over no file would pass.
    """
    found = sorted(FOLDER.glob(pattern))
    if not found:
        raise FileNotFoundError(f"no golden file {pattern} in {FOLDER}")
    return found


class Golden:
    """One file: its ``config`` and its arrays by key."""

    def __init__(self, path: Path):
        with np.load(path) as arrays:
            self.arrays = {key: arrays[key] for key in arrays.files}
        self.config = json.loads(str(self.arrays.pop("config")))

    def __getitem__(self, key: str) -> np.ndarray:
        return self.arrays[key]

    def __contains__(self, key: str) -> bool:
        return key in self.arrays

    def flat(self, key: str, dtype=None) -> jnp.ndarray:
        """An array ``[..., 1]`` without its last axis."""
        return jnp.asarray(self[key][..., 0], dtype)

    def group(self, prefix: str) -> dict[str, np.ndarray]:
        """Every ``prefix/NAME`` as NAME -> array."""
        return {key[len(prefix) + 1 :]: value for key, value in self.arrays.items() if key.startswith(prefix + "/")}


def to_flax(weights: dict[str, np.ndarray], dtype=jnp.float32) -> dict:
    """Torch names to the policy's variables; every name must mean something."""
    return {"params": nested(by_path(weights, torch_names.paths(weights)), dtype)}


def by_path(weights: dict[str, np.ndarray], places: dict) -> dict[tuple[str, ...], np.ndarray]:
    """Torch weights in our layout by the path of their parameter; ``places`` is torch name -> path."""
    assert None not in places.values()
    return {path: torch_names.transposed(path, weights[name]) for name, path in places.items()}


def nested(by_path: dict[tuple[str, ...], np.ndarray], dtype) -> dict:
    """Path -> array as nested dicts."""
    tree: dict = {}
    for path, value in by_path.items():
        node = tree
        for part in path[:-1]:
            node = node.setdefault(part, {})
        node[path[-1]] = jnp.asarray(value, dtype)
    return tree


def to_torch(variables: dict) -> dict[str, np.ndarray]:
    """Inverse of ``to_flax``."""
    weights = {"std": np.asarray(variables["params"]["std"])}
    for network in ("actor", "critic"):
        for layer, arrays in variables["params"][network].items():
            index = 2 * int(layer.removeprefix("layer_"))
            weights[f"{network}.{index}.weight"] = np.asarray(arrays["kernel"]).T
            weights[f"{network}.{index}.bias"] = np.asarray(arrays["bias"])
    return weights


def segments(pairs: list) -> Segments:
    """Observation layout from a config's list of names and shapes."""
    return Segments(tuple(name for name, _ in pairs), tuple(tuple(shape) for _, shape in pairs))


def ppo_fields(config: dict) -> dict:
    """Fields of ``PPOConfig`` from a golden file's config."""
    least = config.get("clip_min_std", 1e-15)
    return {
        "num_learning_epochs": config["nep"],
        "num_mini_batches": config["nmb"],
        "clip_param": config["clip"],
        "gamma": config["gamma"],
        "lam": config["lam"],
        "value_loss_coef": config["vcoef"],
        "entropy_coef": config["ecoef"],
        "learning_rate": config["lr"],
        "max_grad_norm": config["mgn"],
        "use_clipped_value_loss": config.get("use_clipped_value_loss", True),
        "clip_min_std": tuple(least) if isinstance(least, list) else least,
        "optimizer_class_name": config.get("optimizer", "Adam").split("(")[0],
        "schedule": config.get("schedule", "fixed"),
        "desired_kl": config.get("desired_kl", 0.01),
    }


def make_algorithm(config: dict, *, policy: dict | None = None, make=ppo.make, **overrides) -> Algorithm:
    """PPO with st_rl's habits from a golden file's config.

    Args:
        policy: more attributes of the policy.
        make: another algorithm's ``make``.
        overrides: fields of ``PPOConfig``.
    """
    actor, critic = Segments(("obs",), ((config["O"],),)), Segments(("privileged",), ((config["C"],),))
    if "obs_segments" in config:
        actor, critic = segments(config["obs_segments"]), segments(config["privileged_obs_segments"])
    memory = None
    if "rnn_type" in config:
        memory = MemoryStage(config["rnn_type"], config["rnn"], config["rnn_num_layers"])
    module = Policy(
        action_size=config["A"],
        actor_hidden_dims=tuple(config["hid"]),
        critic_hidden_dims=tuple(config["chid"]),
        activation=config["act"],
        mu_activation=config.get("mu_activation"),
        log_std=False,
        actor_obs=actor,
        critic_obs=critic,
        memory=memory,
        **(policy or {}),
    )
    return make(ppo.PPOConfig(**(ppo_fields(config) | overrides)), module, actor, critic, Compat.st_rl())
