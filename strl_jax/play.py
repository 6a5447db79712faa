"""``python -m strl_jax.play RUN_DIR``: watch a trained policy, in numbers, figures and pictures."""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
from rich.console import Console

from strl_jax.builders import environment
from strl_jax.config import Config, ConfigError
from strl_jax.config.fields import MOST
from strl_jax.envs.base import Env
from strl_jax.runners import launch
from strl_jax.viewer import load, outputs, table
from strl_jax.viewer.load import Trained
from strl_jax.viewer.recording import can_record, positions_of
from strl_jax.viewer.roll import Roll, make_roll


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Command line."""
    parser = launch.Parser(prog="python -m strl_jax.play", description="Watch a trained policy.")
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="run folder")
    parser.add_argument("overrides", nargs="*", default=[], metavar="key=value", help="settings over the run's")
    launch.add_checkpoint_arguments(parser)
    parser.add_argument("--num-envs", type=_count, default=64, metavar="N", help="episodes; default: 64")
    parser.add_argument("--seed", type=_seed, metavar="N", help="of the episodes; default: the run's")
    parser.add_argument("--command", type=_command, metavar="VX,VY,YAW", help="m/s, m/s, rad/s for every robot")
    parser.add_argument("--table", action="store_true", help="how commands over the trained ranges are followed")
    parser.add_argument("--video", type=Path, metavar="FILE.mp4", help="a video of environment 0")
    parser.add_argument("--html", type=Path, metavar="FILE.html", help="a page that shows it in three dimensions")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="velocities, torques and contacts over time")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="all numbers")
    return parser.parse(_joined(sys.argv[1:] if argv is None else argv))


def _joined(argv: Sequence[str]) -> list[str]:
    """The arguments with ``--command -1,0,0`` as one, which would else be taken for an option."""
    found: list[str] = []
    for text in map(str, argv):
        if found and found[-1] == "--command":
            found[-1] = f"--command={text}"
        else:
            found.append(text)
    return found


def _command(text: str) -> tuple[float, float, float]:
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) != 3 or not all(map(math.isfinite, numbers)):
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; it must be three finite numbers, like 0.8,0,0")
    return numbers


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; it must be an integer from 1 to {MOST}")
    return int(text)


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; it must be an integer from 0 to {2**32 - 1}")
    return int(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns the exit code: 0, 2 for bad input, or 130 if interrupted."""
    arguments = parse(argv)
    return launch.guarded(partial(_run, arguments), "interrupted; files that were not named above are unchanged")


def _run(arguments: argparse.Namespace) -> int:
    paths = {f"--{name}": getattr(arguments, name) for name in ("video", "html", "plot", "out")}
    paths = {option: path for option, path in paths.items() if path is not None}
    outputs.check(paths, arguments.run_dir)
    config, lines = load.read_config(arguments.run_dir, arguments.overrides)
    requested = launch.RequestedCheckpoint(arguments)
    env = environment.make_env(config.env)
    lines += _check(config, env, arguments)
    library = _find_gl() if arguments.video is not None else None
    for line in lines:
        launch.tell("warning", line)
    launch.use_compilation_cache()
    candidates = requested.candidates()
    trained = load.load(requested.reader, candidates, config, environment.make_episode_env(config, env))
    requested.note(candidates, trained.kind)
    _show(trained, _play(trained, arguments), paths, library)
    return 0


def _check(config: Config, env: Env, arguments: argparse.Namespace) -> list[str]:
    """Whether the environment can do what is asked for; warnings."""
    for option in ("command", "table"):
        if getattr(arguments, option) and not can_record(env):
            raise ConfigError(f"--{option}: {config.env.name} takes no command; legged environments do")
    for option in ("video", "html"):
        if getattr(arguments, option) is not None and not can_record(env) and positions_of(env) is None:
            raise ConfigError(
                f"--{option}: {config.env.name} has no robot to show; legged, Brax and Playground ones have"
            )
    if arguments.table and not table.grid(env.config.commands):
        raise ConfigError("--table: no command in commands.ranges is longer than commands.smallest")
    if arguments.command is None:
        return []
    return [f"--command: {line}" for line in table.outside(arguments.command, env.config.commands)]


def _find_gl() -> str:
    from strl_jax.viewer import video  # imports MuJoCo

    return video.find_gl()


def _play(trained: Trained, arguments: argparse.Namespace) -> tuple[Roll, dict]:
    """The episodes, printed, and all numbers, JSON-able."""
    seed = trained.config.seed if arguments.seed is None else arguments.seed
    key = jax.random.fold_in(jax.random.key(seed), trained.iteration)  # that of the evaluation in the training
    console, count = Console(), arguments.num_envs
    told = {"run_dir": str(arguments.run_dir), "checkpoint": trained.kind, "iteration": trained.iteration}
    told |= {"env": trained.config.env.name, "seed": seed, "num_envs": count, "command": arguments.command}
    print(f"{trained.kind} checkpoint of iteration {trained.iteration}, {count} episodes, seed {seed}")
    commands = None if arguments.command is None else jnp.tile(jnp.array(arguments.command), (count, 1))
    policy = (trained.variables, trained.stats, key)
    roll = make_roll(trained.env, trained.algorithm, count)(*policy, commands)
    units = table.UNITS if can_record(trained.env.env) else {}  # another environment's metrics may be of anything
    console.print(table.of_policy(roll.numbers, units))
    told["evaluation"] = table.numbers_of(roll.numbers)
    if arguments.table:
        each = table.grid(trained.env.env.config.commands)
        many = max(1, count // len(each))
        commands = jnp.repeat(jnp.array(each), many, axis=0)
        rolled = make_roll(trained.env, trained.algorithm, len(each) * many, len(each))(*policy, commands)
        told["table"] = table.rows(each, rolled, many)
        console.print(table.of_commands(told["table"]))
    return roll, told


def _show(trained: Trained, found: tuple[Roll, dict], paths: dict[str, Path], library: str | None) -> None:
    """Writes all files that were asked for, and names each."""
    roll, told = found
    env, trace = trained.env.env, roll.trace
    if "--out" in paths:
        outputs.write(paths["--out"], lambda path: path.write_text(json.dumps(told, indent=1) + "\n"))
        print(paths["--out"])
    if "--plot" in paths:
        from strl_jax.viewer import plot

        names = (env.config.robot.joints, env.config.robot.feet) if can_record(env) else ((), ())
        form = paths["--plot"].suffix.lower().removeprefix(".")
        outputs.write(paths["--plot"], lambda path: plot.draw(path, form, trace, env.dt, *names))
        print(paths["--plot"])
    if "--html" not in paths and "--video" not in paths:
        return
    from strl_jax.viewer import page, scene, video  # import MuJoCo

    model, title = (
        scene.of(env, trace["qpos"]),
        f"{trained.config.env.name}, {trained.kind} checkpoint of iteration {trained.iteration}",
    )
    if "--html" in paths:
        text = page.build(model, trace, env.dt, title)
        outputs.write(paths["--html"], lambda path: path.write_text(text))
        print(paths["--html"])
    if "--video" in paths:
        outputs.write(paths["--video"], partial(video.make, library=library, model=model, trace=trace, dt=env.dt))
        print(paths["--video"])


if __name__ == "__main__":
    sys.exit(main())
