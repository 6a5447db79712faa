"""Every argument of a schedule changes the lowered function, and so does every argument of torch's schedulers."""

import jax
import jax.numpy as jnp
import pytest
from pydantic import TypeAdapter

from strl_jax.algorithms import lr_schedulers, schedules
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
OF_TORCH = {
    "step_size": 7,
    "gamma": 0.7,
    "milestones": [3],
    "T_max": 7,
    "eta_min": 0.1,
    "T_0": 7,
    "T_mult": 2,
    "start_factor": 0.7,
    "end_factor": 0.7,
    "factor": 0.7,
    "total_iters": 7,
    "power": 2.0,
}
TORCH_BASES = {"step_size": 10, "gamma": 0.5, "milestones": [5], "T_max": 10, "T_0": 10}
KINDS = {kind.model_fields["name"].annotation.__args__[0]: kind for kind in Schedule.__subclasses__()}
EACH = [(name, key) for name, kind in KINDS.items() for key in kind.model_fields if key != "name"]
EACH_OF_TORCH = [(name, key) for name, kind in lr_schedulers.SCHEDULERS.items() for key in kind.model_fields]


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


@pytest.mark.parametrize(("name", "key"), EACH_OF_TORCH)
def test_scheduler_of_torch(name, key):
    assert key in OF_TORCH, f"give this file another value of {key!r}"
    fields = lr_schedulers.SCHEDULERS[name].model_fields
    arguments = {field: value for field, value in TORCH_BASES.items() if field in fields}
    texts = [lowered(lr_schedulers.make(name, arguments | more, 1.0)) for more in ({}, {key: OF_TORCH[key]})]
    assert texts[0] != texts[1]
