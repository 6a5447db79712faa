"""Policy that switches between trained sub-policies, by the obstacle ahead or by an observation group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from strl_jax.modules import mutex_checks, mutex_selection
from strl_jax.modules.policy import NO_MASKS, Policy
from strl_jax.observations import Segments
from strl_jax.types import Array, PolicyOutput


@dataclass(frozen=True)
class SubPolicy:
    """A trained policy, and the scales of the run that trained it.

    Attributes:
        policy: the module.
        action_scale: ``control.action_scale`` of that run, one number or one per action.
        lin_vel_scale: ``normalization.obs_scales.lin_vel`` of that run.
    """

    policy: Policy
    action_scale: float | tuple[float, ...]
    lin_vel_scale: float


class MutexPolicy(nn.Module):
    """Applies every sub-policy to every environment and averages their actions, weighted by the selection.

    st_rl's ActorCriticMutex (``explicit``), ActorCriticFieldMutex (``field``) and
    ActorCriticClimbMutex (``climb``). All sub-policies receive the same observation, in
    which the last actions are in the units of the selected sub-policy, and the velocity
    command is that of the selected sub-policy, if it has one. The policy acts one step at a time and
    cannot be trained; ``gather_variables`` makes its variables.

    Attributes:
        action_size: number of actions A.
        actor_obs: components of the group ``actor``; ``engaging_block`` must not be normalised.
        sub_policies: N policies in the order of the obstacle ids; for ``climb`` the sixth is jump-down.
        selection: ``explicit``: the group ``selection[B, N]`` holds one-hot rows or weights;
            ``field``: the obstacle flags of ``engaging_block``; ``climb``: the same flags, but
            id 3 is jump-up or jump-down, depending on the direction of the obstacle.
        env_action_scale: action scale of this run.
        cmd_vel_mapping: pairs (index of a sub-policy, velocity or (low, high)) in m/s; the velocity
            is drawn for each environment at its reset. Empty: the commands are left unchanged.
        reset_non_selected: which memories are set to zero after a step, see ``find_idle``.
        action_smoothing_buffer_len: number of selections over which the weights are averaged.
        jump_down_vel: ``climb``: velocity or range (low, high) of jump-down, m/s; None: that of obstacle id 3. It
            has no effect if ``cmd_vel_mapping`` is empty.
        legacy: behaves like st_rl. The buffer is initially zero and is not cleared at resets; if
            no obstacle is flagged, the sub-policies see the flag of id 0; ``field`` may have
            fewer sub-policies than obstacle ids, and an id without a sub-policy gives action 0.

    Raises:
        ValueError: the attributes are inconsistent; the message says what is allowed.
    """

    action_size: int
    actor_obs: Segments
    sub_policies: tuple[SubPolicy, ...]
    selection: str
    env_action_scale: float | tuple[float, ...]
    cmd_vel_mapping: tuple[tuple[int, float | tuple[float, float]], ...] = ()
    reset_non_selected: str | bool = "all"
    action_smoothing_buffer_len: int = 1
    jump_down_vel: float | tuple[float, float] | None = None
    legacy: bool = False

    is_recurrent: ClassVar[bool] = True  # the buffer is carried from step to step
    deterministic: ClassVar[bool] = True  # the action is the mean
    replace_probs: ClassVar[dict[str, float]] = {}  # no estimate is used at random

    def __post_init__(self):
        super().__post_init__()
        count = len(self.sub_policies)
        mutex_checks.check_options(self.selection, self.reset_non_selected, self.action_smoothing_buffer_len)
        mutex_checks.check_number(count, self.selection, self.legacy)
        mutex_checks.check_sub_policies(self.sub_policies, self.action_size, self.env_action_scale, self.actor_obs)
        mutex_checks.check_velocities(self.cmd_vel_mapping, self.jump_down_vel, count, self.selection)
        mutex_checks.check_observation(self.actor_obs, self.action_size, self.selection)

    def setup(self):
        # Clones, because the same module object at two indices would share its weights.
        self.submodules = [sub.policy.clone() for sub in self.sub_policies]

    def act(
        self, groups: dict[str, Array], carry: dict, reset: Array, masks: Mapping[str, Array] = NO_MASKS
    ) -> tuple[Array, Array, dict]:
        """Actions ``[B, A]``, their standard deviations (all 0) ``[B, A]``, and the carry after the step.

        Args:
            groups: packed groups, ``actor[B, D]`` and for ``explicit`` also ``selection[B, N]``.
            carry: see ``initial_carry``.
            reset: ``[B]``, bool or 0/1: this step is the first of an episode.
            masks: passed to the sub-policies, see ``Policy``.

        Raises:
            ValueError: see ``select``.
        """
        output = self.infer(groups, carry, reset, masks)
        return output.mean, output.std, output.carry

    def infer(
        self, groups: dict[str, Array], carry: dict, reset: Array, masks: Mapping[str, Array] = NO_MASKS
    ) -> PolicyOutput:
        """``act`` with the estimates and latents of every sub-policy, by the name of its carry."""
        reset = reset.astype(bool)
        selection = self.select(groups)
        carry = carry | self._renew_commands(carry, reset)
        fill = carry["empty"] if self.legacy else carry["empty"] | reset
        buffer = mutex_selection.push(carry["buffer"], selection, fill)
        observed = self.observe(groups["actor"], selection, carry["command"])
        idle = mutex_selection.find_idle(self.reset_non_selected, buffer, len(self.sub_policies))
        outputs = {}
        for i, module in enumerate(self.submodules):
            inputs = groups | {"actor": self._normalize(i, observed)}
            output = outputs[f"submodules_{i}"] = module.infer(inputs, carry[f"submodules_{i}"], reset, masks)
            carry[f"submodules_{i}"] = mutex_selection.zero_where(idle[:, i], output.carry)
        mean = mutex_selection.mix([output.mean for output in outputs.values()], buffer, self._scale_ratios())
        carry |= {"buffer": buffer, "empty": jnp.zeros_like(carry["empty"])}
        estimates = {name: output.estimates for name, output in outputs.items() if output.estimates}
        latents = {name: output.latents for name, output in outputs.items() if output.latents}
        return PolicyOutput(mean, jnp.zeros_like(mean), None, carry, estimates, latents)

    def _normalize(self, index: int, flat: Array) -> Array:
        """The observation ``[B, D]`` as sub-policy ``index`` was trained on it: normalised, or unchanged."""
        name = f"submodules_{index}"
        if not self.has_variable("normalizers", name):
            return flat
        moments = self.get_variable("normalizers", name)
        return (flat - moments["mean"]) / moments["std"]

    @nn.nowrap
    def select(self, groups: dict[str, Array]) -> Array:
        """The selection ``[B, S]`` of one step.

        Raises:
            ValueError: the group ``selection`` is missing or has the wrong size.
        """
        if self.selection == "explicit":
            count, given = len(self.sub_policies), groups.get("selection")
            if given is None or given.shape[-1] != count:
                actual = "there is no such group" if given is None else f"it has {given.shape[-1]}"
                raise ValueError(f"the group 'selection' must have one column for each of {count} policies; {actual}")
            return given.astype(groups["actor"].dtype)
        block = groups["actor"][:, self.actor_obs.slice("engaging_block")]
        select = mutex_selection.select_climb if self.selection == "climb" else mutex_selection.select_field
        return select(block)

    @nn.nowrap
    def observe(self, flat: Array, selection: Array, command: Array) -> Array:
        """The observation ``[B, D]`` that the sub-policies receive.

        Args:
            flat: the observation of the environment ``[B, D]``.
            selection: ``[B, S]``.
            command: velocity of each sub-policy ``[B, N]``, m/s.
        """
        if self.legacy and self.selection != "explicit":
            block = flat[:, self.actor_obs.slice("engaging_block")]
            flat = self.actor_obs.replace(flat, "engaging_block", mutex_selection.flag_first(block))
        proprioception = flat[:, self.actor_obs.slice("proprioception")]
        proprioception = mutex_selection.recover_last_action(proprioception, selection, self._scale_ratios())
        if self.cmd_vel_mapping:
            scales = jnp.asarray([sub.lin_vel_scale for sub in self.sub_policies])
            proprioception = mutex_selection.override_command(
                proprioception, selection, command * scales, self.has_command
            )
        return self.actor_obs.replace(flat, "proprioception", proprioception)

    @nn.nowrap
    def initial_carry(self, batch: int, key: Array | None = None) -> dict:
        """The state before the first step of ``batch`` environments, every leaf ``[B, ...]``.

        Args:
            key: PRNG key of the velocity commands; None: a fixed key.
        """
        ids = mutex_selection.OBSTACLE_IDS
        columns = {"explicit": len(self.sub_policies), "field": ids, "climb": ids + 1}
        carry = {
            "buffer": jnp.zeros((batch, self.action_smoothing_buffer_len, columns[self.selection])),
            "empty": jnp.full(batch, not self.legacy),  # the next selection fills the whole buffer
            "command": jnp.zeros((batch, len(self.sub_policies))),  # 0 for a sub-policy without a command
            "key": jax.random.split(jax.random.key(0) if key is None else key, batch),
        }
        subs = {f"submodules_{i}": sub.policy.initial_carry(batch) for i, sub in enumerate(self.sub_policies)}
        return carry | self._renew_commands(carry, jnp.ones(batch, bool)) | subs

    @property
    def has_command(self) -> tuple[bool, ...]:
        """For each sub-policy, whether it has its own velocity command."""
        return tuple(velocity is not None for velocity in self._velocity_ranges())

    @nn.nowrap
    def _renew_commands(self, carry: dict, reset: Array) -> dict:
        if not self.cmd_vel_mapping:
            return {}
        pairs = jax.vmap(jax.random.split)(carry["key"])
        ranges = [velocity or (0.0, 0.0) for velocity in self._velocity_ranges()]
        drawn = mutex_selection.draw_commands(ranges, pairs[:, 1])
        if self.selection == "climb" and self.jump_down_vel is None:
            drawn = drawn.at[:, -1].set(drawn[:, mutex_selection.JUMP_ID])
        command = jnp.where(reset[:, None], drawn, carry["command"])
        return {"command": command, "key": jnp.where(reset, pairs[:, 0], carry["key"])}

    @nn.nowrap
    def _velocity_ranges(self) -> list[tuple[float, float] | None]:
        """Range of the velocity command of each sub-policy, m/s; None if it has no command."""
        by_index = {index: mutex_selection.as_range(velocity) for index, velocity in self.cmd_vel_mapping}
        ranges = [by_index.get(i) for i in range(len(self.sub_policies))]
        if self.selection == "climb" and self.cmd_vel_mapping:
            jump_up, own = ranges[mutex_selection.JUMP_ID], self.jump_down_vel
            ranges[-1] = jump_up if own is None else mutex_selection.as_range(own)
        return ranges

    @nn.nowrap
    def _scale_ratios(self) -> Array:
        """Action scale of the environment divided by that of each sub-policy, ``[N, A]``."""
        scales = [jnp.broadcast_to(jnp.asarray(sub.action_scale), self.action_size) for sub in self.sub_policies]
        return jnp.asarray(self.env_action_scale) / jnp.stack(scales)


def gather_variables(variables: Sequence[dict], normalizers: Sequence[dict[str, Array] | None] = ()) -> dict:
    """Variables of a ``MutexPolicy``.

    Args:
        variables: Flax variables of each sub-policy, in the order of ``sub_policies``.
        normalizers: for each sub-policy ``mean`` and ``std``, each ``[D]``, of the observations
            that it was trained on, or None if they were not normalised. The observation is divided by
            ``std``, so ``std`` must include the epsilon of the normaliser.
    """
    gathered: dict = {}
    for i, (own, moments) in enumerate(zip_longest(variables, normalizers)):
        for collection, tree in (own if moments is None else own | {"normalizers": moments}).items():
            gathered.setdefault(collection, {})[f"submodules_{i}"] = tree
    return gathered
