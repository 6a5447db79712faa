"""Reports of values that are not finite: one line for each origin, and the counts of each iteration."""

from collections.abc import Callable, Sequence

from strl_jax.types import Origins

LIMITED = ("observation ", "reward", "extra ")  # parts of a step whose magnitude is limited too


class OriginReport:
    """Warns once about each origin of values that are not finite.

    Args:
        warn: called with the line of each new origin.
    """

    def __init__(self, warn: Callable[[str], None]):
        self._warn, self._reported = warn, set()

    def read(self, iteration: int, origins: Sequence[Origins]) -> dict[str, float]:
        """Warns about new origins. Returns ``NonFinite/ORIGIN``, how often it occurred; nothing for finite values.

        Args:
            origins: of an iteration, on the host.
        """
        values: dict[str, float] = {}
        for group in origins:
            for index, name in enumerate(group.names):
                count = int(group.count[index])
                if not count:
                    continue
                values.setdefault(f"NonFinite/{name}", float(count))
                if name not in self._reported:
                    self._reported.add(name)
                    self._warn(f"iteration {iteration}: {_describe(group, index, count)}")
        return values


def _describe(group: Origins, index: int, count: int) -> str:
    name = group.names[index]
    if group.first is None:
        zeros = "; 0 is used instead" if group.unit == "initial states" else ""
        return f"{name} {_fault(name)} in {count} of {group.total} {group.unit}{zeros}"
    more = f" (first of {count} {group.unit})" if count > 1 else ""
    return f"env {int(group.first[index])} of {group.total}: {name} {_fault(name)}{more}"


def _fault(name: str) -> str:
    limited = name.startswith(LIMITED) and not name.startswith(("reward of", "reward term"))
    return "is not finite or >= 1e9" if limited else "is not finite"
