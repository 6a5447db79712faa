"""A probe environment that tests exploration: its only reward is far from the start."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from strl_jax.envs.probe.base import Probe, check_whole, env_state
from strl_jax.types import Array, EnvState


@dataclass(frozen=True)
class Sparse(Probe):
    """A walk from position 0 to ``length``; moving has a cost, and only the end has a reward.

    The action, clipped to [-1, 1], moves a position x, which is clipped to [0, length]. A step that leads
    to x >= length - 1/2 has reward 1; a step to the right by d costs ``cost`` d, as in the mountain car.
    An episode ends only at the time limit, 2 ``length`` steps: if the reward ended it, an explorer would
    lose the rest of its novelty bonus. ``state`` = x / length; ``place[B, length]``, for the bonus, is one-hot
    at the integer nearest to x, at most length - 1. Metric ``reached`` = 1 at steps with reward 1.

    At the start of training, actions N(0, 1) reach the reward in about one of 10000 episodes. A learner
    without a bonus observes only the cost and learns mean <= 0, V = 0 (sometimes the errors of its
    untrained critic lead it to the reward). A learner that has reached the reward learns mean >= 1: the
    return is length + 1 - cost length, and V = (gamma^(n-1) - cost (1 - gamma^n)) / (1 - gamma) with
    n = length - x >= 1 remaining steps, if gamma is so near 1 that this is above 0.
    """

    length: int = 16
    cost: float = 0.2

    def __post_init__(self):
        check_whole("length", self.length, 2)
        if not 0.0 <= self.cost <= 1.0:
            raise ValueError(f"cost is {self.cost}; it must be in [0, 1]")

    @property
    def observation_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"state": (1,), "place": (int(self.length),)}

    @property
    def episode_length(self) -> int:
        return 2 * int(self.length)

    def reset(self, key: Array) -> EnvState:
        zero = jnp.zeros(key.shape[0])
        return self._state_at(zero, zero)

    def step(self, state: EnvState, action: Array) -> EnvState:
        position = jnp.clip(state.physics + jnp.clip(action[:, 0], -1.0, 1.0), 0.0, self.length)
        return self._state_at(position, position - state.physics)

    def _state_at(self, position: Array, moved: Array) -> EnvState:
        reached = position >= self.length - 0.5
        reward = reached - self.cost * jnp.maximum(moved, 0.0)
        nearest = jnp.minimum(jnp.floor(position + 0.5), self.length - 1)  # x = length counts as the last place
        place = jax.nn.one_hot(nearest.astype(jnp.int32), int(self.length))
        metrics = {"reached": reached.astype(jnp.float32)}
        return env_state(position, position / self.length, reward, terminated=False, metrics=metrics, place=place)
