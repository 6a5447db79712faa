"""``python -m strl_jax.interop.torch_checkpoint FILE --config FILE [key=value ...] --out RUN_DIR``.

Converts a ``model_*.pt`` of st_rl, rsl_rl or legged_gym to a run folder that can be resumed.
"""

import argparse
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from strl_jax import config as config_module
from strl_jax.builders import torch_state
from strl_jax.config import Config, ConfigError
from strl_jax.run_folder import run_dir
from strl_jax.runners import launch, process
from strl_jax.runners.loading import load_torch_state
from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.torch_files.file import TorchFileError, load_torch


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
    launch.print_lines("note", *write_run(checkpoint, config, arguments.out.absolute()))
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
    torch_state.check_keys(checkpoint)
    with closing(OnPolicyRunner(None, config)) as runner:
        lines = load_torch_state(runner, checkpoint)
        out = out.absolute()
        with run_dir.prepared(out, f"--out: {out}", runner.config, run_dir.units(runner.env.env)) as folder:
            runner.open(folder)
            runner.save("last")
            runner.checkpointer.close()
            (folder / run_dir.METRICS).touch()  # a resume warns of a missing file
            folder.rename(out)
    return lines


def _check_free(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"--out: {out} exists and is not empty; name a new folder")


if __name__ == "__main__":
    process.leave(main())
