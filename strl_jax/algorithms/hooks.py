"""The two places where an algorithm changes a rollout: who acts, and what is rewarded."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from strl_jax.types import Array, Obs, TimeStep, Transition

LABELS = "action_labels"  # the extra of what a teacher would have done


def part_of(data: dict | None, name: str) -> Any:
    """The part ``name`` of what hooks need and nothing changes.

    Raises:
        ValueError: it is not there.
    """
    if name not in (data or {}):
        raise ValueError(f"the algorithm needs data[{name!r}]: give it to init_states, collect and update as data=")
    return data[name]


@dataclass(frozen=True)
class ActHook:
    """Who acts: may put another action in the place of the policy's, and keeps a state for every environment.

    Attributes:
        name: of its state in ``RolloutState.hooks``.
        init: ``(key, num_envs) -> state``, leaves ``[B, ...]``.
        draw: ``(key, T, B) -> drawn``: its random numbers of a rollout, leaves ``[T, B, ...]``.
        act: ``(data, state, obs, action, drawn) -> action, extras, state`` for one step, where
            ``action[B, A]`` is the policy's; extras are stored with the step.
        observe: ``(state, timestep, iteration, drawn) -> state`` after the step; ``iteration`` counts updates.
        prepare: ``(data, steps) -> extras`` for the update, from the stored steps.
        logged: name in the log -> the extra whose mean over a rollout it is.
    """

    name: str
    init: Callable[[Array, int], Any]
    draw: Callable[[Array, int, int], Any]
    act: Callable[[Any, Any, Obs, Array, Any], tuple[Array, dict[str, Array], Any]]
    observe: Callable[[Any, TimeStep, Array, Any], Any]
    prepare: Callable[[Any, Transition], dict[str, Array]]
    logged: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Collected:
    """What a reward hook sees of a rollout, leaves ``[T, B, ...]``.

    Attributes:
        obs: before each step.
        terminal_obs: to which the step itself led, before any reset; the components that hooks asked for.
        next_obs: before the next step, after a reset.
        action, valid, extras: as in ``Transition``.
        iteration: int32 scalar, updates before this rollout.
    """

    obs: Obs
    terminal_obs: Obs
    next_obs: Obs
    action: Array
    valid: Array
    extras: dict[str, Array]
    iteration: Array


@dataclass(frozen=True)
class RewardHook:
    """What is rewarded: looks at a whole rollout, after its steps.

    Attributes:
        name: of its memory in ``RolloutState.memory``.
        components: whose terminal observation it needs.
        init: ``key -> parameter groups, statistics``, each by name.
        reward: ``(params, stats, data, key, collected, reward, axis_name) -> reward, extras,
            stats, metrics``: the new reward ``[T, B]``, what is stored with the steps, the
            statistics after the rollout, and scalars for the log under their full names.
        prepare: ``(stats, steps) -> extras`` for the update, from the stored steps.
        observe: ``(stats, steps, axis_name) -> stats`` after the update.
        ends: ``(params, stats, obs, env_state) -> bool[B]``: which episodes end with a step, or None.
        memory_size: steps of earlier rollouts that it keeps; 0: none.
        remember: ``steps -> tree`` of leaves ``[T, B, ...]``: what of a step is kept.
        recall: ``(stats, ring, key, minibatch) -> minibatch``, with what was kept.
    """

    name: str
    components: tuple[str, ...]
    init: Callable[[Array], tuple[dict[str, Any], dict[str, Any]]]
    reward: Callable[..., tuple[Array, dict[str, Array], dict, dict[str, Array]]]
    prepare: Callable[[dict, Transition], dict[str, Array]]
    observe: Callable[[dict, Transition, str | None], dict]
    ends: Callable[..., Array] | None = None
    memory_size: int = 0
    remember: Callable[[Transition], Any] | None = None
    recall: Callable[..., Any] | None = None
