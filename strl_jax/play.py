"""``python -m strl_jax.play RUN_DIR``: run a trained policy, with tables, plots and videos."""

import argparse
import contextlib
import json
import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
from rich.console import Console

from strl_jax.builders import checks, environment
from strl_jax.config import Config, ConfigError
from strl_jax.envs.base import Env
from strl_jax.runners import launch, process
from strl_jax.runners.log.streams import lasting_stdout
from strl_jax.section import MOST
from strl_jax.viewer import load, outputs, table
from strl_jax.viewer.load import Trained
from strl_jax.viewer.recording import can_record, positions_of
from strl_jax.viewer.roll import Roll, make_roll


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parses the command line; None: the arguments of the process."""
    parser = launch.Parser(prog="python -m strl_jax.play", description="Run and show a trained policy.")
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="run folder")
    parser.add_argument("overrides", nargs="*", default=[], metavar="key=value", help="changes of the run's config")
    launch.add_checkpoint_arguments(parser)
    parser.add_argument(
        "--num-envs", type=_integer(1, MOST), default=64, metavar="N", help="number of episodes; default: 64"
    )
    parser.add_argument(
        "--seed", type=_integer(0, 2**32 - 1), metavar="N", help="seed of the episodes; default: seed of the run"
    )
    parser.add_argument(
        "--command", type=_command, metavar="VX,VY,YAW", help="command for every robot, in m/s, m/s, rad/s"
    )
    parser.add_argument("--table", action="store_true", help="table of how well commands are tracked")
    parser.add_argument("--video", type=Path, metavar="FILE.mp4", help="write a video of environment 0")
    parser.add_argument("--html", type=Path, metavar="FILE.html", help="write a 3D view of environment 0")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="plot velocities, torques and contacts")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="write all numbers")
    return parser.parse(_joined(sys.argv[1:] if argv is None else argv))


def _joined(argv: Sequence[str]) -> list[str]:
    """Joins ``--command -1,0,0`` to one argument; otherwise argparse takes ``-1,0,0`` for an option."""
    joined: list[str] = []
    for text in map(str, argv):
        if joined and joined[-1] == "--command":
            joined[-1] = f"--command={text}"
        else:
            joined.append(text)
    return joined


def _command(text: str) -> tuple[float, float, float]:
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) != 3 or not all(map(math.isfinite, numbers)):
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; it must be three finite numbers, like 0.8,0,0")
    return numbers


def _integer(lowest: int, highest: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        if not text.isdecimal() or not lowest <= int(text) <= highest:
            message = f"{text!r} is not allowed; it must be an integer from {lowest} to {highest}"
            raise argparse.ArgumentTypeError(message)
        return int(text)

    return convert


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns the exit code: 0, 2 for bad input, or 130 if interrupted."""
    arguments = parse(argv)
    return launch.guarded(partial(_run, arguments), "interrupted; only the files listed above were written")


def _run(arguments: argparse.Namespace) -> int:
    paths = {f"--{name}": getattr(arguments, name) for name in ("video", "html", "plot", "out")}
    start = Path.cwd()  # an environment may change it
    paths = {option: path.absolute() for option, path in paths.items() if path is not None}
    checks.check_jax_options()
    launch.use_compilation_cache()
    outputs.check(paths, arguments.run_dir)
    config, lines = load.read_config(arguments.run_dir, arguments.overrides)
    requested = launch.RequestedCheckpoint(arguments)
    env = environment.make_env(config.env)
    lines += _check(config, env, arguments)
    library = None
    if arguments.video is not None:
        from strl_jax.viewer import video  # imports MuJoCo

        library = video.find_gl()
    launch.print_lines("warning", *lines)
    candidates = requested.candidates()
    episodes = environment.make_episode_env(config, env)
    with contextlib.chdir(start):
        trained = load.load(requested.reader, candidates, config, episodes)
    requested.note(candidates, trained.kind)
    with lasting_stdout():
        _show(trained, _play(trained, arguments), paths, library)
    return 0


def _check(config: Config, env: Env, arguments: argparse.Namespace) -> list[str]:
    """Checks that the environment supports the options. Returns warnings."""
    for option in ("command", "table"):
        if getattr(arguments, option) and not can_record(env):
            raise ConfigError(f"--{option}: {config.env.name} has no commands; use a legged environment")
    for option in ("video", "html"):
        if getattr(arguments, option) is not None and not can_record(env) and positions_of(env) is None:
            raise ConfigError(
                f"--{option}: {config.env.name} has no robot to show; use a legged, Brax or Playground environment"
            )
    if arguments.table and not table.grid(env.config.commands):
        raise ConfigError("--table: all commands in commands.ranges are shorter than commands.smallest")
    if arguments.command is None:
        return []
    return [f"--command: {line}" for line in table.outside(arguments.command, env.config.commands)]


def _play(trained: Trained, arguments: argparse.Namespace) -> tuple[Roll, dict]:
    """Runs the episodes and prints the results. Returns the episodes, and all numbers as a dict for JSON."""
    seed = trained.config.seed if arguments.seed is None else arguments.seed
    key = jax.random.fold_in(jax.random.key(seed), trained.iteration)  # as in the evaluation during training
    console, count = Console(), arguments.num_envs
    results = {"run_dir": str(arguments.run_dir), "checkpoint": trained.kind, "iteration": trained.iteration}
    results |= {"env": trained.config.env.name, "seed": seed, "num_envs": count, "command": arguments.command}
    print(f"{trained.kind} checkpoint of iteration {trained.iteration}, {count} episodes, seed {seed}")
    commands = None if arguments.command is None else jnp.tile(jnp.array(arguments.command), (count, 1))
    policy = (trained.variables, trained.stats, key)
    roll = make_roll(trained.env, trained.algorithm, count)(*policy, commands)
    units = table.UNITS if can_record(trained.env.env) else {}  # units of other environments are not known
    console.print(table.of_policy(roll.numbers, units))
    results["evaluation"] = {name: table.known(value) for name, value in roll.numbers.items()}
    if arguments.table:
        each = table.grid(trained.env.env.config.commands)
        many = max(1, count // len(each))
        commands = jnp.repeat(jnp.array(each), many, axis=0)
        rolled = make_roll(trained.env, trained.algorithm, len(each) * many, len(each))(*policy, commands)
        results["table"] = table.rows(each, rolled, many)
        console.print(table.of_commands(results["table"]))
    return roll, results


def _show(trained: Trained, played: tuple[Roll, dict], paths: dict[str, Path], library: str | None) -> None:
    """Writes the requested files and prints their paths."""
    roll, results = played
    env, trace = trained.env.env, roll.trace
    if "--out" in paths:
        outputs.write(paths["--out"], lambda path: path.write_text(json.dumps(results, indent=1) + "\n"))
    if "--plot" in paths:
        from strl_jax.viewer import plot

        names = (env.robot.joint_names, tuple(env.robot.feet)) if can_record(env) else ((), ())
        form = paths["--plot"].suffix.lower().removeprefix(".")
        outputs.write(paths["--plot"], lambda path: plot.draw(path, form, trace, env.dt, *names))
    if "--html" not in paths and "--video" not in paths:
        return
    from strl_jax.viewer import page, scene, video  # import MuJoCo

    model = scene.of(env, trace["qpos"])
    title = f"{trained.config.env.name}, {trained.kind} checkpoint of iteration {trained.iteration}"
    if "--html" in paths:
        text = page.build(model, trace, env.dt, title)
        outputs.write(paths["--html"], lambda path: path.write_text(text))
    if "--video" in paths:
        outputs.write(paths["--video"], partial(video.make, library=library, model=model, trace=trace, dt=env.dt))


if __name__ == "__main__":
    process.leave(main())
