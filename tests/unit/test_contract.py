"""Environments that do not keep to the protocol are told in one line, with what was found and what is wanted."""

from dataclasses import dataclass, field

import jax.numpy as jnp
import pytest
from commands import Walk

from strl_jax.envs import contract, probe
from strl_jax.envs.base import Env
from strl_jax.types import EnvState


@dataclass(frozen=True)
class Other(Walk):
    """``Walk`` with other fields in the states of one function, or other attributes."""

    function: str = ""
    fields: dict = field(default_factory=dict)

    def reset(self, key):
        return self._change("reset", super().reset(key))

    def step(self, state, action):
        return self._change("step", super().step(state, action))

    def merge(self, done, fresh, state):
        return self._change("merge", super().merge(done, fresh, state))

    def finite(self, state):
        return jnp.ones(()) if self.function == "finite" else super().finite(state)

    def _change(self, function, state):
        if function != self.function:
            return state
        return state.replace(**{name: change(getattr(state, name)) for name, change in self.fields.items()})


def without(name):
    return lambda values: {key: value for key, value in values.items() if key != name}


def column(value):
    return value[:, None]


FAULTS = {
    "reward as a column": ("step", {"reward": column}, "step: reward is float32[B, 1]; it must be float[B]"),
    "one reward for all": ("step", {"reward": jnp.sum}, "step: reward is float32[]; it must be float[B]"),
    "no reward": ("step", {"reward": lambda _: None}, "step: reward is NoneType; it must be float[B]"),
    "counted reward": ("step", {"reward": jnp.int32}, "step: reward is int32[B]; it must be float[B]"),
    "end as a column": ("step", {"timeout": column}, "step: timeout is bool[B, 1]; it must be bool or number[B]"),
    "observation lacks": (
        "step",
        {"obs": without("goal")},
        "step: obs has no 'goal', which is in observation_shapes; it has position",
    ),
    "observation lacks at first": (
        "reset",
        {"obs": without("position")},
        "reset: obs has no 'position', which is in observation_shapes; it has goal",
    ),
    "observation of another shape": (
        "reset",
        {"obs": lambda obs: obs | {"position": obs["position"][:, 0]}},
        "reset: obs['position'] is float32[B]; it must be number[B, 1]",
    ),
    "observation of another type": (
        "step",
        {"obs": lambda obs: obs | {"position": jnp.int32(obs["position"])}},
        "step: obs['position'] is int32[B, 1]; reset gives float32[B, 1]; they must be equal",
    ),
    "observation that appears": (
        "step",
        {"obs": lambda obs: obs | {"extra": obs["goal"]}},
        "step: obs['extra'] is present; reset gives absent; they must be equal",
    ),
    "no dict": ("step", {"obs": lambda obs: obs["goal"]}, "step: obs is float32[B, 1, 2]; it must be a dict"),
    "metric as a column": (
        "step",
        {"metrics": lambda values: values | {"CoT": column(values["CoT"])}},
        "step: metrics['CoT'] is float32[B, 1]; it must be number[B]",
    ),
    "extra of no environment": (
        "step",
        {"extras": lambda _: {"time": jnp.zeros(7)}},
        "step: extras['time'] is float32[7]; its first axis must be the environments, [B, ...]",
    ),
    "physics of no environment": (
        "reset",
        {"physics": lambda _: {"time": jnp.zeros(())}},
        "reset: physics['time'] is float32[]; its first axis must be the environments, [B, ...]",
    ),
    "physics that grow": (
        "step",
        {"physics": lambda physics: (column(physics[0]), physics[1])},
        "step: physics[0] is float32[B, 1]; reset gives float32[B]; they must be equal",
    ),
    "merge that changes": (
        "merge",
        {"physics": lambda physics: (jnp.int32(physics[0]), physics[1])},
        "merge: state.physics[0] is int32[B]; its input was float32[B]; they must be equal",
    ),
    "finite for all": ("finite", {}, "finite: the result is float32[]; it must be bool[B]"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_state_of_another_form(fault):
    function, fields, expected = FAULTS[fault]
    with pytest.raises(contract.ContractError) as caught:
        contract.check(Other(function, fields))
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"action_size": 0}, "action_size is 0; it must be an integer >= 1"),
        ({"action_size": 1.0}, "action_size is 1.0; it must be an integer >= 1"),
        ({"episode_length": 0}, "episode_length is 0; it must be an integer >= 1"),
        ({"dt": 0.0}, "dt is 0.0; it must be a number of seconds above 0"),
        ({"dt": "0.1"}, "dt is '0.1'; it must be a number of seconds above 0"),
        ({"observation_shapes": {}}, "observation_shapes is {}; it must map the names of components to their shapes"),
        ({"observation_shapes": {"a": 3}}, "observation_shapes['a'] is 3; it must be a tuple of integers >= 1"),
        ({"observation_shapes": {"a": (0,)}}, "observation_shapes['a'] is (0,); it must be a tuple of integers >= 1"),
    ],
)
def test_attributes(attributes, expected):
    with pytest.raises(contract.ContractError) as caught:
        contract.check(type("Wrong", (Walk,), attributes)())
    assert str(caught.value) == expected


def test_what_gives_no_state():
    class Bare(Walk):
        def step(self, state, action):
            return state.obs

    with pytest.raises(contract.ContractError, match=r"^step: the result is dict; .* strl_jax\.types\.EnvState$"):
        contract.check(Bare())


class Least(Env):
    """No more than the protocol asks for: numbers for ends, nothing but an observation after a reset."""

    observation_shapes = {"state": [2], "scalar": ()}  # noqa: RUF012 (read only)
    action_size = jnp.int32(2)
    dt = jnp.float32(0.1).item()
    episode_length = 1

    def reset(self, key):
        obs = {"state": jnp.zeros((key.shape[0], 2)), "scalar": jnp.zeros(key.shape)}
        return EnvState((), obs, None, None, None, None, None)

    def step(self, state, action):
        ended = action[:, 0]
        return EnvState((), state.obs | {"scalar": ended}, ended, ended, jnp.int32(ended), {}, {})


def test_what_keeps_to_it():
    contract.check(Least())
    contract.check(Walk())
    for name in probe.PROBES:
        contract.check(probe.make(name))
