"""One policy out of several: an obstacle, or a group of the observation, selects which of them acts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import linen as nn

from strl_jax.modules import mutex_checks as checks
from strl_jax.modules import mutex_selection as steps
from strl_jax.modules.policy import NO_MASKS, Policy
from strl_jax.observations import Segments
from strl_jax.types import Array


@dataclass(frozen=True)
class SubPolicy:
    """A policy to select, and the units of the run that trained it.

    Attributes:
        policy: its module.
        action_scale: its run's ``control.action_scale``, one number or one for each action.
        lin_vel_scale: its run's ``normalization.obs_scales.lin_vel``.
    """

    policy: Policy
    action_scale: float | tuple[float, ...]
    lin_vel_scale: float


class MutexPolicy(nn.Module):
    """Runs every sub-policy on every environment and mixes their means by the selection.

    st_rl's ActorCriticMutex (``explicit``), ActorCriticFieldMutex (``field``) and
    ActorCriticClimbMutex (``climb``). All sub-policies see the same observation: the last
    actions in the selected one's units, and its velocity command. It acts one step at a
    time and is not trained; its variables are those of ``gather_variables``.

    Attributes:
        action_size: number of actions.
        actor_obs: components of the group ``actor``; ``engaging_block`` must not be normalised.
        sub_policies: in the order of the obstacle ids; ``climb`` has jump-down as the sixth.
        selection: ``explicit``: the group ``selection[B, N]`` holds one-hot rows or weights;
            ``field``: the flags of ``engaging_block``; ``climb``: these, id 3 by its direction.
        env_action_scale: action scale of this run.
        cmd_vel_mapping: (index of a sub-policy, velocity) or (index, (low, high)), drawn for
            each environment at its reset. Empty: no command is touched.
        reset_non_selected: which memories start afresh after a step, see ``find_idle``.
        action_smoothing_buffer_len: over how many selections the mix is averaged.
        jump_down_vel: ``climb``: velocity or range of jump-down; None takes that of obstacle id 3.
        legacy: st_rl's habits. The buffer starts at zeros and outlives resets; where no
            obstacle is seen, sub-policies see the flag of id 0; ``field`` may have fewer
            sub-policies than obstacle ids, the others' action is 0.

    Raises:
        ValueError: what is described does not fit together; the message says what does.
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

    def __post_init__(self):
        super().__post_init__()
        count = len(self.sub_policies)
        checks.check_choices(self.selection, self.reset_non_selected, self.action_smoothing_buffer_len)
        checks.check_number(count, self.selection, self.legacy)
        checks.check_sub_policies(self.sub_policies, self.action_size, self.env_action_scale, self.actor_obs)
        checks.check_velocities(self.cmd_vel_mapping, self.jump_down_vel, count, self.selection)
        checks.check_observation(self.actor_obs, self.action_size, self.selection)

    def setup(self):
        # Clones: one module object in two places would share its weights.
        self.submodules = [sub.policy.clone() for sub in self.sub_policies]

    def act(
        self, groups: dict[str, Array], carry: dict, reset: Array, masks: Mapping[str, Array] = NO_MASKS
    ) -> tuple[Array, Array, dict]:
        """Actions ``[B, A]``, their standard deviation 0, and the carry after the step.

        Args:
            groups: packed groups, ``actor[B, D]`` and for ``explicit`` also ``selection[B, N]``.
            carry: see ``initial_carry``.
            reset: ``[B]``, bool or 0/1: an episode begins with this step.
            masks: handed to the sub-policies, see ``Policy``.
        """
        reset = reset.astype(bool)
        selection = self.select(groups)
        carry = carry | self._renew_commands(carry, reset)
        fill = carry["empty"] if self.legacy else carry["empty"] | reset
        buffer = steps.push(carry["buffer"], selection, fill)
        seen = groups | {"actor": self.observe(groups["actor"], selection, carry["command"])}
        idle = steps.find_idle(self.reset_non_selected, buffer, len(self.sub_policies))
        outputs = []
        for i, module in enumerate(self.submodules):
            own = seen | {"actor": self._normalized(i, seen["actor"])}
            mean, _, end = module.act(own, carry[f"submodules_{i}"], reset, masks)
            outputs.append(mean)
            carry[f"submodules_{i}"] = steps.zero_where(idle[:, i], end)
        mean = steps.mix(outputs, buffer, self._ratios())
        carry |= {"buffer": buffer, "empty": jnp.zeros_like(carry["empty"])}
        return mean, jnp.zeros_like(mean), carry

    def _normalized(self, index: int, flat: Array) -> Array:
        """What sub-policy ``index`` is fed: its run may have normalised its observations."""
        name = f"submodules_{index}"
        if not self.has_variable("normalizers", name):
            return flat
        moments = self.get_variable("normalizers", name)
        return (flat - moments["mean"]) / moments["std"]

    @nn.nowrap
    def select(self, groups: dict[str, Array]) -> Array:
        """The selection ``[B, S]`` of one step. Raises ``ValueError`` if the group ``selection`` does not fit."""
        if self.selection == "explicit":
            count, given = len(self.sub_policies), groups.get("selection")
            if given is None or given.shape[-1] != count:
                found = "no such group" if given is None else f"{given.shape[-1]}"
                raise ValueError(
                    f"the group 'selection' must have one column for each of {count} policies, not {found}"
                )
            return given.astype(groups["actor"].dtype)
        block = groups["actor"][:, self.actor_obs.slice("engaging_block")]
        return steps.select_climb(block) if self.selection == "climb" else steps.select_field(block)

    @nn.nowrap
    def observe(self, flat: Array, selection: Array, command: Array) -> Array:
        """What the sub-policies see of the observation ``[B, D]``, given velocities ``command[B, N]``."""
        if self.legacy and self.selection != "explicit":
            where = self.actor_obs.slice("engaging_block")
            flat = flat.at[:, where].set(steps.flag_first(flat[:, where]))
        where = self.actor_obs.slice("proprioception")
        own = steps.recover_last_action(flat[:, where], selection, self._ratios())
        if self.cmd_vel_mapping:
            scales = jnp.asarray([sub.lin_vel_scale for sub in self.sub_policies])
            own = steps.override_command(own, selection, command * scales, self.has_command)
        return flat.at[:, where].set(own)

    @nn.nowrap
    def initial_carry(self, batch: int, key: Array | None = None) -> dict:
        """The state before the first step of ``batch`` environments, every leaf ``[B, ...]``.

        Args:
            key: of the velocities that are drawn; None takes a fixed one.
        """
        columns = {"explicit": len(self.sub_policies), "field": steps.OBSTACLE_IDS, "climb": steps.OBSTACLE_IDS + 1}
        carry = {
            "buffer": jnp.zeros((batch, self.action_smoothing_buffer_len, columns[self.selection])),
            "empty": jnp.full(batch, not self.legacy),  # the first selection is still to fill the buffer
            "command": jnp.zeros((batch, len(self.sub_policies))),  # 0 where there is none
            "key": jax.random.split(jax.random.key(0) if key is None else key, batch),
        }
        subs = {f"submodules_{i}": sub.policy.initial_carry(batch) for i, sub in enumerate(self.sub_policies)}
        return carry | self._renew_commands(carry, jnp.ones(batch, bool)) | subs

    @property
    def has_command(self) -> tuple[bool, ...]:
        """Which sub-policies have a velocity command of their own."""
        return tuple(velocity is not None for velocity in self._velocities())

    @property
    def is_recurrent(self) -> bool:
        """There is always something to carry: the buffer."""
        return True

    @property
    def deterministic(self) -> bool:
        """Actions are the mean."""
        return True

    @property
    def replace_probs(self) -> dict[str, float]:
        """Nothing is left to chance."""
        return {}

    @nn.nowrap
    def _renew_commands(self, carry: dict, reset: Array) -> dict:
        if not self.cmd_vel_mapping:
            return {}
        pairs = jax.vmap(jax.random.split)(carry["key"])
        drawn = steps.draw_commands([velocity or (0.0, 0.0) for velocity in self._velocities()], pairs[:, 1])
        if self.selection == "climb" and self.jump_down_vel is None:
            drawn = drawn.at[:, -1].set(drawn[:, steps.JUMP_ID])
        command = jnp.where(reset[:, None], drawn, carry["command"])
        return {"command": command, "key": jnp.where(reset, pairs[:, 0], carry["key"])}

    @nn.nowrap
    def _velocities(self) -> list[tuple[float, float] | None]:
        """Range of the command of each sub-policy, None where it has none."""
        ranges = {index: steps.as_range(velocity) for index, velocity in self.cmd_vel_mapping}
        found = [ranges.get(i) for i in range(len(self.sub_policies))]
        if self.selection == "climb" and self.cmd_vel_mapping:
            found[-1] = found[steps.JUMP_ID] if self.jump_down_vel is None else steps.as_range(self.jump_down_vel)
        return found

    @nn.nowrap
    def _ratios(self) -> Array:
        """The environment's action scale over each sub-policy's, ``[N, A]``."""
        own = [jnp.broadcast_to(jnp.asarray(sub.action_scale), self.action_size) for sub in self.sub_policies]
        return jnp.asarray(self.env_action_scale) / jnp.stack(own)


def gather_variables(variables: Sequence[dict], normalizers: Sequence[dict[str, Array] | None] = ()) -> dict:
    """Variables of a ``MutexPolicy`` from those of its sub-policies, in their order.

    Args:
        normalizers: ``mean`` and ``std``, each ``[D]``, of the observations that a
            sub-policy was trained on, or None if they were not normalised.
    """
    gathered: dict = {}
    for i, moments in enumerate(normalizers):
        if moments is not None:
            gathered.setdefault("normalizers", {})[f"submodules_{i}"] = moments
    for i, own in enumerate(variables):
        for collection, tree in own.items():
            gathered.setdefault(collection, {})[f"submodules_{i}"] = tree
    return gathered
