"""torch's ReduceLROnPlateau: a learning rate that falls when a number of the update no longer improves."""

from typing import Annotated, Literal

import jax.numpy as jnp
from pydantic import Field

from strl_jax.algorithms.scheduler import Scheduler
from strl_jax.algorithms.schedules import Step
from strl_jax.section import Text
from strl_jax.types import Array

Size = Annotated[float, Field(ge=0, le=1e30)]


class ReduceLROnPlateau(Scheduler):
    """The rate is multiplied by ``factor`` after ``patience`` iterations without a better ``metric``.

    torch's user gives the metric to ``step``. Here it is a loss or another number of the update, by its name in the
    log without ``Loss/``: its mean over the minibatches of an iteration.
    """

    mode: Literal["min", "max"] = "min"
    factor: Annotated[float, Field(ge=0, lt=1)] = 0.1
    patience: Step = 10
    threshold: Size = 1e-4
    threshold_mode: Literal["rel", "abs"] = "rel"
    cooldown: Step = 0
    min_lr: Annotated[float, Field(ge=0, le=1e3)] = 0.0
    eps: Size = 1e-8
    metric: Text = "distillation_loss"

    def init(self) -> dict[str, Array]:
        """State before the first iteration: the best metric, and two counts of iterations."""
        worst = jnp.inf if self.mode == "min" else -jnp.inf
        return {"best": jnp.float32(worst), "bad": jnp.int32(0), "cooldown": jnp.int32(0)}

    def step(self, state: dict[str, Array], rate: Array, metric: Array) -> tuple[dict[str, Array], Array]:
        """State and learning rate after an iteration with this ``metric`` ``[]``; NaN is not better than the best."""
        better = self._is_better(metric, state["best"])
        cools = state["cooldown"] > 0
        bad = jnp.where(better | cools, 0, state["bad"] + 1)
        reduce = bad > self.patience
        lower = jnp.maximum(rate * self.factor, self.min_lr)
        new_state = {
            "best": jnp.where(better, metric, state["best"]),
            "bad": jnp.where(reduce, 0, bad),
            "cooldown": jnp.where(reduce, self.cooldown, state["cooldown"] - cools),
        }
        return new_state, jnp.where(reduce & (rate - lower > self.eps), lower, rate)

    def _is_better(self, metric: Array, best: Array) -> Array:
        sign = 1.0 if self.mode == "min" else -1.0
        limit = best - sign * self.threshold if self.threshold_mode == "abs" else best * (1.0 - sign * self.threshold)
        return metric < limit if self.mode == "min" else metric > limit
