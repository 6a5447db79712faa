"""Arguments of torch's schedulers, optimisers and losses that have no effect; see ``rules``."""

from collections.abc import Iterator, Mapping
from typing import Any

from strl_jax.algorithms import estimator_losses, lr_schedulers, optimizers
from strl_jax.algorithms.estimator import EstimatorFields
from strl_jax.algorithms.lr_cycles import Cycle, CyclicLR
from strl_jax.algorithms.ppo import PPOConfig
from strl_jax.algorithms.scheduler import Scheduler
from strl_jax.algorithms.tppo import TeacherFields
from strl_jax.config import Config

Arguments = Iterator[tuple[str, str]]  # name, reason


def argument_keys(config: Config) -> Iterator[tuple[str, str]]:
    """The dotted keys of arguments that are given, are not the default, and have no effect, each with the reason."""
    algorithm, scheduler = config.algorithm, scheduler_of(config.algorithm)
    if scheduler is not None:
        defaults = {name: field.default for name, field in type(scheduler).model_fields.items()}
        yield from _given("lr_scheduler", algorithm.lr_scheduler, defaults, _of_scheduler(scheduler))
    optimizer = optimizers.OPTIMIZERS[algorithm.optimizer_class_name].model_validate(algorithm.optimizer_kwargs)
    defaults = {name: field.default for name, field in type(optimizer).model_fields.items()}
    yield from _given("optimizer_kwargs", algorithm.optimizer_kwargs, defaults, _of_optimizer(optimizer, scheduler))
    if isinstance(algorithm, EstimatorFields):
        name, kwargs = algorithm.estimator_loss_func, algorithm.estimator_loss_kwargs
        yield from _given("estimator_loss_kwargs", kwargs, estimator_losses.arguments(name), _of_loss(name, kwargs))


def scheduler_of(algorithm: PPOConfig) -> Scheduler | None:
    """torch's scheduler of the learning rate, or None."""
    if not isinstance(algorithm, TeacherFields) or algorithm.lr_scheduler_class_name is None:
        return None
    return lr_schedulers.find(algorithm.lr_scheduler_class_name, algorithm.lr_scheduler)


def _given(key: str, given: Mapping[str, Any], defaults: Mapping[str, Any], unused: Arguments) -> Arguments:
    for name, why in unused:
        value = given.get(name, defaults[name])
        if (tuple(value) if isinstance(value, list) else value) != defaults[name]:
            yield f"algorithm.{key}.{name}", why


def _of_scheduler(scheduler: Scheduler) -> Arguments:
    if isinstance(scheduler, CyclicLR) and scheduler.mode != "exp_range":
        yield "gamma", "only mode: exp_range uses it"
    if isinstance(scheduler, Cycle) and not scheduler.cycle_momentum:
        for name in ("base_momentum", "max_momentum"):
            yield name, "it needs cycle_momentum: true"


def _of_optimizer(optimizer: optimizers.Optimizer, scheduler: Scheduler | None) -> Arguments:
    fields = type(optimizer).model_fields
    if scheduler is not None and scheduler.changes_momentum:
        why = f"{type(scheduler).__name__} with cycle_momentum: true sets"
        if "momentum" in fields:
            yield "momentum", f"{why} it"
        elif optimizer.betas[1] == fields["betas"].default[1]:
            yield "betas", f"{why} the first beta, and the second is the default"
    elif isinstance(optimizer, optimizers.SGD) and optimizer.momentum == 0:
        yield "nesterov", "it needs a momentum above 0"


def _of_loss(name: str, kwargs: Mapping[str, Any]) -> Arguments:
    if name == "poisson_nll_loss" and kwargs.get("log_input", True):
        yield "eps", "it needs log_input: false"
