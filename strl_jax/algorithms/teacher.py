"""A teacher that acts in the student's place and labels what it sees: the hook of TPPO."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import linen as nn

from strl_jax.algorithms.hooks import LABELS, ActHook, part_of
from strl_jax.modules import normalizer
from strl_jax.observations import Segments
from strl_jax.types import Array, Obs, TimeStep, Transition

LABEL_STD, ACTING, LATENT = "label_std", "teacher_acting", "teacher_latent"


@dataclass(frozen=True)
class Teacher:
    """A trained policy without its weights, which are data: another teacher of the same form compiles nothing.

    Attributes:
        policy: the Flax module.
        groups: what it observes; ``actor`` at least.
        act_groups: the groups that acting needs.
        eps: added to the standard deviation where its observations are normalised.
    """

    policy: nn.Module
    groups: dict[str, Segments]
    act_groups: tuple[str, ...] = ("actor",)
    eps: float = 1e-2

    def pack(self, data: dict, obs: Obs) -> dict[str, Array]:
        """Its flat groups ``[..., D]``, normalised with the statistics of its own run."""
        stats = part_of(data, "teacher")["stats"]
        return normalizer.pack_groups(self.groups, self.act_groups, stats, obs, self.eps)

    def latents(self, data: dict, obs: Obs) -> dict[str, Array]:
        """Component -> latent ``[..., L]`` of the encoders of its actor."""
        flat, variables = self.pack(data, obs)["actor"], part_of(data, "teacher")["variables"]
        return self.policy.apply(variables, flat, method="get_encoder_latent")


def make_hook(
    teacher: Teacher,
    probability: Callable[[Array], Array],
    *,
    from_sample: bool = False,
    with_std: bool = False,
    latents: tuple[str, ...] = (),
) -> ActHook:
    """The hook: every environment follows the teacher, or not, until its episode ends.

    At the start all follow it; at the end of an episode an environment draws anew, with the
    ``probability`` of the last update's iteration. The teacher has a memory of its own.

    Args:
        probability: of the iteration.
        from_sample: labels are samples of the teacher's actions, not their means.
        with_std: the labels' standard deviation is stored with them.
        latents: components of the teacher whose latents the update needs.
    """

    def init(key: Array, num_envs: int) -> dict:
        everyone = jnp.ones(num_envs, bool)
        return {
            "acts": everyone,
            "reset": jnp.ones_like(everyone),
            "carry": teacher.policy.initial_carry(num_envs, key),
        }

    def draw(key: Array, num_steps: int, num_envs: int) -> dict:
        acts_key, noise_key = jax.random.split(key)
        shape = (num_steps, num_envs, teacher.policy.action_size)
        noise = {"noise": jax.random.normal(noise_key, shape)} if from_sample else {}
        return {"acts": jax.random.uniform(acts_key, (num_steps, num_envs))} | noise

    def act(data: dict, state: dict, obs: Obs, action: Array, drawn: dict):
        mean, std, carry = teacher.policy.apply(
            part_of(data, "teacher")["variables"], teacher.pack(data, obs), state["carry"], state["reset"], method="act"
        )
        label = mean + std * drawn["noise"] if from_sample else mean
        extras = {LABELS: label, ACTING: state["acts"].astype(jnp.float32)} | ({LABEL_STD: std} if with_std else {})
        return jnp.where(state["acts"][:, None], label, action), extras, state | {"carry": carry}

    def observe(state: dict, timestep: TimeStep, iteration: Array, drawn: dict) -> dict:
        follows = drawn["acts"] < probability(jnp.maximum(iteration - 1, 0))
        return state | {"acts": jnp.where(timestep.done, follows, state["acts"]), "reset": timestep.done}

    def prepare(data: dict, steps: Transition) -> dict[str, Array]:
        if not latents:
            return {}
        found = teacher.latents(data, steps.obs)
        return {f"{LATENT}/{name}": found[name] for name in latents}

    return ActHook("teacher", init, draw, act, observe, prepare, logged={"Train/teacher_acting": ACTING})
