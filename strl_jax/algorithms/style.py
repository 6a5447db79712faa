"""The style reward of adversarial motion priors as a reward hook.

r = max(0, 1 - (D(s, s') - 1)^2 / 4), from "AMP: Adversarial Motion Priors for Stylized Physics-Based
Character Control" (https://arxiv.org/abs/2104.02180).
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from strl_jax.algorithms import returns
from strl_jax.algorithms.amp_input import EXPERT, POLICY, AmpInput
from strl_jax.algorithms.compat import Compat
from strl_jax.algorithms.hooks import LABELS, Collected, Rewarded, RewardHook
from strl_jax.modules import normalizer
from strl_jax.modules.discriminator import Discriminator, mix_rewards, style_reward
from strl_jax.sharding import pmean
from strl_jax.storage import replay
from strl_jax.storage.ring import Ring
from strl_jax.types import Array, Batch, EnvState, Obs, RunningStats, Transition

DISCRIMINATOR = "discriminator"  # name of the network and of its parameter group
STATS = "amp"  # statistics of the policy's and the expert's states together
REPLAYED = "ref_replay"  # extra of a minibatch: the policy's states of earlier rollouts
EPS, UNTIL = 1e-2, 1e8  # eps and maximum number of samples of st_rl's EmpiricalNormalization
SATURATED = 0.95  # share of steps with style reward 0 above which the log reports a saturated discriminator


@dataclass(frozen=True)
class Style:
    """The discriminator and the weights of its rewards.

    Attributes:
        hidden_dims: sizes of its hidden layers.
        style_reward_coef: factor of the style reward.
        task_reward_lerp: share of the task's reward in the sum; 0: style alone.
        discriminator_grad_pen: factor of the gradient penalty.
        initialization: ``torch`` or ``orthogonal``.
    """

    hidden_dims: tuple[int, ...] = (1024, 512)
    style_reward_coef: float = 2.0
    task_reward_lerp: float = 0.0
    discriminator_grad_pen: float = 5.0
    initialization: str = "torch"

    def score(self, params: dict, states: Array) -> Array:
        """Scores ``[...]`` of normalised states ``[..., D]``; ``params`` are all parameter groups."""
        return self.module.apply(params[DISCRIMINATOR], states)

    @property
    def module(self) -> Discriminator:
        """The network."""
        return Discriminator(self.hidden_dims, self.initialization)


@dataclass(frozen=True)
class StyleHook(RewardHook):
    """The style reward of a discriminator; see ``RewardHook`` for arguments and results.

    Attributes:
        style, amp: the discriminator and its input.
        compat: which behaviours of st_rl are switched on.
        task_reward_w: reward = style + this * task; None: the two are mixed by ``task_reward_lerp``.
        termination_threshold: an episode ends where the style reward without its factor is below this; None: never.
        executed_labels: the action labels are the executed actions.
        memory_size: steps of every environment from which the update draws the policy's states; 0: the
            states of the minibatch are used.
    """

    name = "style"

    style: Style
    amp: AmpInput
    compat: Compat
    task_reward_w: float | None
    termination_threshold: float | None
    executed_labels: bool
    memory_size: int = 0

    @property
    def components(self) -> tuple[str, ...]:
        """Components of the discriminator's states."""
        return self.amp.components

    @property
    def ends_episodes(self) -> bool:
        """Whether there is a threshold."""
        return self.termination_threshold is not None

    def init(self, key: Array) -> tuple[dict, dict]:
        """A fresh discriminator, and statistics without samples."""
        variables = self.style.module.init(key, jnp.zeros((1, self.amp.size)))
        names = (POLICY, EXPERT) if self.compat.separate_amp_normalizers else (STATS,)
        return {DISCRIMINATOR: variables}, {name: normalizer.init((self.amp.size,)) for name in names}

    def reward(self, collected: Collected, stats: dict, reward: Array) -> Rewarded:
        """The mix of style and task reward; the extras are the states of policy and expert, ``[T, B, D]``."""
        valid, axis_name = collected.valid, collected.axis_name
        policy = self.amp.policy_states(collected, after_reset=self.compat.amp_after_reset)
        states = {POLICY: policy, EXPERT: self.amp.expert_states(collected)}
        if self.compat.separate_amp_normalizers:
            moved = {name: _step_by_step(stats[name], states[name], valid, axis_name) for name in states}
            stats = stats | {name: after for name, (after, _) in moved.items()}
            states = {name: normalised for name, (_, normalised) in moved.items()}
        unit = style_reward(self.style.score(collected.params, self.normalize(stats, states[POLICY])), 1.0)
        style = self.style.style_reward_coef * unit
        weight = returns.weights(valid, axis_name=axis_name)
        means = {"style": style, "task": reward, "none": unit == 0}
        means = pmean({name: jnp.sum(weight * jnp.where(valid, x, 0)) for name, x in means.items()}, axis_name)
        log = {
            "Episode_Reward/style_reward": means["style"],
            "Episode_Reward/task_reward": means["task"],
            "Discriminator/saturated": (means["none"] > SATURATED).astype(jnp.float32),
        }
        return Rewarded(self._mix(style, reward), stats, states, log)

    def _mix(self, style: Array, task: Array) -> Array:
        if self.task_reward_w is None:
            return mix_rewards(style, task, self.style.task_reward_lerp)
        return style + self.task_reward_w * task

    def normalize(self, stats: dict, states: Array) -> Array:
        """Stored states normalised for the discriminator; with separate statistics they are stored normalised."""
        return states if self.compat.separate_amp_normalizers else normalizer.normalize(stats[STATS], states, EPS)

    def prepare(self, stats: dict, steps: Transition) -> dict[str, Array]:
        """Normalised states, and the labels."""
        labels = {LABELS: steps.action} if self.executed_labels else {}
        return labels | {name: self.normalize(stats, steps.extras[name]) for name in (POLICY, EXPERT)}

    def observe(self, stats: dict, steps: Transition, axis_name: str | None) -> dict:
        """The statistics with the states of this rollout, of policy and expert together."""
        if self.compat.separate_amp_normalizers:
            return stats
        states = jnp.stack([steps.extras[POLICY], steps.extras[EXPERT]])
        where = jnp.broadcast_to(steps.valid, states.shape[:-1])
        return stats | {STATS: normalizer.update(stats[STATS], states, where=where, until=UNTIL, axis_name=axis_name)}

    def ends(self, params: dict, stats: dict, obs: Obs, env_state: EnvState) -> Array:
        """bool ``[B]``: where the style reward without its factor is below the threshold.

        The states are normalised with the statistics from before the rollout.
        """
        own = stats[POLICY if self.compat.separate_amp_normalizers else STATS]
        score = self.style.score(params, normalizer.normalize(own, self.amp.reached(obs, env_state), EPS))
        return style_reward(score, 1.0) < self.termination_threshold

    def remember(self, steps: Transition) -> dict[str, Array]:
        """The policy's states, and which of them are valid."""
        return {"state": steps.extras[POLICY], "valid": steps.valid}

    def recall(self, stats: dict, ring: Ring, key: Array, minibatch: Batch) -> Batch:
        """An earlier state for every sample; where an invalid one is drawn, the sample's own state."""
        own = minibatch.extras[POLICY]
        drawn = replay.sample(ring, key, minibatch.weight.size)
        states = self.normalize(stats, drawn["state"]).reshape(own.shape)
        valid = drawn["valid"].reshape(*own.shape[:-1], 1)
        return minibatch.replace(extras=minibatch.extras | {REPLAYED: jnp.where(valid, states, own)})


def _step_by_step(
    stats: RunningStats, states: Array, valid: Array, axis_name: str | None
) -> tuple[RunningStats, Array]:
    """The last statistics, and the states ``[T, B, D]``, each normalised with statistics that include its step."""

    def step(stats: RunningStats, now: tuple[Array, Array]):
        states, valid = now
        stats = normalizer.update(stats, states, where=valid, until=UNTIL, axis_name=axis_name)
        return stats, normalizer.normalize(stats, states, EPS)

    return jax.lax.scan(step, stats, (states, valid))
