"""Probe environments that test the actor: one step with one best action."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from strl_jax.envs.probe.base import Probe, env_state, signs, tracking_state
from strl_jax.types import Array, EnvState


@dataclass(frozen=True)
class Action(Probe):
    """One step, reward -(action - target)^2. Mean = target; metric ``tracking_error`` = |action - target|."""

    target: float = 0.5

    def reset(self, key: Array) -> EnvState:
        zero = jnp.zeros(key.shape[0])
        return tracking_state(zero, zero, zero, terminated=False)

    def step(self, state: EnvState, action: Array) -> EnvState:
        return tracking_state(state.physics, state.physics, action[:, 0] - self.target, terminated=True)


@dataclass(frozen=True)
class StateAction(Probe):
    """``action`` with target = observation, which is -1 or 1. Mean = observation."""

    def reset(self, key: Array) -> EnvState:
        sign = signs(key)
        return tracking_state(sign, sign, jnp.zeros_like(sign), terminated=False)

    def step(self, state: EnvState, action: Array) -> EnvState:
        return tracking_state(state.physics, state.physics, action[:, 0] - state.physics, terminated=True)


@dataclass(frozen=True)
class Nan(Probe):
    """``state_action`` whose physics turns NaN with ``probability`` at each step. Mean = observation.

    An environment that is NaN never terminates: only a reset makes it valid again.
    """

    probability: float = 0.1

    def __post_init__(self):
        if not 0.0 <= self.probability <= 1.0:
            raise ValueError(f"probability is {self.probability}; it must be in [0, 1]")

    def reset(self, key: Array) -> EnvState:
        sign_key, noise_key = jax.vmap(jax.random.split, out_axes=1)(key)
        sign = signs(sign_key)
        physics = {"sign": sign, "age": jnp.zeros_like(sign), "key": noise_key}
        return tracking_state(physics, sign, jnp.zeros_like(sign), terminated=False)

    def step(self, state: EnvState, action: Array) -> EnvState:
        next_key, noise_key = jax.vmap(jax.random.split, out_axes=1)(state.physics["key"])
        broken = jax.vmap(lambda key: jax.random.bernoulli(key, self.probability))(noise_key)
        sign = jnp.where(broken, jnp.nan, state.physics["sign"])
        age = jnp.where(broken, jnp.nan, state.physics["age"] + 1.0)
        physics = {"sign": sign, "age": age, "key": next_key}
        return tracking_state(physics, sign, action[:, 0] - sign, terminated=age >= 1.0)


@dataclass(frozen=True)
class TwoGroups(Probe):
    """The actor observes ``state``, the critic ``state`` and ``hidden``; each is -1 or 1.

    One step, reward = hidden - (action - state - hidden / 2)^2. An actor that does not
    observe ``hidden`` learns mean = state, and its critic V = hidden - std^2 - 1/4 (std of
    the actions); an actor that observes it learns mean = state + hidden / 2.
    """

    observation_shapes = {"state": (1,), "hidden": (1,)}  # noqa: RUF012 (read only)

    def reset(self, key: Array) -> EnvState:
        seen_key, hidden_key = jax.vmap(jax.random.split, out_axes=1)(key)
        physics = {"seen": signs(seen_key), "hidden": signs(hidden_key)}
        return env_state(physics, physics["seen"], 0.0, terminated=False, hidden=physics["hidden"][:, None])

    def step(self, state: EnvState, action: Array) -> EnvState:
        seen, hidden = state.physics["seen"], state.physics["hidden"]
        reward = hidden - jnp.square(action[:, 0] - seen - hidden / 2)
        return env_state(state.physics, seen, reward, terminated=True, hidden=hidden[:, None])


@dataclass(frozen=True)
class Image(Probe):
    """One step, one pixel of 1 in ``image[B, 1, 8, 8]``, which is 0 elsewhere; reward -(action - target)^2.

    The target is the column of the pixel, from -1 (left) to 1 (right). Mean = target; metric
    ``tracking_error`` = |action - target|.
    """

    observation_shapes = {"state": (1,), "image": (1, 8, 8)}  # noqa: RUF012 (read only)

    def reset(self, key: Array) -> EnvState:
        pixel = jax.vmap(lambda k: jax.random.randint(k, (2,), 0, 8))(key)
        return self._image_state(pixel, jnp.zeros((key.shape[0], 1)), terminated=False)

    def step(self, state: EnvState, action: Array) -> EnvState:
        return self._image_state(state.physics, action, terminated=True)

    def _image_state(self, pixel: Array, action: Array, *, terminated: bool) -> EnvState:
        error = action[:, 0] - (pixel[:, 1] / 3.5 - 1.0)
        rows, columns = jax.nn.one_hot(pixel[:, 0], 8), jax.nn.one_hot(pixel[:, 1], 8)
        image = rows[:, None, :, None] * columns[:, None, None, :]
        return tracking_state(pixel, jnp.zeros_like(error), error, terminated=terminated, image=image)
