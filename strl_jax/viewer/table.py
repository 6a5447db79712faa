"""Numbers of episodes for people to read: all of one policy, and one row for each command."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from rich.table import Table

from strl_jax.viewer.roll import Roll

SHARES = (0.5, 1.0)  # of the way from the command nearest to standing to the end of a range
NAMES = ("lin_vel_x", "lin_vel_y", "ang_vel_yaw")
UNITS = {"tracking_error": "velocity RMSD, m/s", "yaw_error": "yaw rate RMSD, rad/s", "CoT": "cost of transport"}
MISSING = "-"


def trained_ranges(config) -> list[tuple[float, float]]:
    """Least and greatest vx, vy and yaw rate of a ``CommandsConfig``."""
    return [getattr(config.ranges, name) for name in NAMES]


def grid(config) -> list[tuple[float, float, float]]:
    """Commands over the ranges of a ``CommandsConfig``: standing or next to it, and along each axis, half and all.

    Those that training never gave are left out: planar ones shorter than ``smallest``.
    """
    ranges = trained_ranges(config)
    middle = tuple(min(max(0.0, low), high) for low, high in ranges)
    found = [middle] if not config.zero_probability else [(0.0, 0.0, 0.0), middle]
    for axis, limits in enumerate(ranges):
        for end in reversed(limits):
            for share in SHARES:
                value = middle[axis] + share * (end - middle[axis])
                found.append((*middle[:axis], value, *middle[axis + 1 :]))
    return [row for row in dict.fromkeys(found) if not 0 < math.hypot(*row[:2]) <= config.smallest]


def outside(command: Sequence[float], config) -> list[str]:
    """A line for every part of a command that is beyond the range of a ``CommandsConfig``."""
    return [
        f"{name} {value:g} is outside of [{low:g}, {high:g}], the range that the policy was trained in"
        for name, value, (low, high) in zip(NAMES, command, trained_ranges(config), strict=True)
        if not low <= value <= high
    ]


def rows(commands: Sequence[Sequence[float]], roll: Roll, episodes: int) -> list[dict]:
    """One row for each command, JSON-able; what is not known is None.

    Args:
        roll: of groups, one for each command, of so many ``episodes``.
    """
    names = {"velocity_rmsd": "metric/tracking_error", "yaw_rmsd": "metric/yaw_error", "cot": "metric/CoT"}
    found = []
    for index, command in enumerate(commands):
        row = {"command": list(command), "velocity": [known(x) for x in roll.velocity[index]]}
        row |= {key: known(roll.numbers[name][index]) for key, name in names.items()}
        if not any(command[:2]):  # the cost of a way that is not wanted says nothing
            row["cot"] = None
        row |= {"survival": known(roll.numbers["survival"][index]), "episodes": episodes}
        found.append(row)
    return found


def known(value: float) -> float | None:
    """A finite number, else None: JSON has no NaN."""
    return float(value) if math.isfinite(value) else None


def of_commands(found: Sequence[Mapping]) -> Table:
    """The rows as a table, 78 characters wide."""
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="")
    heads = ("command", "", "", "velocity", "", "", "RMSD", "yaw RMSD", "CoT", "survival")
    units = ("m/s", "m/s", "rad/s", "m/s", "m/s", "rad/s", "m/s", "rad/s", "", "")
    for head, unit in zip(heads, units, strict=True):
        table.add_column(f"{head}\n{unit}", justify="right", no_wrap=True)
    for row in found:
        numbers = [row["velocity_rmsd"], row["yaw_rmsd"], row["cot"]]
        table.add_row(
            *(_number(x, ".2f") for x in (*row["command"], *row["velocity"])),
            *(_number(x, ".3f") for x in numbers),
            _number(row["survival"], ".0%"),
        )
    return table


def of_policy(numbers: Mapping[str, float], units: Mapping[str, str] = UNITS) -> Table:
    """Everything that ``evaluation.summarize`` gives.

    Args:
        units: metric -> what it is called; those come first.
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
        table.add_row(units.get(name, name), f"{metrics[name]:.4g}")
    return table


def numbers_of(numbers: Mapping[str, np.ndarray]) -> dict[str, float | None]:
    """The numbers for JSON."""
    return {name: known(value) for name, value in numbers.items()}


def _number(value: float | None, form: str) -> str:
    text = MISSING if value is None else format(value, form)
    return text.removeprefix("-") if text.strip("-0.") == "" and value is not None else text  # no -0.00
