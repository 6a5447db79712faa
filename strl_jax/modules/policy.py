"""Actor-critic policy: one module with optional stages."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from flax import linen as nn

from strl_jax.modules import encoders, estimators
from strl_jax.modules.mlp import MLP, mlp_model
from strl_jax.modules.rnn import Memory, initial_carry
from strl_jax.modules.stages import EncoderStage, EstimatorStage, MemoryStage
from strl_jax.observations import Segments
from strl_jax.types import Array, PolicyOutput

NO_MASKS: Mapping[str, Array] = {}


class Policy(nn.Module):
    """Gaussian actor and critic over named observation groups.

    The actor applies its stages in this order, and all but the last are optional:
    adaptor and estimator (predict observation components, and can replace them by the
    estimates), encoders (replace components by latents), memory, MLP. The critic has
    encoders, a memory and an MLP. Each submodule has a fixed name, so that the names of
    the parameters do not depend on which stages exist.

    Inputs are packed, normalised groups ``{"actor": [..., D], "critic": [..., D]}``.
    With a memory they are ``[T, B, D]``, or ``[B, D]`` for one step; without a memory
    any leading axes are allowed.

    Attributes:
        action_size: number of actions A.
        actor_hidden_dims, critic_hidden_dims: sizes of the hidden layers.
        activation: name of the activation.
        mu_activation: activation of the action mean, or None.
        init_noise_std: initial standard deviation of the actions.
        log_std: the parameter is log(std); False: it is ``std``, as in st_rl.
        initialization: ``torch`` or ``orthogonal``.
        deterministic: the action is the mean; the PPO surrogate then has no gradient.
        actor_obs, critic_obs: components of the groups; estimators and encoders need them.
        memory, estimator, adaptor: stages, or None.
        encoders: encoders of the actor.
        critic_encoders: encoders of the critic; ``shared``: the actor's encoders are
            applied to the critic's components.
    """

    action_size: int
    actor_hidden_dims: tuple[int, ...] = (256, 256, 256)
    critic_hidden_dims: tuple[int, ...] = (256, 256, 256)
    activation: str = "elu"
    mu_activation: str | None = None
    init_noise_std: float = 1.0
    log_std: bool = True
    initialization: str = "torch"
    deterministic: bool = False
    actor_obs: Segments | None = None
    critic_obs: Segments | None = None
    memory: MemoryStage | None = None
    estimator: EstimatorStage | None = None
    adaptor: EstimatorStage | None = None
    encoders: tuple[EncoderStage, ...] = ()
    critic_encoders: tuple[EncoderStage, ...] | str = ()

    def setup(self):
        self.actor = MLP(
            self.actor_hidden_dims, self.action_size, self.activation, self.mu_activation, self.initialization
        )
        self.critic = MLP(self.critic_hidden_dims, 1, self.activation, None, self.initialization)
        std = jnp.log(self.init_noise_std) if self.log_std else self.init_noise_std
        name = "log_std" if self.log_std else "std"
        self.std = self.param(name, nn.initializers.constant(std), (self.action_size,))
        self.actor_encoder = [encoders.make_encoder(stage, self.initialization) for stage in self.encoders]
        own = () if self.critic_encoders == "shared" else self.critic_encoders
        self.critic_encoder = [encoders.make_encoder(stage, self.initialization) for stage in own]
        for name in self._stage_names():
            stage = getattr(self, name)
            size = estimators.estimate_size(stage, self.critic_obs)
            setattr(self, f"state_{name}", mlp_model(stage.hidden_sizes, size, stage.nonlinearity, self.initialization))
        for name in self._memory_names():
            setattr(self, f"memory_{name}", Memory(**vars(self.memory)))

    def __call__(
        self,
        groups: dict[str, Array],
        carry: dict,
        reset: Array,
        masks: Mapping[str, Array] = NO_MASKS,
        random_carry: dict | None = None,
    ) -> PolicyOutput:
        """Action distribution, value, estimates and latents.

        Args:
            groups: packed groups, ``[..., D]``.
            carry: memory states before the first step, see ``initial_carry``.
            reset: batch shape, bool or 0/1; where it is true, the memories are set to zero before the step.
            masks: stage -> bool, batch shape: where the estimate replaces the true
                components. A stage without a mask replaces them everywhere if its
                ``replace_prob`` is above 0, as on a robot that cannot measure them.
            random_carry: ``mask``, bool, batch shape: where it is true, the memory states are replaced
                by ``carry`` before the step, also where ``reset`` is true; ``carry``: same
                structure as the argument ``carry``, leaves ``[T, B, ...]``, or ``[B, ...]``
                for one step. See ``random_carry.draw_random_carry``.
        """
        mean, end, estimates, latents = self._actor(groups["actor"], carry, reset, masks, random_carry)
        value, critic_end = self.value(groups, carry, reset, random_carry)
        carry = last(end | critic_end, reset)
        return PolicyOutput(mean, self._broadcast_std(mean), value, carry, estimates, latents)

    def act(
        self, groups: dict[str, Array], carry: dict, reset: Array, masks: Mapping[str, Array] = NO_MASKS
    ) -> tuple[Array, Array, dict]:
        """Mean and standard deviation ``[..., A]`` of the actions, and the carry after the last step.

        The state of the critic's memory is not changed. Arguments as in ``__call__``.
        """
        mean, end, _, _ = self._actor(groups["actor"], carry, reset, masks)
        return mean, self._broadcast_std(mean), carry | last(end, reset)

    def infer(
        self, groups: dict[str, Array], carry: dict, reset: Array, masks: Mapping[str, Array] = NO_MASKS
    ) -> PolicyOutput:
        """``act`` with estimates and latents; there is no value. Arguments as in ``__call__``."""
        mean, end, estimates, latents = self._actor(groups["actor"], carry, reset, masks)
        return PolicyOutput(mean, self._broadcast_std(mean), None, carry | last(end, reset), estimates, latents)

    def value(
        self, groups: dict[str, Array], carry: dict, reset: Array, random_carry: dict | None = None
    ) -> tuple[Array, dict]:
        """Values, batch shape, and the critic's carry after every step, leaves ``[T, B, ...]`` or ``[B, ...]``.

        Arguments as in ``__call__``.
        """
        x, carries = self._apply_memory("critic", self.encode_critic(groups["critic"]), carry, reset, random_carry)
        return self.critic(x)[..., 0], carries

    def act_with_embedded_latent(self, embedded: Array, carry: dict, reset: Array) -> tuple[Array, dict]:
        """Action mean ``[..., A]`` and the new carry from the output of ``embed_actor``; the name is st_rl's."""
        mean, end, _ = self._head(embedded, carry, reset)
        return mean, carry | last(end, reset)

    def embed_actor(self, flat: Array) -> Array:
        """The actor's observation ``[..., D]`` with components replaced by the latents of its encoders."""
        return encoders.embed(self.actor_obs, flat, self.get_encoder_latent(flat))

    def encode_critic(self, flat: Array) -> Array:
        """The critic's observation ``[..., D]`` with components replaced by the latents of its encoders."""
        return encoders.embed(self.critic_obs, flat, self.get_encoder_latent(flat, critic=True))

    def get_encoder_latent(self, flat: Array, critic: bool = False) -> dict[str, Array]:
        """Component -> latent ``[..., L]``.

        Args:
            flat: the actor's observation ``[..., D]``, or the critic's if ``critic`` is set.
            critic: apply the critic's encoders.
        """
        stages, networks = self.encoders, self.actor_encoder
        if critic and self.critic_encoders != "shared":
            stages, networks = self.critic_encoders, self.critic_encoder
        return encoders.encode(stages, networks, self.critic_obs if critic else self.actor_obs, flat)

    @nn.nowrap
    def initial_carry(self, batch: int, key: Array | None = None, dtype=jnp.float32) -> dict:
        """Memory -> zero state of ``batch`` environments, leaves ``[B, layers, H]``; ``{}`` without a memory.

        ``key`` is not used; ``MutexPolicy`` has the same interface and needs it.
        """
        return {name: initial_carry(batch=batch, dtype=dtype, **vars(self.memory)) for name in self._memory_names()}

    @property
    def is_recurrent(self) -> bool:
        """Whether the policy has a memory."""
        return self.memory is not None

    @property
    def replace_probs(self) -> dict[str, float]:
        """Stage -> probability that its estimate replaces the true components, for probabilities in (0, 1)."""
        probs = {name: getattr(self, name).replace_prob for name in self._stage_names()}
        return {name: prob for name, prob in probs.items() if 0 < prob < 1}

    def _actor(
        self, flat: Array, carry: dict, reset: Array, masks: Mapping[str, Array], random_carry: dict | None = None
    ) -> tuple[Array, dict, dict[str, Array], dict[str, Array]]:
        """Action mean, the carry after every step, stage -> estimate, component -> latent."""
        estimates, carries = {}, {}
        for name in self._stage_names():
            stage = getattr(self, name)
            if stage.on_actor_memory:
                continue
            x = estimators.estimator_inputs(stage, self.actor_obs, flat)
            x, end = self._apply_memory(name, x, carry, reset, random_carry)
            carries |= end
            estimates[name] = getattr(self, f"state_{name}")(x)
            if stage.replace_prob > 0:
                mask = masks.get(name)
                flat = estimators.substitute(stage, self.actor_obs, self.critic_obs, flat, estimates[name], mask)
        latents = self.get_encoder_latent(flat)
        mean, end, features = self._head(encoders.embed(self.actor_obs, flat, latents), carry, reset, random_carry)
        if self.estimator is not None and self.estimator.on_actor_memory:
            estimates["estimator"] = self.state_estimator(features)
        return mean, carries | end, estimates, latents

    def _head(self, x: Array, carry: dict, reset: Array, random_carry: dict | None = None) -> tuple[Array, dict, Array]:
        """Action mean, the carry after every step, and the input of the actor's MLP."""
        x, carries = self._apply_memory("actor", x, carry, reset, random_carry)
        return self.actor(x), carries, x

    def _apply_memory(
        self, name: str, x: Array, carry: dict, reset: Array, random_carry: dict | None
    ) -> tuple[Array, dict]:
        """The outputs of the memory ``name`` and its carry after every step; without a memory ``x`` and ``{}``."""
        if self.memory is None:
            return x, {}
        new = () if random_carry is None else (random_carry["carry"][name], random_carry["mask"])
        x, end = getattr(self, f"memory_{name}")(x, carry[name], reset, *new)
        return x, {name: end}

    def _broadcast_std(self, mean: Array) -> Array:
        return jnp.broadcast_to(jnp.exp(self.std) if self.log_std else self.std, mean.shape)

    @nn.nowrap
    def _stage_names(self) -> list[str]:
        return [name for name in ("adaptor", "estimator") if getattr(self, name) is not None]

    @nn.nowrap
    def _memory_names(self) -> list[str]:
        if self.memory is None:
            return []
        stages = [name for name in self._stage_names() if not getattr(self, name).on_actor_memory]
        return [*stages, "actor", "critic"]


def last(carries: dict, reset: Array) -> dict:
    """The carry after the last step, leaves ``[B, ...]``.

    Args:
        carries: the carry after every step, leaves ``[T, B, ...]``, or ``[B, ...]`` for one step.
        reset: ``[T, B]`` or, for one step, ``[B]``; only its number of axes is used.
    """
    return jax.tree.map(lambda leaf: leaf[-1], carries) if reset.ndim == 2 else carries
