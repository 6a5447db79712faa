"""Every argument of torch's schedulers, optimisers and losses changes a lowered function.

``ARGUMENTS`` in tests/effects_keys.py has those of whole runs.
"""

import jax
import jax.numpy as jnp
import pytest

from strl_jax.algorithms import estimator_losses, lr_schedulers, optimizers
from strl_jax.algorithms.plateau import ReduceLROnPlateau

# Scheduler -> arguments with which the others have an effect. OneCycleLR takes one of two sets of arguments.
SCHEDULERS = {
    "StepLR": {"step_size": 10},
    "MultiStepLR": {"milestones": [5]},
    "ExponentialLR": {"gamma": 0.5},
    "CosineAnnealingLR": {"T_max": 10},
    "CosineAnnealingWarmRestarts": {"T_0": 10},
    "CyclicLR": {"base_lr": 0.1, "max_lr": 1.0, "mode": "exp_range", "gamma": 0.5},
    "OneCycleLR": {"max_lr": 1.0, "total_steps": 10},
}
PARTS = {"max_lr": 1.0, "epochs": 5, "steps_per_epoch": 2}
OF_SCHEDULERS = {
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
    "cycle_momentum": False,
    "base_lr": 0.2,
    "max_lr": 2.0,
    "step_size_up": 7,
    "step_size_down": 7,
    "base_momentum": 0.5,
    "max_momentum": 0.97,
    "total_steps": 20,
    "epochs": 7,
    "steps_per_epoch": 7,
    "pct_start": 0.7,
    "anneal_strategy": "linear",
    "div_factor": 7.0,
    "final_div_factor": 7.0,
    "three_phase": True,
    "patience": 7,
    "threshold": 0.7,
    "threshold_mode": "abs",
    "cooldown": 7,
    "min_lr": 0.1,
    "eps": 0.1,
}
MODES = {"CyclicLR": "triangular2", "ReduceLROnPlateau": "max"}
ELSEWHERE = {("ReduceLROnPlateau", "metric")}  # in effects_keys
EACH_SCHEDULER = [(name, key) for name, kind in lr_schedulers.SCHEDULERS.items() for key in kind.model_fields]

OPTIMIZERS = {"SGD": {"momentum": 0.5}}
OF_OPTIMIZERS = {
    "weight_decay": 0.1,
    "betas": [0.5, 0.7],
    "eps": 1e-3,
    "alpha": 0.5,
    "momentum": 0.7,
    "centered": True,
    "nesterov": True,
    "lr_decay": 0.1,
    "initial_accumulator_value": 0.1,
    "rho": 0.5,
}
EACH_OPTIMIZER = [(name, key) for name, kind in optimizers.OPTIMIZERS.items() for key in kind.model_fields]

LOSSES = {("poisson_nll_loss", "eps"): {"log_input": False}}
OF_LOSSES = {"beta": 0.5, "delta": 0.5, "margin": 0.5, "log_input": False, "full": True, "eps": 0.5, "log_target": True}
EACH_LOSS = [(name, key) for name in estimator_losses.LOSSES for key in estimator_losses.arguments(name)]


def text(function, *arguments) -> str:
    return jax.jit(function).lower(*arguments).as_text()


def of_scheduler(name: str, arguments: dict) -> list[str]:
    scheduler = lr_schedulers.find(name, arguments)
    if isinstance(scheduler, ReduceLROnPlateau):
        state = scheduler.init()
        return [str(state), text(scheduler.step, state, jnp.float32(1), jnp.float32(1))]
    momentum = [text(scheduler.momentum_schedule, jnp.int32(0))] if scheduler.changes_momentum else []
    return [text(lr_schedulers.make(name, arguments, 1.0), jnp.int32(0)), *momentum]


@pytest.mark.parametrize(("name", "key"), [pair for pair in EACH_SCHEDULER if pair not in ELSEWHERE])
def test_argument_of_a_scheduler(name, key):
    values = OF_SCHEDULERS | {"mode": MODES.get(name)}
    assert key in values, f"give this file another value of {key!r}"
    base = PARTS if name == "OneCycleLR" and key in ("epochs", "steps_per_epoch") else SCHEDULERS.get(name, {})
    assert of_scheduler(name, base) != of_scheduler(name, base | {key: values[key]})


@pytest.mark.parametrize(("name", "key"), EACH_OPTIMIZER)
def test_argument_of_an_optimizer(name, key):
    assert key in OF_OPTIMIZERS, f"give this file another value of {key!r}"
    base = OPTIMIZERS.get(name, {})

    def texts(arguments: dict) -> list[str]:
        optimizer, params = optimizers.make(name, None, arguments=arguments), jnp.ones(3)
        return [text(optimizer.init, params), text(optimizer.update, params, optimizer.init(params), params)]

    assert texts(base) != texts(base | {key: OF_OPTIMIZERS[key]})


@pytest.mark.parametrize(("name", "key"), EACH_LOSS)
def test_argument_of_a_loss(name, key):
    assert key in OF_LOSSES, f"give this file another value of {key!r}"
    base = LOSSES.get((name, key), {})
    texts = [
        text(estimator_losses.elementwise_loss(name, base | more), jnp.ones(3), jnp.ones(3))
        for more in ({}, {key: OF_LOSSES[key]})
    ]
    assert texts[0] != texts[1]
