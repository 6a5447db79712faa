"""What the tests of the commands share: a tiny environment, a config, and processes of their own."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import yaml

from strl_jax.envs.base import Env
from strl_jax.types import EnvState

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Walk(Env):
    """An action moves a point on a line by a tenth; beyond 1 the episode ends.

    Metrics ``tracking_error``, the distance to a goal, and ``CoT``, the action's size.
    """

    observation_shapes = {"position": (1,), "goal": (1, 2)}  # noqa: RUF012 (read only)
    action_size = 1
    dt = 0.5
    episode_length = 3

    def reset(self, key):
        start = jax.vmap(lambda k: jax.random.uniform(k, (2,), minval=-1.0, maxval=1.0))(key)
        return self._state(start[:, 0], start[:, 1], 0 * start[:, 0])

    def step(self, state, action):
        position, goal = state.physics
        return self._state(position + 0.1 * action[:, 0], goal, action[:, 0])

    def _state(self, position, goal, action):
        distance = jnp.abs(position - goal)
        ended = jnp.abs(position) > 1.0
        return EnvState(
            physics=(position, goal),
            obs={"position": position[:, None], "goal": jnp.stack([goal, position - goal], axis=-1)[:, None]},
            reward=-distance,
            terminated=ended,
            timeout=jnp.zeros_like(ended),
            metrics={"tracking_error": distance, "CoT": jnp.abs(action)},
            extras={},
        )


class Broken(Walk):
    """Its simulator gives NaN whatever is done."""

    def _state(self, position, goal, action):
        return super()._state(position, goal, action).replace(reward=jnp.full_like(position, jnp.nan))


def settings(log_root: Path, **runner) -> dict:
    """A config that trains in moments, with all statistics and the adaptive learning rate on."""
    return {
        "seed": 3,
        "env": {"name": "commands:Walk", "num_envs": 4},
        "policy": {"actor_hidden_dims": [4], "critic_hidden_dims": [4]},
        "algorithm": {
            "num_mini_batches": 2,
            "num_learning_epochs": 1,
            "schedule": "adaptive",
            "empirical_normalization": True,
            "normalize_rewards": True,
        },
        "runner": {
            "num_steps_per_env": 4,
            "max_iterations": 6,
            **({"num_eval_envs": 4} if runner.get("eval_interval") else {}),  # without evaluations it gives a warning
            "log_root": str(log_root),
            "logger": "none",
            "time_split": False,
            **runner,
        },
    }


def write(path: Path, config: dict) -> Path:
    """The config as a YAML file."""
    path.write_text(yaml.safe_dump(config))
    return path


def start(*arguments, devices: int = 1, module: str = "strl_jax.train", cache: Path | None = None) -> subprocess.Popen:
    """Starts the command in a process with that many CPU devices.

    Args:
        cache: folder of compiled programs; default: that of all tests. A process that is killed
            needs another one: it may leave half a file there.
    """
    count = "--xla_force_host_platform_device_count="
    environment = os.environ | {
        "XLA_FLAGS": re.sub(rf"{count}\d+", f"{count}{devices}", os.environ["XLA_FLAGS"]),
        "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
    }
    if cache is not None:
        environment["JAX_COMPILATION_CACHE_DIR"] = str(cache)
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen, seconds: float = 300.0) -> tuple[int, str, str]:
    """Exit code, stdout and stderr; ended at the latest after so many seconds."""
    try:
        out, err = process.communicate(timeout=seconds)
    finally:
        process.kill()
    return process.returncode, out, err


def run(*arguments, **options) -> tuple[int, str, str]:
    """``finish(start(...))``."""
    return finish(start(*arguments, **options))


def call(capsys, main: Callable, *arguments) -> tuple[int, list[str]]:
    """Exit code of the command ``main`` and the lines on stderr; stdout must be empty."""
    try:
        code = main([str(argument) for argument in arguments])
    except SystemExit as stop:  # argparse
        code = stop.code
    captured = capsys.readouterr()
    assert captured.out == ""
    return code, captured.err.splitlines()


def fails(capsys, main: Callable, *arguments) -> str:
    """Stderr of the command ``main`` without ``error: ``; it must be one line, the exit code 2, and stdout empty."""
    code, lines = call(capsys, main, *arguments)
    assert (code, len(lines)) == (2, 1), lines
    assert lines[0].startswith("error: ")
    return lines[0].removeprefix("error: ")


def contents(folder: Path) -> dict[Path, bytes | None]:
    """Content of all files below a folder, None for a folder."""
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def log(run_dir: Path) -> list[dict]:
    """The lines of metrics.jsonl."""
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def untimed(lines: list[dict]) -> list[dict]:
    """The lines without what depends on the clock."""
    return [{k: v for k, v in line.items() if not k.startswith("Perf/") and k != "Train/wall_clock"} for line in lines]


def leaves(tree) -> list[np.ndarray]:
    """Every leaf as an array, keys as their data."""
    keys = jax.dtypes.prng_key
    found = jax.tree.leaves(tree)
    return [np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, keys) else x) for x in found]


def same(left, right) -> bool:
    """Whether two trees have the same bits."""
    left, right = leaves(left), leaves(right)
    return len(left) == len(right) and all(a.tobytes() == b.tobytes() for a, b in zip(left, right, strict=True))
