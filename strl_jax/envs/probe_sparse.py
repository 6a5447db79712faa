"""A probe environment whose only reward is far away: what exploration finds."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from strl_jax.envs.probe_base import Probe, check_whole, env_state
from strl_jax.types import Array, EnvState


@dataclass(frozen=True)
class Sparse(Probe):
    """A walk from 0 to ``length`` with reward 1 at its end that costs a little on the way.

    The action, within [-1, 1], moves a position x that stays in [0, length]. An episode ends
    where x >= length - 1/2; the time limit is 2 ``length`` steps. The reward is 1 at the end, less
    ``cost`` max(action, 0), like the mountain car's. ``state`` = x / length; ``place[B, length]``,
    for a novelty bonus, has a 1 at the whole number nearest to x. Metric ``reached`` = 1 at the end.

    From the start a walk of actions N(0, 1) reaches the end in about one of 10000 episodes, so that
    a learner without a bonus sees the cost alone and finds mean <= 0, V = 0. One who has found the
    end, with gamma near 1, finds mean >= 1: its return is 1 - cost length, and V = gamma^(n-1) - cost (1 - gamma^n) /
    (1 - gamma) with n steps to go. (The best return is cost / 2 above, with a last step of 1/2.)
    """

    length: int = 16
    cost: float = 0.01

    def __post_init__(self):
        check_whole("length", self.length, 2)
        if not 0.0 <= self.cost * self.length < 1.0:
            raise ValueError(f"cost is {self.cost}; it must lie in [0, 1 / {self.length}), or the end is not worth it")

    @property
    def observation_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"state": (1,), "place": (int(self.length),)}

    @property
    def episode_length(self) -> int:
        return 2 * int(self.length)

    def reset(self, key: Array) -> EnvState:
        zero = jnp.zeros(key.shape[0])
        return self._at(zero, zero)

    def step(self, state: EnvState, action: Array) -> EnvState:
        move = jnp.clip(action[:, 0], -1.0, 1.0)
        return self._at(jnp.clip(state.physics + move, 0.0, self.length), move)

    def _at(self, position: Array, move: Array) -> EnvState:
        reached = position >= self.length - 0.5
        reward = reached - self.cost * jnp.maximum(move, 0.0)
        nearest = jnp.minimum(jnp.floor(position + 0.5), self.length - 1)  # the end counts as the last place
        place = jax.nn.one_hot(nearest.astype(jnp.int32), int(self.length))
        state = env_state(position, position / self.length, reward, terminated=reached, place=place)
        return state.replace(metrics={"reached": reached.astype(jnp.float32)})
