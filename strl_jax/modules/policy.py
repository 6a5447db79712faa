"""The actor-critic: one module whose stages are optional."""

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

    The stages of the actor, each only if it is there: adaptor and estimator predict
    components and may put their estimates into the observation; encoders replace
    components with latents; a memory; the MLP. The critic has encoders, a memory and
    an MLP. Every submodule has a name of its own, so that a stage more or less moves
    no other parameter.

    Inputs are packed, normalised groups ``{"actor": [..., D], "critic": [..., D]}``.
    With a memory they are ``[T, B, D]``, or ``[B, D]`` for one step; without one the
    leading axes are free.

    Attributes:
        action_size: number of actions.
        actor_hidden_dims, critic_hidden_dims: hidden layers.
        activation: name of the activation.
        mu_activation: activation of the action mean, or None.
        init_noise_std: standard deviation of the actions at the start.
        log_std: the free parameter is log(std); False keeps st_rl's linear ``std``.
        initialization: ``torch`` or ``orthogonal``.
        deterministic: actions are the mean; the surrogate has no gradient then.
        actor_obs, critic_obs: components of the groups, which estimators and encoders need.
        memory, estimator, adaptor: stages, or None.
        encoders: the actor's encoders.
        critic_encoders: the critic's; ``shared`` uses the actor's on the critic's components.
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
        start = jnp.log(self.init_noise_std) if self.log_std else self.init_noise_std
        self.std = self.param(
            "log_std" if self.log_std else "std", nn.initializers.constant(start), (self.action_size,)
        )
        self.actor_encoder = [encoders.make_encoder(stage, self.initialization) for stage in self.encoders]
        own = () if self.critic_encoders == "shared" else self.critic_encoders
        self.critic_encoder = [encoders.make_encoder(stage, self.initialization) for stage in own]
        for name in self._stages():
            stage = getattr(self, name)
            size = estimators.estimate_size(stage, self.critic_obs)
            setattr(self, f"state_{name}", mlp_model(stage.hidden_sizes, size, stage.nonlinearity, self.initialization))
        for name in self._memories():
            stage = self.memory
            memory = Memory(stage.kind, stage.hidden_size, stage.num_layers)
            setattr(self, f"memory_{name}", memory)

    def __call__(
        self,
        groups: dict[str, Array],
        carry: dict,
        reset: Array,
        masks: Mapping[str, Array] = NO_MASKS,
        starts: dict | None = None,
    ) -> PolicyOutput:
        """Action distribution, value, and what the stages computed on the way.

        Args:
            groups: packed groups, ``[..., D]``.
            carry: memories before the first step, see ``initial_carry``.
            reset: batch shape, bool or 0/1; memories are zeroed before these steps.
            masks: stage -> bool, batch shape: where its estimate takes the place of the
                truth. A stage in ``replace_probs`` without a mask replaces everywhere, as
                on a robot that does not know the truth.
            starts: ``mask``, bool of batch shape: before which steps the memories start
                from given states, whatever ``reset`` says; ``carry``: these, like the
                argument ``carry`` with leaves ``[T, B, ...]``, or without ``T``.
        """
        mean, end, estimates, latents = self._actor(groups["actor"], carry, reset, masks, starts)
        value, critic_end = self.value(groups, carry, reset, starts)
        carry = last(end | critic_end, reset)
        return PolicyOutput(mean, self._broadcast_std(mean), value, carry, estimates, latents)

    def act(
        self, groups: dict[str, Array], carry: dict, reset: Array, masks: Mapping[str, Array] = NO_MASKS
    ) -> tuple[Array, Array, dict]:
        """Mean and standard deviation ``[..., A]`` of the actions, and the carry after the last step.

        The critic's memory stays as it is. Arguments as in ``__call__``.
        """
        mean, end, _, _ = self._actor(groups["actor"], carry, reset, masks)
        return mean, self._broadcast_std(mean), carry | last(end, reset)

    def value(
        self, groups: dict[str, Array], carry: dict, reset: Array, starts: dict | None = None
    ) -> tuple[Array, dict]:
        """Values, batch shape, and the critic's carry after every step, leaves ``[T, B, ...]`` or ``[B, ...]``."""
        x, carries = self.encode_critic(groups["critic"]), {}
        if self.memory is not None:
            x, carries["critic"] = self._remember("critic", x, carry, reset, starts)
        return self.critic(x)[..., 0], carries

    def act_with_embedded_latent(self, embedded: Array, carry: dict, reset: Array) -> tuple[Array, dict]:
        """Mean actions and the new carry, from an actor observation whose latents are in place already."""
        mean, end, _ = self._head(embedded, carry, reset)
        return mean, carry | last(end, reset)

    def embed_actor(self, flat: Array) -> Array:
        """The actor's observation with its encoders' latents in place."""
        return encoders.embed(self.actor_obs, flat, self.get_encoder_latent(flat)) if self.encoders else flat

    def encode_critic(self, flat: Array) -> Array:
        """The critic's observation with its encoders' latents in place."""
        latents = self.get_encoder_latent(flat, critic=True)
        return encoders.embed(self.critic_obs, flat, latents) if latents else flat

    def get_encoder_latent(self, flat: Array, critic: bool = False) -> dict[str, Array]:
        """Latents ``[..., L]`` by component; those of the critic's encoders on the critic's observation."""
        if not critic:
            return encoders.encode(self.encoders, self.actor_encoder, self.actor_obs, flat)
        if self.critic_encoders == "shared":
            return encoders.encode(self.encoders, self.actor_encoder, self.critic_obs, flat)
        return encoders.encode(self.critic_encoders, self.critic_encoder, self.critic_obs, flat)

    @nn.nowrap
    def initial_carry(self, batch: int, key: Array | None = None, dtype=jnp.float32) -> dict:
        """Empty memories of ``batch`` environments; ``{}`` when feed-forward.

        ``key`` is for policies that draw something (``MutexPolicy``); this one does not.
        """
        del key
        stage = self.memory
        return {
            name: initial_carry(stage.kind, batch, stage.num_layers, stage.hidden_size, dtype)
            for name in self._memories()
        }

    @property
    def is_recurrent(self) -> bool:
        """Whether the policy has memories."""
        return self.memory is not None

    @property
    def replace_probs(self) -> dict[str, float]:
        """Stage -> probability of its estimate taking the place of the truth, where that is left to chance."""
        found = {name: getattr(self, name).replace_prob for name in self._stages()}
        return {name: prob for name, prob in found.items() if 0 < prob < 1}

    def _actor(self, flat: Array, carry: dict, reset: Array, masks: Mapping[str, Array], starts: dict | None = None):
        estimates, carries = {}, {}
        for name in self._stages():
            stage = getattr(self, name)
            if stage.on_actor_memory:
                continue
            x = estimators.estimator_inputs(stage, self.actor_obs, flat)
            if self.memory is not None:
                x, carries[name] = self._remember(name, x, carry, reset, starts)
            estimates[name] = getattr(self, f"state_{name}")(x)
            if stage.replace_prob > 0:
                mask = masks.get(name)
                flat = estimators.substitute(stage, self.actor_obs, self.critic_obs, flat, estimates[name], mask)
        latents = self.get_encoder_latent(flat) if self.encoders else {}
        mean, end, features = self._head(encoders.embed(self.actor_obs, flat, latents), carry, reset, starts)
        if self.estimator is not None and self.estimator.on_actor_memory:
            estimates["estimator"] = self.state_estimator(features)
        return mean, carries | end, estimates, latents

    def _head(self, x: Array, carry: dict, reset: Array, starts: dict | None = None):
        carries = {}
        if self.memory is not None:
            x, carries["actor"] = self._remember("actor", x, carry, reset, starts)
        return self.actor(x), carries, x

    def _remember(self, name: str, x: Array, carry: dict, reset: Array, starts: dict | None):
        memory = getattr(self, f"memory_{name}")
        if starts is None:
            return memory(x, carry[name], reset)
        return memory(x, carry[name], reset, starts["carry"][name], starts["mask"])

    def _broadcast_std(self, mean: Array) -> Array:
        return jnp.broadcast_to(jnp.exp(self.std) if self.log_std else self.std, mean.shape)

    @nn.nowrap
    def _stages(self) -> list[str]:
        return [name for name in ("adaptor", "estimator") if getattr(self, name) is not None]

    @nn.nowrap
    def _memories(self) -> list[str]:
        if self.memory is None:
            return []
        own = [name for name in self._stages() if not getattr(self, name).on_actor_memory]
        return [*own, "actor", "critic"]


def last(carries: dict, reset: Array) -> dict:
    """The carry after the last of the steps of ``reset[T, B]``, or after the one step of ``reset[B]``."""
    return jax.tree.map(lambda leaf: leaf[-1], carries) if reset.ndim == 2 else carries
