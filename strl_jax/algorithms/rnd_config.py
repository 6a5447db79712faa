"""The config of random network distillation."""

from typing import Annotated, Literal

import jax.numpy as jnp
from pydantic import Field, field_validator, model_validator

from strl_jax.algorithms import schedules
from strl_jax.algorithms.schedules import Coefficient, Number, Step
from strl_jax.modules.mlp import get_activation
from strl_jax.section import MOST, Count, LearningRate, Positive, Section
from strl_jax.types import Array

Width = Annotated[int, Field(ge=-1, le=MOST)]
NEEDS = {
    "constant": (),
    "step": ("final_step", "final_value"),
    "linear": ("initial_step", "final_step", "final_value"),
}


class WeightSchedule(Section):
    """rsl_rl's schedule of the weight. Its steps are those of every environment, counted over all iterations.

    Attributes:
        mode: constant; step: ``final_value`` from ``final_step`` on; linear: a straight line to it.
        initial_step: step at which the line begins.
        final_step: step at which ``final_value`` is reached.
        final_value: the last weight, not multiplied by the time step.
    """

    mode: Literal[tuple(NEEDS)]
    initial_step: Step | None = None
    final_step: Step | None = None
    final_value: Number | None = None

    @model_validator(mode="after")
    def _has_what_its_mode_needs(self):
        needs = NEEDS[self.mode]
        for key in ("initial_step", "final_step", "final_value"):
            if (getattr(self, key) is not None) != (key in needs):
                raise ValueError(f"{key}: mode {self.mode} needs {', '.join(needs) or 'no other key'}")
        if self.mode == "linear" and self.final_step <= self.initial_step:
            raise ValueError(f"final_step: {self.final_step} must be above initial_step {self.initial_step}")
        return self

    def weights(self, initial: float, iteration: Array, num_steps: int) -> Array:
        """Weights ``[T]`` of the steps of an iteration."""
        if self.mode == "constant":
            return jnp.full(num_steps, initial, jnp.float32)
        # A step far beyond the last one does not fit into int32.
        before = jnp.minimum(iteration, self.final_step // num_steps + 1) * num_steps
        step = before + 1 + jnp.arange(num_steps)
        if self.mode == "step":
            return jnp.where(step < self.final_step, jnp.float32(initial), self.final_value)
        share = (step - self.initial_step) / (self.final_step - self.initial_step)
        return initial + (self.final_value - initial) * jnp.clip(share, 0.0, 1.0)


class RNDConfig(Section):
    """The keywords of rsl_rl's ``rnd_cfg``, then those of this library.

    The default sizes differ from rsl_rl's, whose embedding has one output: a predictor soon learns it everywhere.

    Attributes:
        weight: factor of the intrinsic reward, a number, or a schedule ``{name: linear,
            init_value: ..., ...}`` of the iteration.
        weight_schedule: rsl_rl's schedule of the weight, ``{mode: linear, initial_step: ..., final_step: ...,
            final_value: ...}``, ``{mode: step, final_step: ..., final_value: ...}``, ``{mode: constant}`` or null;
            only with ``rsl_rl``.
        num_outputs: length of the embedding.
        predictor_hidden_dims, target_hidden_dims: sizes of the hidden layers; -1: the size of the input.
        activation: name of the activation.
        learning_rate: learning rate of the predictor.
        state_normalization: normalise each entry of the networks' input.
        reward_normalization: divide the intrinsic reward by its standard deviation plus the
            algorithm's ``normalization_eps``; with ``rsl_rl`` by that of its discounted sum.
        rsl_rl: the weight is multiplied by the time step, ``weight_schedule`` is allowed, and rewards are
            normalised as in rsl_rl. Default: false; true for an ``rnd_cfg`` with keys that only rsl_rl has.
        max_grad_norm: norm to which the predictor's gradient is clipped; null: it is not.
    """

    weight: Coefficient = 1.0
    weight_schedule: WeightSchedule | None = None
    num_outputs: Count = 16
    predictor_hidden_dims: tuple[Width, ...] = (256, 256)
    target_hidden_dims: tuple[Width, ...] = (256, 256)
    activation: str = "elu"
    learning_rate: LearningRate = 1e-3
    state_normalization: bool = False
    reward_normalization: bool = False

    rsl_rl: bool = False
    max_grad_norm: Positive | None = 1.0

    @field_validator("predictor_hidden_dims", "target_hidden_dims")
    @classmethod
    def _no_empty_layer(cls, value):
        if 0 in value:
            raise ValueError("a hidden layer must have a size >= 1, or -1 for the size of the input")
        return value

    @field_validator("activation")
    @classmethod
    def _activation_exists(cls, value):
        get_activation(value)
        return value

    @model_validator(mode="after")
    def _schedule_is_that_of_rsl_rl(self):
        if self.weight_schedule is not None and not self.rsl_rl:
            raise ValueError("weight_schedule: it needs rsl_rl: true; without it, weight can be a schedule")
        if self.weight_schedule is not None and isinstance(self.weight, schedules.Schedule):
            raise ValueError("weight: it must be a number where weight_schedule is given")
        return self

    def weights(self, dt: float, iteration: Array, num_steps: int) -> Array:
        """Weights ``[]`` or ``[T]`` of the steps of an iteration; ``dt`` is the time step in seconds."""
        if self.weight_schedule is not None:
            return self.weight_schedule.weights(self.weight * dt, iteration, num_steps)
        weight = schedules.make(self.weight)(iteration)
        return weight * dt if self.rsl_rl else weight
