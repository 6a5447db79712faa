"""TPPO's teacher: a hook that acts in place of the student and labels its observations, and how often it acts."""

import math
import sys
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
PROBABILITIES = ("linear", "exp", "tanh")


@dataclass(frozen=True)
class Teacher:
    """A trained policy without its weights. The weights are in ``data``: a new teacher needs no new compilation.

    Attributes:
        policy: the Flax module.
        groups: its observation groups; ``actor`` at least.
        act_groups: the groups that the actor needs.
        eps: added to the standard deviation when observations are normalised.
    """

    policy: nn.Module
    groups: dict[str, Segments]
    act_groups: tuple[str, ...] = ("actor",)
    eps: float = 1e-2

    def pack(self, data: dict, obs: Obs) -> dict[str, Array]:
        """Flat groups ``[..., D]``, normalised with the statistics of the teacher's run."""
        stats = part_of(data, "teacher")["stats"]
        return normalizer.pack_groups(self.groups, self.act_groups, stats, obs, self.eps)

    def latents(self, data: dict, obs: Obs) -> dict[str, Array]:
        """Component -> latent ``[..., L]`` of the actor's encoders."""
        flat, variables = self.pack(data, obs)["actor"], part_of(data, "teacher")["variables"]
        return self.policy.apply(variables, flat, method="get_encoder_latent")


@dataclass(frozen=True)
class TeacherHook(ActHook):
    """Every environment follows the teacher, or not, until its episode ends; see ``ActHook`` for the methods.

    At first all environments follow it. At the end of an episode an environment draws again, with the
    ``probability`` of the last update's iteration. The teacher has its own memory.

    Attributes:
        probability: of following the teacher, a function of the iteration.
        from_sample: labels are samples of the teacher's actions, not their means.
        with_std: the standard deviation of the labels is stored too.
        latents: components of the teacher whose latents the update needs.
    """

    name = "teacher"
    logged = {"Train/teacher_acting": ACTING}  # noqa: RUF012 (ClassVar in the base class)

    teacher: Teacher
    probability: Callable[[Array], Array]
    from_sample: bool = False
    with_std: bool = False
    latents: tuple[str, ...] = ()

    def init(self, key: Array, num_envs: int) -> dict:
        """All environments follow the teacher; its memory is empty."""
        everyone = jnp.ones(num_envs, bool)
        return {
            "acts": everyone,
            "reset": jnp.ones_like(everyone),
            "carry": self.teacher.policy.initial_carry(num_envs, key),
        }

    def draw(self, key: Array, num_steps: int, num_envs: int) -> dict:
        """Uniform numbers for the draws at episode ends; normal ones for sampled labels."""
        acts_key, noise_key = jax.random.split(key)
        shape = (num_steps, num_envs, self.teacher.policy.action_size)
        noise = {"noise": jax.random.normal(noise_key, shape)} if self.from_sample else {}
        return {"acts": jax.random.uniform(acts_key, (num_steps, num_envs))} | noise

    def act(self, data: dict | None, state: dict, obs: Obs, action: Array, drawn: dict):
        """The teacher's action where it acts; its label for every environment."""
        teacher, variables = self.teacher, part_of(data, "teacher")["variables"]
        mean, std, carry = teacher.policy.apply(
            variables, teacher.pack(data, obs), state["carry"], state["reset"], method="act"
        )
        label = mean + std * drawn["noise"] if self.from_sample else mean
        extras = {LABELS: label, ACTING: state["acts"].astype(jnp.float32)}
        extras |= {LABEL_STD: std} if self.with_std else {}
        return jnp.where(state["acts"][:, None], label, action), extras, state | {"carry": carry}

    def observe(self, state: dict, timestep: TimeStep, iteration: Array, drawn: dict) -> dict:
        """Environments whose episode ended draw again."""
        follows = drawn["acts"] < self.probability(jnp.maximum(iteration - 1, 0))
        return state | {"acts": jnp.where(timestep.done, follows, state["acts"]), "reset": timestep.done}

    def prepare(self, data: dict | None, steps: Transition) -> dict[str, Array]:
        """The teacher's latents of the stored observations."""
        if not self.latents:
            return {}
        latents = self.teacher.latents(data, steps.obs)
        return {f"{LATENT}/{name}": latents[name] for name in self.latents}


def act_probability(option: str | float, scale: float) -> Callable[[Array], Array]:
    """st_rl's ``teacher_act_prob`` with ``update_times_scale``: a function of the iteration, float32 in [0, 1].

    With iteration x and scale s: ``linear`` max(0, 1 - x / s); ``exp`` (1 - 1 / s)^x;
    ``tanh`` (1 - tanh((x - s) / s)) / 2, which starts at 0.881. A number is a constant probability.

    Raises:
        ValueError: another option, a number outside of [0, 1], a scale that is not
            above 0, or for ``exp`` a scale below 1, where (1 - 1 / s)^x changes its sign.
    """
    if type(option) in (int, float) and 0 <= option <= 1:
        return lambda iteration: jnp.float32(option)
    if option not in PROBABILITIES:
        raise ValueError(
            f"teacher_act_prob {option!r} is not one of {', '.join(PROBABILITIES)} or a number from 0 to 1"
        )
    least = 1 if option == "exp" else 0
    if type(scale) not in (int, float) or not (least <= scale < math.inf and scale > 0):
        allowed = "at least 1 with teacher_act_prob 'exp'" if least else "above 0"
        raise ValueError(f"update_times_scale {scale!r} must be {allowed} and finite")
    formula = {"linear": _linear, "exp": _exp, "tanh": _tanh}[option]
    return lambda iteration: formula(jnp.asarray(iteration, jnp.float32), scale)


def _linear(x: Array, scale: float) -> Array:
    return jnp.maximum((scale - x) / scale, 0.0)


def _exp(x: Array, scale: float) -> Array:
    # A power in float32 rounds its base first; the iteration would multiply that error.
    return jnp.exp(x * math.log(max(1 - 1 / scale, sys.float_info.min)))


def _tanh(x: Array, scale: float) -> Array:
    # (1 - tanh y) / 2 = sigmoid(-2 y), which keeps its digits where tanh is near 1.
    return jax.nn.sigmoid(-2 * (x - scale) / scale)
