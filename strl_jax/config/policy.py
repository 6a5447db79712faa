"""The ``policy`` section: one set of keywords for each of st_rl's policy classes."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field, create_model, field_validator

from strl_jax.config.errors import hint, must_be_one_of
from strl_jax.modules.conv2d import NORM_LAYERS
from strl_jax.modules.mlp import ACTIVATIONS, TORCH_ACTIVATIONS
from strl_jax.section import MOST, Count, Fraction, Names, Positive, Section, Text

Sizes = Count | tuple[Count, ...]
Padding = Annotated[int, Field(ge=0, le=MOST)]
Paddings = Padding | tuple[Padding, ...]
Bounded = Annotated[float, Field(ge=-1e6, le=1e6)]
SCALES = (1e-6, 1e6)  # of actions
Scale = Annotated[float, Field(ge=SCALES[0], le=SCALES[1])]
EncoderClass = Literal["MlpModel", "Conv2dHeadModel"]


def _one_of(known: Iterable[str]) -> AfterValidator:
    """Refuses a name that is not one of ``known``, in any case of letters."""
    known = tuple(known)

    def check(name: str) -> str:
        if name.lower() not in known:
            raise ValueError(f"{must_be_one_of(known)}{hint(name, known)}")
        return name

    return AfterValidator(check)


Activation = Annotated[str, _one_of(ACTIVATIONS), Field(json_schema_extra={"enum": list(ACTIVATIONS)})]
Nonlinearity = Annotated[str, _one_of([*ACTIVATIONS, *TORCH_ACTIVATIONS])]


class PolicyConfig(Section):
    """The actor-critic: what every class takes.

    Attributes:
        actor_hidden_dims, critic_hidden_dims: sizes of the hidden layers.
        activation: name of the activation.
        init_noise_std: standard deviation of the actions at the start.
        mu_activation: activation of the action mean, or null.
        initialization: torch (uniform in 1/sqrt(inputs)) or orthogonal (gain sqrt(2)).
    """

    actor_hidden_dims: tuple[Count, ...] = (256, 256, 256)
    critic_hidden_dims: tuple[Count, ...] = (256, 256, 256)
    activation: Activation = "elu"
    init_noise_std: Positive = 1.0
    mu_activation: Activation | None = None
    initialization: Literal["torch", "orthogonal"] = "torch"


class MemoryFields(Section):
    """A memory for the actor and one for the critic, and for estimators of their own.

    Attributes:
        rnn_type: lstm or gru.
        rnn_hidden_size: size of the hidden state.
        rnn_num_layers: number of layers.
    """

    rnn_type: Literal["lstm", "gru"] = "lstm"
    rnn_hidden_size: Count = 256
    rnn_num_layers: int = Field(1, ge=1, le=16)


class MlpKwargs(Section):
    """A small network.

    Attributes:
        hidden_sizes: sizes of the hidden layers, a list or one number.
        nonlinearity: torch's or our name of the activation.
    """

    hidden_sizes: Sizes = (256, 128)
    nonlinearity: Nonlinearity = "ReLU"


class EncoderKwargs(MlpKwargs):
    """An encoder; the keys after the first two are those of Conv2dHeadModel's convolutions.

    Attributes:
        channels: output channels of each convolution.
        kernel_sizes, strides: one for each convolution, numbers or pairs of height and width.
        paddings: likewise; null: none.
        use_maxpool: strides above 1 become those of a max-pool.
        normlayer: BatchNorm2d (its statistics stay as loaded), InstanceNorm2d or null.
    """

    channels: tuple[Count, ...] = ()
    kernel_sizes: tuple[Sizes, ...] = ()
    strides: tuple[Sizes, ...] = ()
    paddings: tuple[Paddings, ...] | None = None
    use_maxpool: bool = False
    normlayer: Literal[NORM_LAYERS] = None


class EncoderFields(Section):
    """Encoders that replace observation components with latents.

    Attributes:
        encoder_component_names: components that the actor's encoders replace.
        encoder_class_name: MlpModel or Conv2dHeadModel, one for all or one for each.
        encoder_kwargs: their keywords, one mapping for all or one for each.
        encoder_output_size: size of each latent.
        critic_encoder_component_names: the critic's components; null: it has no
            encoders; shared: it uses the actor's.
        critic_encoder_class_name, critic_encoder_kwargs: of the critic's own encoders;
            null: as the actor's.
    """

    encoder_component_names: Names
    encoder_class_name: EncoderClass | tuple[EncoderClass, ...] = "MlpModel"
    encoder_kwargs: EncoderKwargs | tuple[EncoderKwargs, ...] = EncoderKwargs()
    encoder_output_size: Count = 32
    critic_encoder_component_names: Literal["shared"] | Names | None = None
    critic_encoder_class_name: EncoderClass | tuple[EncoderClass, ...] | None = None
    critic_encoder_kwargs: EncoderKwargs | tuple[EncoderKwargs, ...] | None = None


class EstimatorStageFields(Section):
    """A supervised estimator of observation components.

    Attributes:
        estimator_obs_components: components that it reads.
        estimator_target_components: components that it predicts.
        estimator_kwargs: its network.
        use_actor_rnn: it reads the output of the actor's memory.
        replace_state_prob: probability with which the actor sees the estimate.
    """

    estimator_obs_components: Names
    estimator_target_components: Names
    estimator_kwargs: MlpKwargs = MlpKwargs()
    use_actor_rnn: bool = False
    replace_state_prob: Fraction = 0.0


class AdaptorFields(Section):
    """A second estimator, for privileged components; it comes before the first.

    Attributes:
        adaptor_obs_components: components that it reads.
        adaptor_target_components: components that it predicts.
        adaptor_kwargs: its network.
        privilege_replace_state_prob: probability with which the actor sees its estimate.
    """

    adaptor_obs_components: Names
    adaptor_target_components: Names
    adaptor_kwargs: MlpKwargs = MlpKwargs()
    privilege_replace_state_prob: Fraction = 0.0


class VisualFields(Section):
    """A convolutional encoder of an image; actions are the mean.

    Attributes:
        visual_component_name: the image among the actor's components, channels first.
        visual_kwargs: the convolutions and the head.
        visual_latent_size: size of the latent.
    """

    visual_component_name: Text
    visual_kwargs: EncoderKwargs
    visual_latent_size: Count = 256


class DiscriminatorConfig(Section):
    """The discriminator of adversarial motion priors.

    Attributes:
        hidden_dims: sizes of the hidden layers.
        style_reward_coef: factor of the style reward.
        task_reward_lerp: share of the task's reward in the sum; 0: style alone.
        discriminator_grad_pen: factor of the gradient penalty.
    """

    hidden_dims: tuple[Count, ...] = (1024, 512)
    style_reward_coef: float = Field(2.0, ge=0, le=1e6)
    task_reward_lerp: Fraction = 0.0
    discriminator_grad_pen: float = Field(5.0, ge=0, le=1e6)


class DiscriminatorFields(Section):
    """A discriminator that judges the style of the motion.

    Attributes:
        amp_discriminator: the discriminator.
    """

    amp_discriminator: DiscriminatorConfig = DiscriminatorConfig()


class MutexFields(Section):
    """Sub-policies from run folders, one of which acts at a time.

    Attributes:
        sub_policy_class_name: class of the sub-policies.
        sub_policy_paths: their run folders, this library's or st_rl's.
        env_action_scale: action scale of the environment, one or one for each action; null:
            its attribute action_scale, 1 without one.
    """

    sub_policy_class_name: Text = "ActorCritic"
    sub_policy_paths: Names
    env_action_scale: Scale | tuple[Scale, ...] | None = None


class FieldMutexFields(MutexFields):
    """Selection by the component engaging_block.

    Attributes:
        cmd_vel_mapping: number of a sub-policy to the forward velocity that it is
            commanded, in m/s, or to a range from which each episode draws.
        reset_non_selected: which memories are cleared after a step: all, when_skill, or false: none.
        action_smoothing_buffer_len: steps over which the selection is averaged.
    """

    cmd_vel_mapping: dict[Annotated[str, Field(pattern=r"^\d+$")], Bounded | tuple[Bounded, Bounded]] = Field(
        default_factory=dict
    )
    reset_non_selected: Literal["all", "when_skill", False] = "all"
    action_smoothing_buffer_len: Count = 1

    @field_validator("cmd_vel_mapping", mode="before")
    @classmethod
    def _plain_keys(cls, value):
        """JSON has strings for keys, YAML numbers, and neither has tuples."""
        if not isinstance(value, dict):
            return value
        return {str(key): tuple(item) if isinstance(item, list) else item for key, item in value.items()}


class ClimbMutexFields(FieldMutexFields):
    """The last sub-policy jumps down.

    Attributes:
        jump_down_vel: velocity of the last sub-policy, m/s, or a range; null: that of
            the jump-up one.
    """

    jump_down_vel: Bounded | tuple[Bounded, Bounded] | None = None


FIELDS: dict[str, tuple[type[Section], ...]] = {
    "ActorCritic": (),
    "ActorCriticRecurrent": (MemoryFields,),
    "EncoderActorCritic": (EncoderFields,),
    "EncoderActorCriticRecurrent": (EncoderFields, MemoryFields),
    "EncoderAmpActorCriticRecurrent": (EncoderFields, DiscriminatorFields, MemoryFields),
    "AmpActorCritic": (DiscriminatorFields,),
    "AmpActorCriticRecurrent": (DiscriminatorFields, MemoryFields),
    "StateAc": (EstimatorStageFields,),
    "StateAcRecurrent": (EstimatorStageFields, MemoryFields),
    "EncoderStateAc": (EstimatorStageFields, EncoderFields),
    "EncoderStateAcRecurrent": (EstimatorStageFields, EncoderFields, MemoryFields),
    "PrivilegeStateAcRecurrent": (AdaptorFields, EstimatorStageFields, MemoryFields),
    "VisualDeterministicAC": (VisualFields,),
    "VisualDeterministicRecurrent": (VisualFields, MemoryFields),
    "ActorCriticMutex": (MutexFields,),
    "ActorCriticFieldMutex": (FieldMutexFields,),
    "ActorCriticClimbMutex": (ClimbMutexFields,),
}


@lru_cache
def policy_config(name: str) -> type[PolicyConfig]:
    """The keywords of the policy class ``name``. Raises ``KeyError`` for an unknown one."""
    groups = FIELDS[name]
    if not groups:
        return PolicyConfig
    return create_model(f"{name}Config", __base__=(PolicyConfig, *reversed(groups)), __doc__=PolicyConfig.__doc__)


def has(config: PolicyConfig, group: type[BaseModel]) -> bool:
    """Whether a class takes the keywords of ``group``."""
    return isinstance(config, group)
