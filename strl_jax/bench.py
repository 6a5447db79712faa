"""``python -m strl_jax.bench --config FILE [key=value ...]``: training speed of a config on this machine."""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import jax
from jax.sharding import PartitionSpec as P

from strl_jax import config as config_module
from strl_jax.algorithms import train_step
from strl_jax.builders import checks
from strl_jax.config import ConfigError
from strl_jax.run_folder import layout
from strl_jax.run_folder.atomic import replaced
from strl_jax.runners import launch, process
from strl_jax.runners.log import scalars
from strl_jax.runners.log.streams import lasting_stdout
from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.sharding import AXIS, shard_jit


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parses the command line; None: the arguments of the process."""
    parser = launch.Parser(prog="python -m strl_jax.bench", description="Measure the training speed of a config.")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings that replace those of the file")
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="YAML config")
    parser.add_argument("--repeats", type=int, default=10, metavar="N", help="timed calls of each program; default: 10")
    parser.add_argument("--warmup", type=int, default=5, metavar="N", help="iterations before timing; default: 5")
    parser.add_argument("--out", type=Path, default=Path("bench.json"), metavar="FILE", help="JSON file (bench.json)")
    launch.add_arguments(parser)
    arguments = parser.parse(argv)
    if arguments.repeats < 1 or arguments.warmup < 0:
        parser.error("--repeats must be >= 1 and --warmup >= 0")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns the exit code: 0, 2 for bad input, or 130 if interrupted."""
    begin = time.perf_counter()
    arguments = parse(argv)
    return launch.guarded(partial(_run, arguments, begin), "interrupted before the end of the measurement")


def _run(arguments: argparse.Namespace, begin: float) -> int:
    config, lines = config_module.load(arguments.config, arguments.overrides)
    launch.print_lines("warning", *lines)
    out = arguments.out.absolute()  # an environment may change the working directory
    _check_out(out)
    launch.initialize(arguments)
    launch.use_compilation_cache()
    runner = OnPolicyRunner(None, config)
    try:
        checks.check_trains(config, runner.algorithm.policy)
        result = measure(runner, arguments.warmup, arguments.repeats, begin)
    finally:
        runner.close()
    if jax.process_index() == 0:
        with replaced(out) as file:
            file.write(json.dumps(result, indent=2) + "\n")
        with lasting_stdout():
            print("\n".join(f"{name:34s} {_show(value)}" for name, value in result.items() if name != "config"))
            print(f"written: {arguments.out}")
    return 0


def _check_out(path: Path) -> None:
    """Checks that the file can be written, before minutes of measurement. Raises ``ConfigError``."""
    if not path.parent.is_dir():
        raise ConfigError(f"--out: {path}: there is no folder {path.parent}")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ConfigError(f"--out: {path} cannot be written")


def measure(runner: OnPolicyRunner, warmup: int, repeats: int, begin: float) -> dict:
    """Measures the fused iteration, its two halves and the physics alone, as separate programs.

    Physics only is a scan of the simulator's step under random actions, without policy,
    resets and storage. It is not a strict upper bound of the speed: an adapter can keep
    less of the simulator's state, see ``envs.live_leaves``.

    Args:
        warmup: untimed iterations between the first two and the timed ones.
        repeats: measured calls of each program.
        begin: ``time.perf_counter()`` at the start of the command.

    Returns:
        A dict that JSON can store: median seconds of each program, environment steps per second, ratios,
        compile seconds, peak memory in bytes, versions and the config.
    """
    programs = runner.programs
    programs.request("step")
    train, rollout = runner.fresh_states(runner.config.runner.init_at_random_ep_len)
    step = programs.get("step")

    train, rollout, _ = jax.block_until_ready(step(train, rollout, runner.data))
    first = time.perf_counter()
    train, rollout, _ = jax.block_until_ready(step(train, rollout, runner.data))
    steady = time.perf_counter()
    for _ in range(warmup):
        train, rollout, _ = step(train, rollout, runner.data)
    fused, (train, rollout) = _time_chain(lambda *states: step(*states, runner.data), (train, rollout), repeats)
    seconds = {"fused": fused, **_time_parts(runner, train, rollout, repeats)}
    return {
        "compile_seconds": dict(programs.seconds),
        "time_to_first_iteration": first - begin,
        "time_to_first_steady_iteration": steady - begin,
        **_report(runner, seconds),
        "peak_memory_bytes_per_device": scalars.memory_bytes(),
        "versions": layout.versions(),
        "config": config_module.to_dict(runner.config),
    }


def time_physics(runner: OnPolicyRunner, repeats: int) -> float:
    """Median seconds of an iteration's steps in the simulator alone, two iterations after its reset.

    The actions are uniform in [-1, 1].
    """
    env, config = runner.env.env, runner.config
    reset, step = runner.env.simulator()

    def steps(state, key):
        key = jax.random.fold_in(key, jax.lax.axis_index(AXIS))
        shape = (config.runner.num_steps_per_env, config.env.num_envs // runner.mesh.size, env.action_size)
        actions = jax.random.uniform(key, shape, minval=-1.0, maxval=1.0)
        return jax.lax.scan(lambda state, action: (step(state, action), None), state, actions)[0]

    run = shard_jit(steps, runner.mesh, in_specs=(P(AXIS), P()), out_specs=P(AXIS))
    key = jax.random.key(config.seed)
    keys = jax.random.split(key, config.env.num_envs)
    state = shard_jit(reset, runner.mesh, in_specs=P(AXIS), out_specs=P(AXIS))(keys)
    for index in range(2):
        state = jax.block_until_ready(run(state, jax.random.fold_in(key, index)))
    return _time_chain(lambda: (run(state, key),), (), repeats)[0]


def _time_parts(runner: OnPolicyRunner, train, rollout, repeats: int) -> dict[str, float]:
    collect = train_step.make_collect(runner.env, runner.algorithm, runner.mesh, runner.config.runner.num_steps_per_env)
    train, rollout, steps = jax.block_until_ready(collect(train, rollout, runner.data))
    chain = (train, rollout)
    collect_seconds, (train, rollout) = _time_chain(lambda *states: collect(*states, runner.data), chain, repeats)

    update, key = train_step.make_update(runner.algorithm, runner.mesh), jax.random.key(0)
    arguments = (steps, rollout.memory, runner.data, key)
    train = jax.block_until_ready(update(train, *arguments))[0]
    update_seconds, _ = _time_chain(lambda state: update(state, *arguments), (train,), repeats)
    return {"physics_only": time_physics(runner, repeats), "collect": collect_seconds, "update": update_seconds}


def _report(runner: OnPolicyRunner, seconds: dict[str, float]) -> dict:
    steps, devices = runner.steps_per_iteration, runner.mesh.size
    rates = {name: steps / seconds[name] for name in ("fused", "collect", "physics_only")}
    return {
        "seconds": seconds,
        "steps_per_second": rates,
        "steps_per_second_per_device": {name: rate / devices for name, rate in rates.items()},
        "fraction_of_physics_only": seconds["physics_only"] / seconds["fused"],
        "devices": devices,
        "env_steps_per_iteration": steps,
    }


def _time_chain(program: Callable, states: tuple, repeats: int) -> tuple[float, tuple]:
    """Median seconds of a program whose first results are its next arguments. Returns also the last results."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        states = jax.block_until_ready(program(*states))[: len(states)]
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), states


def _show(value) -> str:
    if isinstance(value, dict):
        return "  ".join(f"{name} {_show(item)}" for name, item in value.items())
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    process.leave(main())
