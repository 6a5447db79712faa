"""Tiny environments without physics whose exact answers are known, one for each thing that can go wrong.

After Andy Jones, "Debugging RL, without the agonizing pain" (2021). Each one says
what a right learner finds: V is the critic, mean the actor's action.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from strl_jax.envs.base import Env
from strl_jax.types import Array, EnvState


class Probe(Env):
    """One action, one component ``state[B, 1]``, steps of one second."""

    observation_shapes = {"state": (1,)}  # noqa: RUF012 (read only)
    action_size = 1
    dt = 1.0
    episode_length = 10


@dataclass(frozen=True)
class Constant(Probe):
    """One step, reward 1, observation 0. V = 1."""

    def reset(self, key: Array) -> EnvState:
        zero = jnp.zeros(key.shape[0])
        return _state(zero, zero, zero, terminated=False)

    def step(self, state: EnvState, action: Array) -> EnvState:
        del action
        return _state(state.physics, state.physics, 1.0, terminated=True)


@dataclass(frozen=True)
class ObservedReward(Probe):
    """One step, observation -1 or 1, the reward is the observation. V = observation."""

    def reset(self, key: Array) -> EnvState:
        sign = _signs(key)
        return _state(sign, sign, 0.0, terminated=False)

    def step(self, state: EnvState, action: Array) -> EnvState:
        del action
        return _state(state.physics, state.physics, state.physics, terminated=True)


@dataclass(frozen=True)
class Discounted(Probe):
    """Two steps, the observation counts them, reward 1 with the second. V(0) = gamma, V(1) = 1."""

    def reset(self, key: Array) -> EnvState:
        age = jnp.zeros(key.shape[0])
        return _state(age, age, 0.0, terminated=False)

    def step(self, state: EnvState, action: Array) -> EnvState:
        del action
        age = state.physics + 1.0
        last = age >= 2.0
        return _state(age, age, last.astype(jnp.float32), terminated=last)


@dataclass(frozen=True)
class Action(Probe):
    """One step, reward -(action - target)^2. Mean = target; metric ``tracking_error`` = |action - target|."""

    target: float = 0.5

    def reset(self, key: Array) -> EnvState:
        zero = jnp.zeros(key.shape[0])
        return _state(zero, zero, zero, terminated=False, tracking_error=zero)

    def step(self, state: EnvState, action: Array) -> EnvState:
        error = action[:, 0] - self.target
        zero = state.physics
        return _state(zero, zero, -jnp.square(error), terminated=True, tracking_error=jnp.abs(error))


@dataclass(frozen=True)
class StateAction(Probe):
    """``action`` with target = observation, which is -1 or 1. Mean = observation."""

    def reset(self, key: Array) -> EnvState:
        sign = _signs(key)
        return _state(sign, sign, 0.0, terminated=False, tracking_error=jnp.zeros_like(sign))

    def step(self, state: EnvState, action: Array) -> EnvState:
        sign = state.physics
        error = action[:, 0] - sign
        return _state(sign, sign, -jnp.square(error), terminated=True, tracking_error=jnp.abs(error))


@dataclass(frozen=True)
class Timeout(Probe):
    """Reward 1 at every step, no end but the time limit, observation 0.

    V = 1 / (1 - gamma) if a time-out is credited with gamma V, less if it counts as an end.
    """

    def reset(self, key: Array) -> EnvState:
        zero = jnp.zeros(key.shape[0])
        return _state(zero, zero, zero, terminated=False)

    def step(self, state: EnvState, action: Array) -> EnvState:
        del action
        return _state(state.physics, state.physics, 1.0, terminated=False)


@dataclass(frozen=True)
class Cycle(Probe):
    """Observation 1, -1, 1 ... from either; reward 1 for a step from 1, else 0; no end but the time limit.

    V(1) = 1 / (1 - gamma^2), V(-1) = gamma V(1). With a time limit of one step a
    learner that credits a time-out with gamma V(s_t) finds 1 / (1 - gamma) and 0,
    one that credits the observation after the reset finds values between the two.
    """

    episode_length = 1

    def reset(self, key: Array) -> EnvState:
        sign = _signs(key)
        return _state(sign, sign, 0.0, terminated=False)

    def step(self, state: EnvState, action: Array) -> EnvState:
        del action
        sign = state.physics
        return _state(-sign, -sign, (sign > 0).astype(jnp.float32), terminated=False)


@dataclass(frozen=True)
class Nan(Probe):
    """``state_action`` whose physics turns NaN with ``probability`` at each step. Mean = observation.

    An environment that has turned NaN never terminates: only a reset brings it back.
    """

    probability: float = 0.1

    def __post_init__(self):
        if not 0.0 <= self.probability <= 1.0:
            raise ValueError(f"probability is {self.probability}; it must lie in [0, 1]")

    def reset(self, key: Array) -> EnvState:
        sign_key, noise_key = jax.vmap(jax.random.split, out_axes=1)(key)
        sign = _signs(sign_key)
        physics = {"sign": sign, "age": jnp.zeros_like(sign), "key": noise_key}
        return _state(physics, sign, 0.0, terminated=False, tracking_error=jnp.zeros_like(sign))

    def step(self, state: EnvState, action: Array) -> EnvState:
        next_key, noise_key = jax.vmap(jax.random.split, out_axes=1)(state.physics["key"])
        broken = jax.vmap(lambda key: jax.random.bernoulli(key, self.probability))(noise_key)
        sign = jnp.where(broken, jnp.nan, state.physics["sign"])
        age = jnp.where(broken, jnp.nan, state.physics["age"] + 1.0)
        physics = {"sign": sign, "age": age, "key": next_key}
        error = action[:, 0] - sign
        return _state(physics, sign, -jnp.square(error), terminated=age >= 1.0, tracking_error=jnp.abs(error))


@dataclass(frozen=True)
class TwoGroups(Probe):
    """``state`` is for the actor; ``hidden``, too, for the critic; each is -1 or 1.

    One step, reward = hidden - (action - state - hidden / 2)^2. An actor that does
    not see ``hidden`` finds mean = state, its critic V = hidden - std^2 - 1/4 (std of
    the actions); one that sees it finds state + hidden / 2.
    """

    observation_shapes = {"state": (1,), "hidden": (1,)}  # noqa: RUF012 (read only)

    def reset(self, key: Array) -> EnvState:
        seen_key, hidden_key = jax.vmap(jax.random.split, out_axes=1)(key)
        physics = {"seen": _signs(seen_key), "hidden": _signs(hidden_key)}
        return _state(physics, physics["seen"], 0.0, terminated=False, hidden=physics["hidden"])

    def step(self, state: EnvState, action: Array) -> EnvState:
        seen, hidden = state.physics["seen"], state.physics["hidden"]
        reward = hidden - jnp.square(action[:, 0] - seen - hidden / 2)
        return _state(state.physics, seen, reward, terminated=True, hidden=hidden)


@dataclass(frozen=True)
class Remember(Probe):
    """``state_action`` with a delay: the sign is seen at the first step only, 0 after it.

    An episode has ``delay`` + 1 steps, of which only the last is rewarded, with
    -(action - sign)^2; metric ``tracking_error`` = |action - sign| there, 0 before. With a
    memory, the last step's mean = sign and V = -gamma^n std^2 with n steps to go after this
    one (std of the actions). Without one the sign is lost: the last step's mean = 0 and
    V = -gamma^n (1 + std^2).
    """

    delay: int = 4

    def __post_init__(self):
        if self.delay < 1 or self.delay != int(self.delay):
            raise ValueError(f"delay is {self.delay}; it must be a whole number of at least 1")

    @property
    def episode_length(self) -> int:
        return self.delay + 1

    def reset(self, key: Array) -> EnvState:
        sign = _signs(key)
        zero = jnp.zeros_like(sign)
        return _state({"sign": sign, "age": zero}, sign, 0.0, terminated=False, tracking_error=zero)

    def step(self, state: EnvState, action: Array) -> EnvState:
        sign, age = state.physics["sign"], state.physics["age"] + 1.0
        last = age > self.delay
        error = jnp.where(last, action[:, 0] - sign, 0.0)
        physics = {"sign": sign, "age": age}
        return _state(physics, 0 * sign, -jnp.square(error), terminated=last, tracking_error=jnp.abs(error))


@dataclass(frozen=True)
class Image(Probe):
    """One step, one bright pixel in ``image[B, 1, 8, 8]``; reward -(action - target)^2.

    The target is the pixel's column, from -1 (left) to 1 (right). Mean = target; metric
    ``tracking_error`` = |action - target|.
    """

    observation_shapes = {"state": (1,), "image": (1, 8, 8)}  # noqa: RUF012 (read only)

    def reset(self, key: Array) -> EnvState:
        place = jax.vmap(lambda k: jax.random.randint(k, (2,), 0, 8))(key)
        return self._show(place, jnp.zeros((key.shape[0], 1)), terminated=False)

    def step(self, state: EnvState, action: Array) -> EnvState:
        return self._show(state.physics, action, terminated=True)

    def _show(self, place: Array, action: Array, *, terminated: bool) -> EnvState:
        error = action[:, 0] - (place[:, 1] / 3.5 - 1.0)
        state = _state(place, jnp.zeros_like(error), -jnp.square(error), terminated=terminated, tracking_error=error)
        rows, columns = jax.nn.one_hot(place[:, 0], 8), jax.nn.one_hot(place[:, 1], 8)
        image = rows[:, None, :, None] * columns[:, None, None, :]
        return state.replace(obs=state.obs | {"image": image}, metrics={"tracking_error": jnp.abs(error)})


PROBES: dict[str, type[Probe]] = {
    "constant": Constant,
    "observed_reward": ObservedReward,
    "discounted": Discounted,
    "action": Action,
    "state_action": StateAction,
    "timeout": Timeout,
    "cycle": Cycle,
    "nan": Nan,
    "two_groups": TwoGroups,
    "remember": Remember,
    "image": Image,
}


def make(name: str, **kwargs) -> Probe:
    """A probe environment by name.

    Args:
        name: a key of ``PROBES``.
        **kwargs: its options: ``target`` of ``action``, ``probability`` of ``nan``, ``delay`` of
            ``remember``.

    Raises:
        ValueError: unknown name (the message lists the known ones), unknown option,
            or an option out of range.
    """
    if name not in PROBES:
        raise ValueError(f"unknown probe environment {name!r}; known: {', '.join(PROBES)}")
    known = list(PROBES[name].__dataclass_fields__)
    for option in kwargs:
        if option not in known:
            raise ValueError(
                f"probe environment {name!r} has no option {option!r}; its options: {', '.join(known) or 'none'}"
            )
    return PROBES[name](**kwargs)


def _signs(key: Array) -> Array:
    """-1 or 1 for each key, ``[B]``."""
    return jax.vmap(lambda k: jax.random.rademacher(k, (), jnp.float32))(key)


def _state(physics, obs: Array, reward, *, terminated, tracking_error=None, hidden=None) -> EnvState:
    """An ``EnvState`` of ``obs[B]``; ``reward`` and ``terminated`` may be scalars."""
    ended = jnp.broadcast_to(jnp.asarray(terminated), obs.shape)
    components = {"state": obs[:, None]} | ({} if hidden is None else {"hidden": hidden[:, None]})
    return EnvState(
        physics=physics,
        obs=components,
        reward=jnp.broadcast_to(jnp.asarray(reward, jnp.float32), obs.shape),
        terminated=ended,
        timeout=jnp.zeros_like(ended),
        metrics={} if tracking_error is None else {"tracking_error": tracking_error},
        extras={},
    )
