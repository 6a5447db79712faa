"""Hooks: the places where an algorithm changes a rollout: its observations, its actions and its rewards."""

from dataclasses import dataclass
from typing import Any, ClassVar

from flax import struct

from strl_jax.storage.ring import Ring
from strl_jax.types import Array, Batch, EnvState, Obs, TimeStep, Transition

LABELS = "action_labels"  # the extra that holds a teacher's actions


def part_of(data: dict | None, name: str) -> Any:
    """The entry ``name`` of the constant data of an algorithm's hooks.

    Raises:
        ValueError: there is no such entry.
    """
    if name not in (data or {}):
        raise ValueError(f"the algorithm needs data[{name!r}]: give it to init_states, collect and update as data=")
    return data[name]


def _check_name(cls: type) -> None:
    if not isinstance(getattr(cls, "name", None), str):
        raise TypeError(f"{cls.__name__} needs a class attribute name, the key of its state")


@dataclass(frozen=True)
class ObsHook:
    """Base class of a hook that adds components to the observation, such as a skill that each episode draws.

    The components can be members of any observation group. Evaluations add them too. The hook keeps a state
    for every environment.

    Attributes:
        name: key of its state in ``RolloutState.hooks``.
    """

    name: ClassVar[str]

    def __init_subclass__(cls):
        _check_name(cls)

    def init(self, key: Array, num_envs: int) -> Any:
        """The state of ``num_envs`` new environments, leaves ``[B, ...]``; it may contain PRNG keys."""
        return {}

    def components(self, state: Any, obs: Obs) -> Obs:
        """The components to add to the observation, leaves ``[B, ...]``."""
        raise NotImplementedError

    def observe(self, state: Any, timestep: TimeStep) -> Any:
        """The state after the environment's step; where ``timestep.done``, a new episode begins."""
        return state


@dataclass(frozen=True)
class ActHook:
    """Base class of a hook that may replace the policy's action. It keeps a state for every environment.

    Attributes:
        name: key of its state in ``RolloutState.hooks``.
        logged: name in the log -> the extra whose mean over a rollout is logged.
    """

    name: ClassVar[str]
    logged: ClassVar[dict[str, str]] = {}

    def __init_subclass__(cls):
        _check_name(cls)

    def init(self, key: Array, num_envs: int) -> Any:
        """The state of ``num_envs`` new environments, leaves ``[B, ...]``."""
        return {}

    def draw(self, key: Array, num_steps: int, num_envs: int) -> Any:
        """The random numbers of a rollout, leaves ``[T, B, ...]``."""
        return {}

    def act(
        self, data: dict | None, state: Any, obs: Obs, action: Array, drawn: Any
    ) -> tuple[Array, dict[str, Array], Any]:
        """The executed action ``[B, A]``, extras to store with the step, and the new state.

        Args:
            data: constant data, such as a teacher's weights.
            action: the policy's action, ``[B, A]``.
            drawn: this step's part of ``draw``.
        """
        return action, {}, state

    def observe(self, state: Any, timestep: TimeStep, iteration: Array, drawn: Any) -> Any:
        """The state after the environment's step; ``iteration`` counts updates."""
        return state

    def prepare(self, data: dict | None, steps: Transition) -> dict[str, Array]:
        """Extras ``[T, B, ...]`` for the update, computed from the stored steps."""
        return {}


@struct.dataclass
class Collected:
    """A rollout as a reward hook sees it; leaves ``[T, B, ...]`` unless a comment says otherwise."""

    obs: Obs  # before each step
    terminal_obs: Obs  # after the step and before any reset; only components that the critic or a hook needs
    next_obs: Obs  # before the next step; at the end of an episode, after the reset
    action: Array  # [T, B, A]
    valid: Array  # bool
    extras: dict[str, Array]
    iteration: Array  # int32[], number of updates before this rollout
    params: dict[str, Any]  # parameter groups of the algorithm
    key: Array | None = None  # PRNG key [] of this hook
    data: dict | None = None  # constant data of the hooks
    state: Any = None  # of this hook, one for each environment, leaves [B, ...]; see RewardHook.init_envs
    axis_name: str | None = struct.field(pytree_node=False, default=None)  # of the shards


@struct.dataclass
class Rewarded:
    """What a reward hook returns for a rollout."""

    reward: Array  # [T, B], the new reward
    stats: dict[str, Any]  # statistics after the rollout
    extras: dict[str, Array]  # [T, B, ...], stored with the steps
    log: dict[str, Array]  # complete name in the log, with its section -> []
    state: Any = struct.field(default_factory=dict)  # of the environments after the rollout, leaves [B, ...]


@dataclass(frozen=True)
class RewardHook:
    """Base class of a hook that changes the rewards of a whole rollout, after its steps.

    Attributes:
        name: key of its ring in ``RolloutState.memory``, and of its state in ``RolloutState.hooks``.
    """

    name: ClassVar[str]

    def __init_subclass__(cls):
        _check_name(cls)
        if "memory_size" in vars(cls) and (cls.remember is RewardHook.remember or cls.recall is RewardHook.recall):
            raise TypeError(f"{cls.__name__} has a memory_size, so it must define remember and recall")

    @property
    def components(self) -> tuple[str, ...]:
        """Components whose terminal observations it needs."""
        return ()

    @property
    def ends_episodes(self) -> bool:
        """Whether ``ends`` terminates episodes: where a subclass defines it."""
        return type(self).ends is not RewardHook.ends

    @property
    def memory_size(self) -> int:
        """Steps of earlier rollouts that it keeps; 0: none."""
        return 0

    def init(self, key: Array) -> tuple[dict[str, Any], dict[str, Any]]:
        """New parameter groups and statistics, each by name."""
        return {}, {}

    def init_envs(self, num_envs: int) -> Any:
        """The state of ``num_envs`` new environments, leaves ``[B, ...]``."""
        return {}

    def reward(self, collected: Collected, stats: dict, reward: Array) -> Rewarded:
        """The new reward; ``reward[T, B]`` is the environment's after the earlier hooks."""
        return Rewarded(reward, stats, {}, {})

    def prepare(self, stats: dict, steps: Transition) -> dict[str, Array]:
        """Extras ``[T, B, ...]`` for the update, computed from the stored steps."""
        return {}

    def observe(self, stats: dict, steps: Transition, axis_name: str | None) -> dict:
        """The statistics after the update."""
        return stats

    def ends(self, params: dict, stats: dict, obs: Obs, env_state: EnvState) -> Array:
        """bool ``[B]``: episodes that end with this step, from the state after it."""
        raise NotImplementedError

    def remember(self, steps: Transition) -> Any:
        """The part of the steps to keep, leaves ``[T, B, ...]``."""
        raise NotImplementedError

    def recall(self, stats: dict, ring: Ring, key: Array, minibatch: Batch) -> Batch:
        """The minibatch with samples from the kept steps."""
        raise NotImplementedError
