"""``python -m strl_jax.interop.export RUN_DIR --onnx FILE --stablehlo FILE``: the trained policy for a robot."""

import argparse
import importlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from strl_jax.builders import acting, environment
from strl_jax.builders.stored import read_acting
from strl_jax.config import Config
from strl_jax.envs.base import Env
from strl_jax.interop import deploy, stablehlo
from strl_jax.interop.deploy import Deployable, DeployError
from strl_jax.run_folder import run_dir
from strl_jax.run_folder.checkpoints import Checkpointer
from strl_jax.run_folder.layout import versions
from strl_jax.runners import launch


@dataclass(frozen=True)
class Output:
    """One file to write.

    Attributes:
        path: where.
        content: what.
        load: gives the policy in a file back; None: there is none in it.
    """

    path: Path
    content: bytes
    load: Callable[[Path], deploy.Step] | None = None


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Command line."""
    parser = launch.Parser(prog="python -m strl_jax.interop.export", description="Export the policy of a run.")
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="run folder")
    parser.add_argument("--onnx", type=Path, metavar="FILE", help="write an ONNX model")
    parser.add_argument("--stablehlo", type=Path, metavar="FILE", help="write StableHLO, described by FILE.json")
    launch.add_checkpoint_arguments(parser)
    arguments = parser.parse(argv)
    if arguments.onnx is None and arguments.stablehlo is None:
        parser.error("--onnx FILE or --stablehlo FILE is needed, or both")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns the exit code: 0, or 2 for bad input and a policy that cannot be exported."""
    arguments = parse(argv)
    return launch.guarded(lambda: _run(arguments), "interrupted; files that were not named above are as they were")


def _run(arguments: argparse.Namespace) -> int:
    try:
        _check(arguments)
        launch.use_compilation_cache()
        config, _ = run_dir.read_config(arguments.run_dir)
        source = Checkpointer(arguments.run_dir)
        launch.choose_checkpoint(arguments, source)  # without one nothing need be built
        env = environment.make_env(config.env)
        chosen = launch.choose_checkpoint(
            arguments, source
        )  # that of before may be gone: the run may still be training
        deployable, layout = read(source, chosen, config, env)
        launch.note_if_not_best(arguments, chosen, layout["checkpoint"])
        outputs = make_outputs(deployable, layout, arguments.onnx, arguments.stablehlo)
        differences = write(deployable, outputs)
        print(f"{layout['checkpoint']} checkpoint of iteration {layout['iteration']}")
        for path, difference in differences.items():
            print(f"{path}: largest difference from the policy {difference:.2g}")
    except DeployError as error:
        launch.tell("error", error)
        return 2
    return 0


def read(source: Checkpointer, chosen: Sequence[tuple[str, int]], config: Config, env: Env) -> tuple[Deployable, dict]:
    """The policy in the first checkpoint ``chosen`` that is whole; warns of those passed over.

    Args:
        source: of the run; gave ``chosen``.
        config, env: the run's.

    Returns:
        The policy, and its description for users of the exported file, JSON-able.

    Raises:
        CheckpointError: all are damaged, or it is one of other observations.
        DeployError: the policy cannot be exported.
    """
    algorithm = acting.make_acting(config, env)
    kind, number, train, meta = read_acting(source, chosen, algorithm, config)
    deployable = Deployable(algorithm, train["params"]["policy"], train["stats"])
    return deployable, describe(deployable, config, env.dt) | {
        "iteration": number,
        "checkpoint": kind,
        "trained_with": meta["versions"],
    }


def describe(deployable: Deployable, config: Config, dt: float) -> dict:
    """Names, and shapes without the batch, in the order of inputs and outputs; ``dt`` is one step in seconds."""
    return {
        "observations": [{"name": name, "shape": list(shape)} for name, shape in deployable.observations.items()],
        "unread": list(deployable.unread),
        "carry": [{"name": name, "shape": list(shape)} for name, shape in deployable.carry.items()],
        "outputs": list(deployable.outputs),
        "action_size": deployable.algorithm.policy.action_size,
        "dt": float(dt),
        "env": config.env.name,
        "policy": config.runner.policy_class_name,
        "exported_with": versions(),
    }


def make_outputs(
    deployable: Deployable, layout: dict, onnx: Path | None = None, stablehlo_path: Path | None = None
) -> list[Output]:
    """The files to write, for each path that is not None.

    Raises:
        DeployError: a package is missing, or a policy has no such form.
    """
    outputs = []
    if onnx is not None:
        model = _package("strl_jax.interop.onnx.model", "--onnx")
        outputs.append(Output(onnx, model.dump(deployable, layout), model.load))
    if stablehlo_path is not None:
        about = stablehlo.description(stablehlo_path)
        outputs.append(Output(about, json.dumps(layout, indent=1).encode()))
        outputs.append(Output(stablehlo_path, stablehlo.dump(deployable), stablehlo.load))
    return outputs


def write(deployable: Deployable, outputs: Sequence[Output]) -> dict[Path, float]:
    """Writes all files or none; each policy is loaded back and compared first.

    Returns:
        Path -> ``deploy.largest_difference``, for those with a policy.

    Raises:
        DeployError: a file cannot be written, or its policy differs.
    """
    differences = {}
    with ExitStack() as stack:
        for output in outputs:
            temporary = _temporary(output.path)
            stack.callback(_remove, temporary)
            try:
                temporary.write_bytes(output.content)
            except OSError as error:
                raise DeployError(f"{output.path}: cannot be written: {error.strerror}") from None
            if output.load is not None:
                differences[output.path] = deploy.check(deployable, output.load(temporary), str(output.path))
        for output in outputs:
            try:
                os.replace(_temporary(output.path), output.path)
            except OSError as error:
                raise DeployError(f"{output.path}: cannot be written: {error.strerror}") from None
    return differences


def _check(arguments: argparse.Namespace) -> None:
    """Whether all that the outputs need is there, before anything slow."""
    paths = [path for path in (arguments.onnx, arguments.stablehlo) if path is not None]
    described = [] if arguments.stablehlo is None else [stablehlo.description(arguments.stablehlo)]
    if len({path.absolute() for path in paths}) < len(paths):
        raise DeployError(f"--onnx and --stablehlo name the same file, {arguments.onnx}")
    for path in paths + described:
        what = run_dir.obstacle(path, arguments.run_dir)
        if what is not None:
            raise DeployError(f"{path}: cannot be written: {what}")
    if arguments.onnx is not None:
        _package("strl_jax.interop.onnx.model", "--onnx")
    if arguments.stablehlo is not None:
        _package("flatbuffers", "--stablehlo")  # jax.export writes with it, and does not bring it


def _package(name: str, option: str):
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise DeployError(f"{option} needs the package {error.name}: pip install 'strl_jax[onnx]'") from None


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


if __name__ == "__main__":
    sys.exit(main())
