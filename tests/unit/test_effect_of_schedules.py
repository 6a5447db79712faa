"""Every argument of a schedule changes the lowered function."""

import jax
import jax.numpy as jnp
import pytest
from pydantic import TypeAdapter

from strl_jax.algorithms import schedules
from strl_jax.algorithms.schedules import Coefficient, Schedule

LINE = {"init_value": 1.0, "end_value": 0.5, "transition_steps": 10}
BASES = {
    "constant": {"value": 1.0},
    "linear": LINE,
    "polynomial": LINE | {"power": 2.0},
    "cosine_decay": {"init_value": 1.0, "decay_steps": 10},
    "exponential_decay": {"init_value": 1.0, "transition_steps": 10, "decay_rate": 0.5},
    "warmup_cosine_decay": {"init_value": 0.1, "peak_value": 1.0, "warmup_steps": 2, "decay_steps": 10},
    "piecewise_constant": {"init_value": 1.0, "boundaries_and_scales": {5: 0.5}},
}
VALUES = {
    "value": 0.7,
    "init_value": 0.7,
    "end_value": 0.3,
    "peak_value": 0.7,
    "transition_begin": 3,
    "transition_steps": 7,
    "decay_steps": 7,
    "warmup_steps": 3,
    "power": 3.0,
    "alpha": 0.1,
    "exponent": 2.0,
    "decay_rate": 0.7,
    "staircase": True,
    "boundaries_and_scales": {6: 0.5},
}
KINDS = {kind.model_fields["name"].annotation.__args__[0]: kind for kind in Schedule.__subclasses__()}
EACH = [(name, key) for name, kind in KINDS.items() for key in kind.model_fields if key != "name"]


def lowered(schedule) -> str:
    return jax.jit(schedule).lower(jnp.int32(0)).as_text()


@pytest.mark.parametrize(("name", "key"), EACH)
def test_schedule(name, key):
    assert name in BASES, f"give this file a schedule {name!r}"
    assert key in VALUES, f"give this file another value of {key!r}"
    texts = [
        lowered(schedules.make(TypeAdapter(Coefficient).validate_python({"name": name} | BASES[name] | changes)))
        for changes in ({}, {key: VALUES[key]})
    ]
    assert texts[0] != texts[1]
