"""Every pytree that crosses a module boundary.

T is the number of steps of a rollout, B the number of environments (of one
shard), A the action size. Arrays are float32 unless a comment says otherwise.
"""

from typing import Any

import jax
from flax import struct

Array = jax.Array
Obs = dict[str, Array]  # component name -> [..., *component shape]


@struct.dataclass
class EnvState:
    """What an environment adapter returns from ``reset`` and ``step``."""

    physics: Any  # simulator state, leaves [B, ...]
    obs: Obs  # component -> [B, *shape]
    reward: Array  # [B]; this and what follows is None or {} in a state that goes on to the next step
    terminated: Array  # bool[B], the task ended (no value after it)
    timeout: Array  # bool[B], the adapter itself cut the episode
    metrics: dict[str, Array]  # name -> [B], summed over an episode for the log
    extras: dict[str, Array]  # name -> [B, ...], for algorithms (reference motion ...)


@struct.dataclass
class EpisodeState:
    """Environments between two steps, with the step counters of their episodes."""

    env: EnvState  # physics and obs only
    step: Array  # int32[B], steps since the reset


@struct.dataclass
class TimeStep:
    """One environment step as the learner sees it, after automatic resets."""

    obs: Obs  # [B, ...], the first observation of the next episode where done
    reward: Array  # [B], 0 where not valid
    done: Array  # bool[B], any end
    timeout: Array  # bool[B], ends that a time limit caused; subset of done
    terminal_obs: Obs  # [B, ...], the observation that the step itself led to
    valid: Array  # bool[B], false where the simulator returned NaN or infinity
    extras: dict[str, Array]  # [B, ...]
    metrics: dict[str, Array]  # [B]


@struct.dataclass
class StepRecord:
    """What one step leaves for the end of the rollout; after collecting every leaf has a leading T."""

    obs: Obs  # [B, ...], before the step
    action: Array  # [B, A], that the environment received
    sampled: Array  # [B, A], the policy's own action
    mean: Array  # [B, A]
    std: Array  # [B, A]
    reward: Array  # [B], 0 where not valid
    done: Array  # bool[B]
    timeout: Array  # bool[B]
    valid: Array  # bool[B]
    masks: dict[str, Array]  # stage -> bool[B], where the actor saw its estimate
    extras: dict[str, Array]  # [B, ...], of the environment and of the act hook
    terminal_obs: Obs  # [B, ...], after the step and before a reset; only components that something reads
    metrics: Array  # [B, K], the environment's metrics in the order of their sorted names
    carry: Any = None  # memories before the step, [B, ...], where a queue needs them
    stats: Any = None  # statistics that normalised this step, with compat.normalize_while_collecting


@struct.dataclass
class Transition:
    """One stored step; after collecting every leaf has a leading T."""

    obs: Obs  # [T, B, ...]
    action: Array  # [T, B, A]
    log_prob: Array  # [T, B]
    value: Array  # [T, B]
    mean: Array  # [T, B, A]
    std: Array  # [T, B, A]
    reward: Array  # [T, B]
    done: Array  # bool[T, B]
    timeout: Array  # bool[T, B]
    bootstrap: Array  # [T, B], critic on the terminal observation, 0 unless timeout
    valid: Array  # bool[T, B]
    reset: Array  # bool[T, B], the carry is zeroed BEFORE this step
    masks: dict[str, Array]  # stage -> bool[T, B], where the actor saw its estimate
    extras: dict[str, Array]  # [T, B, ...], of the environment and of the hooks


@struct.dataclass
class Rollout:
    """T steps of B environments with what is needed to learn from them."""

    steps: Transition
    carry0: Any  # policy carry at t = 0, leaves [B, ...]
    last_value: Array  # [B], critic on the observation after the last step
    stats: Any  # the statistics that normalised the observations; see rollout.collect
    carries: Any = None  # policy carry before every step, leaves [T, B, ...], where the algorithm keeps it


@struct.dataclass
class Batch:
    """A rollout ready for minibatches; leaves [T, B, ...], once gathered [M, ...] or, recurrent, [T, M, ...]."""

    groups: dict[str, Array]  # group -> [..., D], normalised and flattened
    action: Array  # [..., A]
    log_prob: Array  # [...]
    value: Array  # [...]
    mean: Array  # [..., A]
    std: Array  # [..., A]
    advantage: Array  # [...]
    return_: Array  # [...]
    weight: Array  # [...], 1 where valid, else 0
    reset: Array  # bool[...], the carry is zeroed before this step
    masks: dict[str, Array]  # stage -> bool[...]
    carry: Any  # policy carry at t = 0, leaves [B, ...], {} when feed-forward
    extras: dict[str, Array]  # [..., ...]
    shares: Any = None  # network -> weight[N] of the share of a minibatch's samples that it learns from
    random_carry: Any = None  # mask and carry of modules.random_carry.draw_random_carry; None: no random states


@struct.dataclass
class PolicyOutput:
    """Everything that later code needs from one application of the policy."""

    mean: Array  # [..., A]
    std: Array  # [..., A]
    value: Array  # [...]
    carry: Any  # leaves [B, ...], {} when feed-forward
    estimates: dict[str, Array]  # stage -> [..., E]
    latents: dict[str, Array]  # component -> [..., L], of the actor's encoders


@struct.dataclass
class RunningStats:
    """Running moments of one quantity."""

    mean: Array  # [*shape]
    var: Array  # [*shape]
    count: Array  # []


@struct.dataclass
class TrainState:
    """What the learner changes; replicated on every device."""

    params: dict[str, Any]  # parameter group -> Flax variables
    opt_state: dict[str, Any]  # parameter group -> optax state
    learning_rate: dict[str, Array]  # parameter group -> []
    iteration: Array  # int32[]
    stats: dict[str, Any]  # observation group -> component -> RunningStats; "reward", and those of hooks


@struct.dataclass
class EpisodeSums:
    """Running sums of the episode in progress."""

    reward: Array  # [B]
    length: Array  # int32[B], learning steps of it that were seen
    metrics: dict[str, Array]  # name -> [B]


@struct.dataclass
class RolloutState:
    """What the rollout changes; every leaf has a leading B and is sharded over it."""

    env: EpisodeState
    carry: Any  # policy carry, {} when feed-forward
    reset: Array  # bool[B], zero the carry before the next step
    episode: EpisodeSums
    discounted: Array  # [B], running discounted return of the reward normaliser
    hooks: dict[str, Any]  # hook -> its state
    memory: dict[str, Any]  # what is kept of earlier rollouts: the queue, the replay
    key: Array  # PRNG key[B]; a shard draws from its first, then renews all of them

    @property
    def obs(self) -> Obs:
        """The current observation, ``[B, ...]``."""
        return self.env.env.obs
