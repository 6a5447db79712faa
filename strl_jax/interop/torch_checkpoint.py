"""``python -m strl_jax.interop.torch_checkpoint FILE --config FILE [key=value ...] --out RUN_DIR``.

Converts a ``model_*.pt`` of st_rl, rsl_rl or legged_gym to a run folder that can be resumed.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strl_jax import config as config_module
from strl_jax.config import Config, ConfigError
from strl_jax.interop import torch_moments
from strl_jax.run_folder import run_dir
from strl_jax.runners import launch
from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.torch_files import networks as torch_networks
from strl_jax.torch_files import statistics as torch_statistics
from strl_jax.torch_files.file import TorchFileError, load_torch
from strl_jax.torch_files.weights import import_weights

STATISTICS = tuple(key for keys in torch_statistics.DICTS.values() for key in keys)
TAKEN = ("model_state_dict", "optimizer_state_dict", "iter", "infos", torch_networks.RND, *STATISTICS)
SETTING = "algorithm.empirical_normalization"


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Command line."""
    parser = launch.Parser(
        prog="python -m strl_jax.interop.torch_checkpoint", description="Make a run folder from a torch checkpoint."
    )
    parser.add_argument("checkpoint", type=Path, metavar="FILE", help="model_*.pt of st_rl, rsl_rl or legged_gym")
    parser.add_argument(
        "overrides", nargs="*", metavar="key=value", help="settings that replace the config's, like seed=7"
    )
    parser.add_argument("--config", type=Path, metavar="FILE", required=True, help="YAML config of the run")
    parser.add_argument("--out", type=Path, metavar="RUN_DIR", required=True, help="run folder to make")
    return parser.parse(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns the exit code: 0, or 2 for bad input or 130 after Ctrl-C; then nothing is written."""
    arguments = parse(argv)
    return launch.guarded(partial(_run, arguments), "interrupted; no run folder was made", (TorchFileError,))


def _run(arguments: argparse.Namespace) -> int:
    config, lines = config_module.load(arguments.config, arguments.overrides)
    launch.print_lines("warning", *lines)
    _check_free(arguments.out)
    checkpoint = load_torch(arguments.checkpoint)
    launch.use_compilation_cache()
    launch.print_lines("note", *write_run(checkpoint, config, arguments.out))
    print(f"results: {arguments.out}")
    return 0


def write_run(checkpoint: Mapping[str, Any], config: Config, out: Path) -> list[str]:
    """Writes the run folder ``out``, completely or not at all.

    Args:
        checkpoint: result of ``load_torch``.

    Returns:
        A line for each part of the file that was changed or not used.

    Raises:
        TorchFileError: the file does not fit the config; a line for each fault.
        ConfigError: the config is inconsistent, or the folder cannot be created.
        CheckpointError: the checkpoint cannot be written.
    """
    _check_keys(checkpoint)
    with closing(OnPolicyRunner(None, config)) as runner:
        if runner.algorithm.variables is not None:
            raise ConfigError(
                f"runner.policy_class_name: {config.runner.policy_class_name} is not allowed here; its weights come "
                "from the folders in policy.sub_policy_paths"
            )
        parts, lines = read_parts(checkpoint, runner)
        fresh, runner.rollout_state = runner.fresh_states(config.runner.init_at_random_ep_len)
        runner.train_state = _place(fresh, parts)
        runner.progress.iteration = int(parts["iteration"])
        runner.progress.env_steps = runner.progress.iteration * runner.steps_per_iteration  # not in the file
        out = out.absolute()
        with run_dir.prepared(out, f"--out: {out}", runner.config, run_dir.units(runner.env.env)) as folder:
            runner.open(folder)
            runner.save("last")
            runner.checkpointer.close()
            folder.rename(out)
    return lines


def _check_free(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"--out: {out} exists and is not empty; name a new folder")


def _check_keys(checkpoint: Mapping[str, Any]) -> None:
    weights = checkpoint.get("model_state_dict")
    if not isinstance(weights, dict) or not all(isinstance(name, str) for name in weights):
        keys = ", ".join(map(str, checkpoint))
        raise TorchFileError(f"the file has no model_state_dict; it has {keys or 'nothing'}"[:300])
    number = checkpoint.get("iter", 0)
    if not isinstance(number, int) or not 0 <= number < 2**31:
        raise TorchFileError(f"iter: {number!r} is not allowed; it must be an integer >= 0"[:300])


def read_parts(checkpoint: Mapping[str, Any], runner: OnPolicyRunner) -> tuple[dict[str, Any], list[str]]:
    """Fields of the train state as numpy arrays, and a line for each part of the file that was changed or not used.

    Raises:
        TorchFileError: weights or statistics do not fit; a line for each fault.
    """
    algorithm, config, iteration = runner.algorithm, runner.algorithm.config, checkpoint.get("iter", 0)
    weights, statistics = torch_statistics.split(checkpoint)
    samples = iteration * runner.steps_per_iteration
    fresh = runner.programs.states[0]
    variables, (networks, notes), stats = _all_faults(
        lambda: import_weights(torch_networks.split(weights)[0], algorithm.policy),
        lambda: torch_networks.import_networks(checkpoint, fresh.params),
        lambda: _statistics(statistics, algorithm, samples),
    )
    opt_state, lines = torch_moments.import_moments(checkpoint, weights, algorithm, fresh.opt_state["policy"])
    rate, more = _learning_rate(checkpoint, algorithm, iteration)
    lines += more + notes + [f"{key}: in the file, not used" for key in checkpoint if key not in TAKEN]
    if checkpoint.get("infos"):
        lines.append("infos: in the file, not used")
    if "iter" not in checkpoint:
        lines.append("iter: not in the file; the iteration starts at 0")
    if config.empirical_normalization and any("count" not in group for group in statistics.values()):
        lines.append(f"count of the statistics: not in the file; {samples} samples, computed from iteration and config")
    parts = {
        "params": {"policy": variables, **networks},
        "opt_state": {"policy": opt_state},
        "learning_rate": {"policy": rate},
        "iteration": np.int32(iteration),
        "stats": stats,
    }
    return parts, lines


def _all_faults(*imports: Callable[[], Any]) -> list:
    """Runs all imports. Returns their results, or raises one error with the faults of all."""
    results, lines = [], []
    for run in imports:
        try:
            results.append(run())
        except TorchFileError as error:
            lines.append(str(error))
    if lines:
        raise TorchFileError("\n".join(lines))
    return results


def _statistics(statistics: Mapping[str, Mapping], algorithm, samples: int) -> dict:
    normalizes = algorithm.config.empirical_normalization
    if statistics and not normalizes:
        raise TorchFileError(f"the file has statistics of observations, the config has not; use {SETTING}=true")
    if normalizes and not statistics:
        raise TorchFileError(f"the file has no statistics of observations, the config has; use {SETTING}=false")
    return torch_statistics.import_statistics(statistics, algorithm.groups, samples) if normalizes else {}


def _learning_rate(checkpoint: Mapping[str, Any], algorithm, iteration: int) -> tuple[np.ndarray, list[str]]:
    """The learning rate of the file if it follows the training, otherwise that of the config at this iteration."""
    scheduled = np.asarray(algorithm.learning_rates(jnp.int32(iteration))["policy"])
    rate = (torch_moments.group_of(checkpoint) or {}).get("lr")
    if not isinstance(rate, float | int | np.ndarray) or np.size(rate) != 1 or not 0 < rate < np.inf:
        return scheduled, []
    rate = np.asarray(rate, np.float32).reshape(())
    if algorithm.keeps_learning_rate or rate == scheduled:
        return rate, []
    return scheduled, [
        f"learning rate: {float(rate):g} in the file; the config's schedule continues with {scheduled:g}"
    ]


def _place(fresh, parts: Mapping[str, Any]):
    """Puts ``parts`` into the fresh train state, on the same devices."""

    def put(old, new):
        if isinstance(old, dict):
            return {key: put(value, new[key]) if key in new else value for key, value in old.items()}
        return jax.tree.map(_put, old, new)

    return fresh.replace(**{name: put(getattr(fresh, name), value) for name, value in parts.items()})


def _put(old: jax.Array, new) -> jax.Array:
    """``new`` on the devices of ``old``; ``old`` if ``new`` is only a shape."""
    if isinstance(new, jax.ShapeDtypeStruct):
        return old
    return jax.device_put(np.asarray(new, old.dtype), old.sharding)


if __name__ == "__main__":
    sys.exit(main())
