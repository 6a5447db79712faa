"""With which probability the teacher acts, as a function of the iteration."""

import math
import sys
from collections.abc import Callable

import jax
import jax.numpy as jnp

from strl_jax.types import Array

OPTIONS = ("linear", "exp", "tanh")


def make(option: str | float, scale: float) -> Callable[[Array], Array]:
    """st_rl's ``teacher_act_prob`` with ``update_times_scale``; iterations to float32 in [0, 1].

    With iteration x and scale s: ``linear`` max(0, 1 - x / s); ``exp`` (1 - 1 / s)^x;
    ``tanh`` (1 - tanh((x - s) / s)) / 2, which begins at 0.881. A number is the
    probability itself at every iteration.

    Raises:
        ValueError: another option, a number outside of [0, 1], a scale that is not
            above 0, or for ``exp`` one under 1, where (1 - 1 / s)^x changes its sign.
    """
    if type(option) in (int, float) and 0 <= option <= 1:
        return lambda iteration: jnp.float32(option)
    if option not in OPTIONS:
        raise ValueError(f"teacher_act_prob {option!r} is not one of {', '.join(OPTIONS)} or a number from 0 to 1")
    least = 1 if option == "exp" else 0
    if type(scale) not in (int, float) or not (least <= scale < math.inf and scale > 0):
        allowed = "at least 1 with teacher_act_prob 'exp'" if least else "above 0"
        raise ValueError(f"update_times_scale {scale!r} must be {allowed} and finite")
    formula = {"linear": _linear, "exp": _exp, "tanh": _tanh}[option]
    return lambda iteration: formula(jnp.asarray(iteration, jnp.float32), scale)


def _linear(x: Array, scale: float) -> Array:
    return jnp.maximum((scale - x) / scale, 0.0)


def _exp(x: Array, scale: float) -> Array:
    # A power in float32 rounds its base first, and the iteration multiplies that error.
    return jnp.exp(x * math.log(max(1 - 1 / scale, sys.float_info.min)))


def _tanh(x: Array, scale: float) -> Array:
    # (1 - tanh y) / 2 = sigmoid(-2 y), which keeps its digits where tanh is near 1.
    return jax.nn.sigmoid(-2 * (x - scale) / scale)
