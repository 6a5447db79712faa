"""Tables of evaluation results: of the policy, and of each command of a grid."""

import math
from collections.abc import Mapping, Sequence

from rich.table import Table

from strl_jax.viewer.roll import Roll

SHARES = (0.5, 1.0)  # commands on an axis, as fractions of the distance from the base command to the end of the range
NAMES = ("lin_vel_x", "lin_vel_y", "ang_vel_yaw")
UNITS = {"tracking_error": "velocity RMSD, m/s", "yaw_error": "yaw rate RMSD, rad/s", "CoT": "cost of transport"}
MISSING = "-"


def trained_ranges(config) -> list[tuple[float, float]]:
    """Ranges (low, high) of vx, vy (m/s) and yaw rate (rad/s) of a ``CommandsConfig``."""
    return [getattr(config.ranges, name) for name in NAMES]


def grid(config) -> list[tuple[float, float, float]]:
    """Commands (vx, vy, yaw rate) over the ranges of a ``CommandsConfig``.

    The base command is the one closest to zero in the ranges. The others differ from it on
    one axis, at ``SHARES`` of the distance to each end of the range. Standing still is added
    if training has it. Planar velocities up to ``smallest`` do not occur in training, and are left out.
    """
    ranges = trained_ranges(config)
    base = tuple(min(max(0.0, low), high) for low, high in ranges)
    commands = [base] if not config.zero_probability else [(0.0, 0.0, 0.0), base]
    for axis, limits in enumerate(ranges):
        for end in reversed(limits):
            for share in SHARES:
                value = base[axis] + share * (end - base[axis])
                commands.append((*base[:axis], value, *base[axis + 1 :]))
    return [row for row in dict.fromkeys(commands) if not 0 < math.hypot(*row[:2]) <= config.smallest]


def outside(command: Sequence[float], config) -> list[str]:
    """One line for every component of a command that is outside of its range in a ``CommandsConfig``."""
    return [
        f"{name} {value:g} is outside of [{low:g}, {high:g}], the range that the policy was trained in"
        for name, value, (low, high) in zip(NAMES, command, trained_ranges(config), strict=True)
        if not low <= value <= high
    ]


def rows(commands: Sequence[Sequence[float]], roll: Roll, episodes: int) -> list[dict]:
    """One row per command, for JSON; a value that could not be measured is None.

    Args:
        commands: C commands (vx, vy, yaw rate), m/s, m/s and rad/s.
        roll: result with C groups, one per command.
        episodes: number of episodes of each group.
    """
    names = {"velocity_rmsd": "metric/tracking_error", "yaw_rmsd": "metric/yaw_error", "cot": "metric/CoT"}
    result = []
    for index, command in enumerate(commands):
        row = {"command": list(command), "velocity": [known(x) for x in roll.velocity[index]]}
        row |= {key: known(roll.numbers[name][index]) for key, name in names.items()}
        if not any(command[:2]):  # cost of transport has no meaning without a planar velocity
            row["cot"] = None
        row |= {"survival": known(roll.numbers["survival"][index]), "episodes": episodes}
        result.append(row)
    return result


def known(value: float) -> float | None:
    """The value if it is finite, otherwise None, because JSON has no NaN."""
    return float(value) if math.isfinite(value) else None


def of_commands(commands: Sequence[Mapping]) -> Table:
    """Table of the result of ``rows``, 78 characters wide."""
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="")
    heads = ("command", "", "", "velocity", "", "", "RMSD", "yaw RMSD", "CoT", "survival")
    units = ("m/s", "m/s", "rad/s", "m/s", "m/s", "rad/s", "m/s", "rad/s", "", "")
    for head, unit in zip(heads, units, strict=True):
        table.add_column(f"{head}\n{unit}", justify="right", no_wrap=True)
    for row in commands:
        numbers = [row["velocity_rmsd"], row["yaw_rmsd"], row["cot"]]
        table.add_row(
            *(_number(x, ".2f") for x in (*row["command"], *row["velocity"])),
            *(_number(x, ".3f") for x in numbers),
            _number(row["survival"], ".0%"),
        )
    return table


def of_policy(numbers: Mapping[str, float], units: Mapping[str, str] = UNITS) -> Table:
    """Table of the result of ``evaluation.summarize``.

    Args:
        numbers: name -> value.
        units: metric -> title with unit; these metrics come first.
    """
    table = Table(box=None, pad_edge=False)
    for name in ("", "mean", "std", "min", "max"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for name in ("return", "length"):
        table.add_row(name, *(f"{numbers[f'{kind}_{name}']:.4g}" for kind in ("mean", "std", "min", "max")))
    table.add_row("survival", f"{numbers['survival']:.1%}")
    if numbers["invalid"]:
        table.add_row("cut by NaN", f"{numbers['invalid']:.0f}")
    metrics = {name.removeprefix("metric/"): x for name, x in numbers.items() if name.startswith("metric/")}
    for name in [*(name for name in units if name in metrics), *(name for name in metrics if name not in units)]:
        table.add_row(units.get(name, name), _number(known(metrics[name]), ".4g"))
    return table


def _number(value: float | None, form: str) -> str:
    text = MISSING if value is None else format(value, form)
    return text.removeprefix("-") if text.strip("-0.") == "" and value is not None else text  # no -0.00
