"""``python -m strl_jax.interop.export RUN_DIR --onnx FILE --stablehlo FILE``: export of a trained policy."""

import argparse
import contextlib
import importlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from strl_jax.builders import acting, checks, environment
from strl_jax.builders.stored import read_acting
from strl_jax.config import Config
from strl_jax.envs.base import Env
from strl_jax.interop import deploy, stablehlo
from strl_jax.interop.deploy import Deployable, DeployError
from strl_jax.run_folder import run_dir
from strl_jax.run_folder.atomic import replacement
from strl_jax.run_folder.layout import versions
from strl_jax.run_folder.reader import CheckpointReader
from strl_jax.runners import launch, process
from strl_jax.runners.log.streams import lasting_stdout


@dataclass(frozen=True)
class Output:
    """One file to write.

    Attributes:
        load: reads the policy from a file of this format; None if the file holds no policy.
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
    parser.add_argument("--estimates", action="store_true", help="the outputs include the estimated components")
    launch.add_checkpoint_arguments(parser)
    arguments = parser.parse(argv)
    if arguments.onnx is None and arguments.stablehlo is None:
        parser.error("--onnx FILE or --stablehlo FILE is needed, or both")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns the exit code: 0, or 2 for bad input and a policy that cannot be exported."""
    arguments = parse(argv)
    interrupted = "interrupted; files that were not named above are unchanged"
    return launch.guarded(partial(_run, arguments), interrupted, (DeployError,))


def _run(arguments: argparse.Namespace) -> int:
    checks.check_jax_options()
    _check(arguments)
    start = Path.cwd()  # an environment may change it
    onnx, stablehlo_path = (path and path.absolute() for path in (arguments.onnx, arguments.stablehlo))
    launch.use_compilation_cache()
    config, _ = run_dir.read_config(arguments.run_dir)
    requested = launch.RequestedCheckpoint(arguments)
    env = environment.make_env(config.env)
    candidates = requested.candidates()
    with contextlib.chdir(start):
        deployable, layout = read(requested.reader, candidates, config, env, estimates=arguments.estimates)
    requested.note(candidates, layout["checkpoint"])
    differences = write(deployable, make_outputs(deployable, layout, onnx, stablehlo_path))
    with lasting_stdout():
        print(f"{layout['checkpoint']} checkpoint of iteration {layout['iteration']}")
        for path, difference in differences.items():
            print(f"{path}: largest difference from the policy {difference:.2g}")
    return 0


def read(
    reader: CheckpointReader,
    candidates: Sequence[tuple[str, int]],
    config: Config,
    env: Env,
    *,
    estimates: bool = False,
) -> tuple[Deployable, dict]:
    """The policy in the first intact checkpoint of ``candidates``; warns of damaged ones.

    Args:
        reader, candidates: the run, and which of its checkpoints to try.
        config, env: of the run.
        estimates: the outputs include the estimates.

    Returns:
        The policy, and its description for users of the exported file, which can be written as JSON.

    Raises:
        CheckpointError: all are damaged, or the checkpoint has other observations.
        DeployError: the policy cannot be exported.
    """
    algorithm = acting.make_acting(config, env)
    kind, number, train, meta = read_acting(reader, candidates, algorithm, config)
    deployable = Deployable(algorithm, train["params"]["policy"], train["stats"], estimates)
    return deployable, describe(deployable, config, env.dt) | {
        "iteration": number,
        "checkpoint": kind,
        "trained_with": meta["versions"],
    }


def describe(deployable: Deployable, config: Config, dt: float) -> dict:
    """Names, and shapes without the batch axis, in the order of inputs and outputs; ``dt``: seconds per step."""
    return {
        "observations": [{"name": name, "shape": list(shape)} for name, shape in deployable.observations.items()],
        "unread": list(deployable.unread),
        "carry": [{"name": name, "shape": list(shape)} for name, shape in deployable.carry.items()],
        "estimates": [{"name": name, "shape": list(shape)} for name, shape in deployable.estimated.items()],
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
        DeployError: a package is missing, or the policy cannot be written in this format.
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
    """Writes all files or none; each policy is read back and compared with ``deployable`` first.

    Returns:
        Path -> ``deploy.largest_difference``, for the files with a policy.

    Raises:
        DeployError: the policy in a file differs.
        OSError: a file cannot be written.
    """
    differences = {}
    with contextlib.ExitStack() as replacements:
        for output in outputs:
            temporary = replacements.enter_context(replacement(output.path))
            temporary.write_bytes(output.content)
            if output.load is not None:
                differences[output.path] = deploy.check(deployable, output.load(temporary), str(output.path))
    return differences


def _check(arguments: argparse.Namespace) -> None:
    """Checks files and packages of the outputs before the slow work. Raises ``DeployError``."""
    paths = [path for path in (arguments.onnx, arguments.stablehlo) if path is not None]
    described = [] if arguments.stablehlo is None else [stablehlo.description(arguments.stablehlo)]
    if len({path.absolute() for path in paths}) < len(paths):
        raise DeployError(f"--onnx and --stablehlo name the same file, {arguments.onnx}")
    for path in paths + described:
        reason = run_dir.obstacle(path, arguments.run_dir)
        if reason is not None:
            raise DeployError(f"{path}: cannot be written: {reason}")
    if arguments.onnx is not None:
        _package("strl_jax.interop.onnx.model", "--onnx")
    if arguments.stablehlo is not None:
        _package("flatbuffers", "--stablehlo")  # jax.export needs it and does not install it


def _package(name: str, option: str):
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise DeployError(f"{option} needs the package {error.name}: pip install 'strl_jax[onnx]'") from None


if __name__ == "__main__":
    process.leave(main())
