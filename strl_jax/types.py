"""Data structures that the parts of the package exchange, as pytrees.

T is the number of steps of a rollout, B the number of environments (of one shard),
A the action size. Arrays are float32 if the comment names no other type.
"""

from typing import Any

import jax
from flax import struct

Array = jax.Array
Obs = dict[str, Array]  # component name -> [..., *component shape]


@struct.dataclass
class EnvState:
    """State of an environment adapter: the result of ``reset`` and ``step``."""

    physics: Any  # simulator state, leaves [B, ...]
    obs: Obs  # component -> [B, *shape]
    reward: Array  # [B]; reward and all fields below are None or {} in the state that is passed to the next step
    terminated: Array  # bool[B], the task ended the episode, such as by a fall; no value is bootstrapped
    timeout: Array  # bool[B], the adapter itself ended the episode by a time limit
    metrics: dict[str, Array]  # name -> [B], summed over an episode for the log
    extras: dict[str, Array]  # name -> [B, ...], for algorithms (reference motion ...)


@struct.dataclass
class EpisodeState:
    """State of the environments between two steps, with the step counters of their episodes."""

    env: EnvState  # physics and obs only
    step: Array  # int32[B], steps since the reset; the first episodes may start at a random number


@struct.dataclass
class Flags:
    """Named conditions, one bit each; see ``envs.broken``."""

    bits: Array  # uint32[..., W], condition i is bit i % 32 of word i // 32
    names: tuple[str, ...] = struct.field(pytree_node=False)


@struct.dataclass
class TimeStep:
    """Result of one environment step with automatic resets."""

    obs: Obs  # [B, ...]; where done, the first observation of the next episode
    reward: Array  # [B], 0 where not valid
    done: Array  # bool[B], the episode ended, for any reason
    timeout: Array  # bool[B], the episode ended by a time limit; subset of done
    terminal_obs: Obs  # [B, ...], after the step, before a reset; where not valid, an observation of the reset pool
    valid: Array  # bool[B], false where the simulator returned NaN or infinity
    extras: dict[str, Array]  # [B, ...]
    metrics: dict[str, Array]  # [B]
    broken: Flags | None = None  # bits [B, W], parts of the environment that are not finite


@struct.dataclass
class StepRecord:
    """Record of one step during a rollout; in the collected rollout every leaf has a leading axis T."""

    obs: Obs  # [B, ...], before the step
    action: Array  # [B, A], the action that the environment received
    sampled: Array  # [B, A], the action of the policy, before an act hook replaces it
    mean: Array  # [B, A]
    std: Array  # [B, A]
    reward: Array  # [B], 0 where not valid
    done: Array  # bool[B]
    timeout: Array  # bool[B]
    valid: Array  # bool[B]
    masks: dict[str, Array]  # stage -> bool[B], where the actor read the estimate
    extras: dict[str, Array]  # [B, ...], of the environment and of the act hook
    terminal_obs: Obs  # [B, ...], after the step, before a reset; only components that are needed
    metrics: Array  # [B, K], metrics of the environment, sorted by name
    carry: Any = None  # policy carry before the step without the critic's, leaves [B, ...]; None if no queue needs it
    stats: Any = None  # statistics that normalised this step; None without compat.normalize_while_collecting
    broken: Flags | None = None  # bits [B, W], parts of the environment that are not finite


@struct.dataclass
class Transition:
    """Steps of a rollout as the learner uses them."""

    obs: Obs  # [T, B, ...]
    action: Array  # [T, B, A]
    log_prob: Array  # [T, B]
    value: Array  # [T, B]
    mean: Array  # [T, B, A]
    std: Array  # [T, B, A]
    reward: Array  # [T, B]
    done: Array  # bool[T, B]
    timeout: Array  # bool[T, B]
    bootstrap: Array  # [T, B], value of the terminal observation where timeout, otherwise 0
    valid: Array  # bool[T, B]
    reset: Array  # bool[T, B], the carry is set to zero BEFORE this step
    masks: dict[str, Array]  # stage -> bool[T, B], where the actor read the estimate
    extras: dict[str, Array]  # [T, B, ...], of the environment and of the hooks


@struct.dataclass
class Rollout:
    """T steps of B environments, and the state before and after them that learning needs."""

    steps: Transition
    carry0: Any  # policy carry at t = 0, leaves [B, ...]
    last_value: Array  # [B], value of the observation after the last step
    stats: Any  # statistics that normalised the observations; with compat.normalize_while_collecting [T, 1, *shape]
    carries: Any = None  # policy carry before every step, leaves [T, B, ...]; None if the algorithm does not need it


@struct.dataclass
class Origins:
    """Where the values of an iteration were not finite, over all shards."""

    count: Array  # int32[K], for each origin the number of environments, of initial states or of updates
    first: Array | None  # int32[K], the first of these environments; None: not counted by environment
    names: tuple[str, ...] = struct.field(pytree_node=False)  # of the K origins
    total: int = struct.field(pytree_node=False)  # number of all environments, initial states or updates
    unit: str = struct.field(pytree_node=False)  # what is counted


@struct.dataclass
class Metrics:
    """Numbers of one iteration for the log, over all shards."""

    mean_reward_each_timestep: Array  # [], of the environment, over valid steps
    mean_std: Array  # []
    invalid: Array  # [], number of invalid steps
    finished: Array  # [], number of finished episodes
    finished_steps: Array  # [], number of their steps
    episode_metrics: dict[str, Array]  # metric -> sum over these steps, []
    episode_reward: Array  # [shards * window], the last finished episodes, oldest first, NaN where there are fewer
    episode_length: Array  # [shards * window], likewise
    hooks: dict[str, Array]  # full log name -> []
    update: dict[str, Array] | None = None  # name -> [], losses and other numbers of the update
    origins: tuple[Origins, ...] = ()  # of values that are not finite


@struct.dataclass
class Batch:
    """A prepared rollout, leaves [T, B, ...], or a minibatch of it: leaves [M, ...], or [T, M, ...] if recurrent."""

    groups: dict[str, Array]  # group -> [..., D], normalised and flattened
    action: Array  # [..., A]
    log_prob: Array  # [...]
    value: Array  # [...]
    mean: Array  # [..., A]
    std: Array  # [..., A]
    advantage: Array  # [...], normalised
    return_: Array  # [...]
    weight: Array  # [...], 1 where valid, otherwise 0; update scales it per minibatch, see returns.weights
    reset: Array  # bool[...], the carry is set to zero before this step
    masks: dict[str, Array]  # stage -> bool[...]
    carry: Any  # policy carry at t = 0, leaves [B, ...]; {} if feed-forward
    extras: dict[str, Array]  # [..., ...]
    shares: Any = None  # network -> weight[N] of the N samples of a minibatch that the network learns from
    random_carry: Any = None  # mask and carry of modules.random_carry.draw_random_carry; None: no random states


@struct.dataclass
class PolicyOutput:
    """Outputs of the policy; the leading axes are those of its inputs."""

    mean: Array  # [..., A]
    std: Array  # [..., A]
    value: Array | None  # [...]; None from ``infer``
    carry: Any  # after the last step, leaves [B, ...]; {} if feed-forward
    estimates: dict[str, Any]  # stage -> [..., E]; of a mutex policy: sub-policy -> stage -> [..., E]
    latents: dict[str, Any]  # component -> [..., L], of the actor's encoders; of a mutex policy by sub-policy


@struct.dataclass
class RunningStats:
    """Running mean and variance of one quantity."""

    mean: Array  # [*shape]
    var: Array  # [*shape]
    count: Array  # [], number of samples


@struct.dataclass
class TrainState:
    """State of the learner, replicated on every device."""

    params: dict[str, Any]  # parameter group -> Flax variables
    opt_state: dict[str, Any]  # optimiser -> optax state
    learning_rate: dict[str, Array]  # optimiser -> []
    iteration: Array  # int32[]
    stats: dict[str, Any]  # observation group -> component -> RunningStats; also "reward" and statistics of hooks
    lr_scheduler: dict[str, Array] = struct.field(default_factory=dict)  # state of ReduceLROnPlateau, [] each; or {}


@struct.dataclass
class EpisodeSums:
    """Running sums over the current episode of each environment."""

    reward: Array  # [B]
    length: Array  # int32[B], number of summed steps; a random start count of EpisodeState.step is not included
    metrics: dict[str, Array]  # name -> [B]


@struct.dataclass
class RolloutState:
    """State of the rollout; every leaf has a leading axis B and is sharded over it."""

    env: EpisodeState
    carry: Any  # policy carry; {} if feed-forward
    reset: Array  # bool[B], the carry is set to zero before the next step
    episode: EpisodeSums
    discounted: Array  # [B], running discounted return of the reward normaliser
    hooks: dict[str, Any]  # hook -> its state
    memory: dict[str, Any]  # data of earlier rollouts: the queue and the replay buffers
    key: Array  # PRNG key[B]; a shard draws from its first key, then renews all of them

    @property
    def obs(self) -> Obs:
        """The current observation, ``[B, ...]``."""
        return self.env.env.obs
