"""Layouts of observations as st_rl writes them: component -> shape, in order."""

from typing import Any

from strl_jax.config.errors import ConfigError, show
from strl_jax.observations import Segments
from strl_jax.section import MOST

KEY = "algorithm.teacher_policy"


def read_segments(value: Any, key: str) -> Segments:
    """The layout in ``teacher_policy.KEY``: a mapping of components to shapes, which are lists or one size.

    Raises:
        ConfigError: it is something else.
    """
    given = value.items() if isinstance(value, dict) else ()
    shapes = {name: [shape] if _is_size(shape) else shape for name, shape in given}
    if not shapes or not all(isinstance(shape, list) and all(map(_is_size, shape)) for shape in shapes.values()):
        example = "such as {proprioception: [48], height: [1, 21, 11]}"
        raise ConfigError(f"{KEY}.{key}: {show(value)} is not allowed; it must map components to shapes, {example}")
    return Segments(tuple(shapes), tuple(map(tuple, shapes.values())))


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST
