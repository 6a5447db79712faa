"""``python -m strl_jax.interop.torch_checkpoint FILE --config FILE [key=value ...] --out RUN_DIR``.

Turns a ``model_*.pt`` of st_rl, rsl_rl or legged_gym into a run folder to resume from.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
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
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings over the config's, like seed=7")
    parser.add_argument("--config", type=Path, metavar="FILE", required=True, help="YAML config of the run")
    parser.add_argument("--out", type=Path, metavar="RUN_DIR", required=True, help="run folder to make")
    return parser.parse(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns the exit code: 0, or 2 for bad input, when nothing is written."""
    arguments = parse(argv)
    return launch.guarded(partial(_run, arguments), "interrupted; no run folder was made", (TorchFileError,))


def _run(arguments: argparse.Namespace) -> int:
    config, lines = config_module.load(arguments.config, arguments.overrides)
    for line in lines:
        launch.tell("warning", line)
    _check_free(arguments.out)
    checkpoint = load_torch(arguments.checkpoint)
    launch.use_compilation_cache()
    for line in write_run(checkpoint, config, arguments.out):
        launch.tell("note", line)
    print(f"results: {arguments.out}")
    return 0


def write_run(checkpoint: Mapping[str, Any], config: Config, out: Path) -> list[str]:
    """Makes the run folder ``out``, whole or not at all.

    Args:
        checkpoint: what ``load_torch`` gives.

    Returns:
        Lines on what was not taken over, or not as it is.

    Raises:
        TorchFileError: file and config do not fit; a line for each fault.
        ConfigError: the config does not fit itself, or the folder cannot be made.
        CheckpointError: the checkpoint cannot be written.
    """
    _check_keys(checkpoint)
    runner = OnPolicyRunner(None, config)
    try:
        if runner.algorithm.variables is not None:
            raise ConfigError(
                f"runner.policy_class_name: {config.runner.policy_class_name} is not allowed; its weights are those "
                "of the folders in policy.sub_policy_paths"
            )
        parts, lines = read_parts(checkpoint, runner)
        fresh, runner.rollout_state = runner.fresh_states(config.runner.init_at_random_ep_len)
        runner.train_state = _place(fresh, parts)
        runner.progress.iteration = int(parts["iteration"])
        runner.progress.env_steps = runner.progress.iteration * runner.steps_per_iteration  # the file does not say
        _write(runner, out)
    finally:
        runner.close()
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
    """Fields of the train state as numpy arrays, and lines on what was not taken over.

    Raises:
        TorchFileError: weights or statistics do not fit; a line for each fault.
    """
    algorithm, config, iteration = runner.algorithm, runner.algorithm.config, checkpoint.get("iter", 0)
    weights, found = torch_statistics.split(checkpoint)
    seen = iteration * runner.steps_per_iteration
    fresh = runner.programs.states[0]
    variables, (networks, told), stats = _all_faults(
        lambda: import_weights(torch_networks.split(weights)[0], algorithm),
        lambda: torch_networks.import_networks(checkpoint, fresh.params),
        lambda: _statistics(found, algorithm, seen),
    )
    opt_state, lines = torch_moments.import_moments(checkpoint, weights, algorithm, fresh.opt_state["policy"])
    rate, more = _learning_rate(checkpoint, algorithm, iteration)
    lines += more + told + [f"{key}: in the file, not taken over" for key in checkpoint if key not in TAKEN]
    if checkpoint.get("infos"):
        lines.append("infos: in the file, not taken over")
    if "iter" not in checkpoint:
        lines.append("the file does not say the iteration: it starts at 0")
    if config.empirical_normalization and any("count" not in group for group in found.values()):
        lines.append(
            f"the file does not say how many samples its statistics have seen: {seen} from iteration and config"
        )
    parts = {
        "params": {"policy": variables, **networks},
        "opt_state": {"policy": opt_state},
        "learning_rate": {"policy": rate},
        "iteration": np.int32(iteration),
        "stats": stats,
    }
    return parts, lines


def _all_faults(*imports: Callable[[], Any]) -> list:
    """The results of all, or one error with the faults of all."""
    results, lines = [], []
    for run in imports:
        try:
            results.append(run())
        except TorchFileError as error:
            lines.append(str(error))
    if lines:
        raise TorchFileError("\n".join(lines))
    return results


def _statistics(found: Mapping[str, Mapping], algorithm, seen: int) -> dict:
    wanted = algorithm.config.empirical_normalization
    if found and not wanted:
        raise TorchFileError(f"the file has statistics of observations, the config has not; {SETTING}=true fits it")
    if wanted and not found:
        raise TorchFileError(f"the file has no statistics of observations, the config has; {SETTING}=false fits it")
    return torch_statistics.import_statistics(found, algorithm.groups, seen) if wanted else {}


def _learning_rate(checkpoint: Mapping[str, Any], algorithm, iteration: int) -> tuple[np.ndarray, list[str]]:
    """The file's where it adapts to the KL, else the config's at that iteration."""
    own = np.asarray(algorithm.learning_rates(jnp.int32(iteration))["policy"])
    rate = (torch_moments.group_of(checkpoint) or {}).get("lr")
    if not isinstance(rate, float | int | np.ndarray) or np.size(rate) != 1 or not 0 < rate < np.inf:
        return own, []
    rate = np.asarray(rate, np.float32).reshape(())
    if algorithm.config.schedule == "adaptive" or rate == own:
        return rate, []
    return own, [f"learning rate: {float(rate):g} in the file; the config's schedule goes on with {own:g}"]


def _place(fresh, parts: Mapping[str, Any]):
    """The fresh train state with ``parts`` in it, on the same devices; what no file has stays fresh."""

    def put(old, new):
        if isinstance(old, dict):
            return {key: put(value, new[key]) if key in new else value for key, value in old.items()}
        return jax.tree.map(_put, old, new)

    return fresh.replace(**{name: put(getattr(fresh, name), value) for name, value in parts.items()})


def _put(old: jax.Array, new) -> jax.Array:
    """``new`` in the place of ``old``; a shape without values stands for what is fresh already."""
    if isinstance(new, jax.ShapeDtypeStruct):
        return old
    return jax.device_put(np.asarray(new, old.dtype), old.sharding)


def _write(runner: OnPolicyRunner, out: Path) -> None:
    """Writes the run beside ``out``, then gives it its name."""
    out = out.absolute()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=".new-", ignore_cleanup_errors=True) as temporary:
            folder = Path(temporary) / "run"
            run_dir.write_config(folder, runner.config, run_dir.units(runner.env.env))
            runner.open(folder)
            runner.save("last")
            runner.checkpointer.close()
            os.rename(folder, out)
    except OSError as error:
        raise ConfigError(f"--out: {out}: cannot be made: {error.strerror}") from None


if __name__ == "__main__":
    sys.exit(main())
