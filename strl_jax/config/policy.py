"""The section ``policy``: the keywords of each of st_rl's policy classes."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, create_model, field_validator

from strl_jax.config.errors import hint, must_be_one_of
from strl_jax.modules.conv2d import NORM_LAYERS
from strl_jax.modules.mlp import ACTIVATIONS, TORCH_ACTIVATIONS
from strl_jax.section import MOST, Count, Fraction, Names, Positive, Section, Text

Sizes = Count | tuple[Count, ...]
Padding = Annotated[int, Field(ge=0, le=MOST)]
Paddings = Padding | tuple[Padding, ...]
Bounded = Annotated[float, Field(ge=-1e6, le=1e6)]
SCALES = (1e-6, 1e6)  # lowest and highest action scale
Scale = Annotated[float, Field(ge=SCALES[0], le=SCALES[1])]
EncoderClass = Literal["MlpModel", "Conv2dHeadModel"]


def _one_of(known: Iterable[str]) -> AfterValidator:
    """Refuses a name that is not one of ``known``, ignoring case."""
    known = tuple(known)
    lower = {each.lower() for each in known}

    def check(name: str) -> str:
        if name.lower() not in lower:
            raise ValueError(f"{must_be_one_of(known)}{hint(name, known)}")
        return name

    return AfterValidator(check)


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


ACTIVATION_NAMES = (*ACTIVATIONS, *TORCH_ACTIVATIONS)
Activation = Annotated[str, _one_of(ACTIVATION_NAMES), Field(json_schema_extra={"enum": list(ACTIVATION_NAMES)})]
Nonlinearity = Annotated[str, _one_of(ACTIVATION_NAMES)]  # without an enum: the default is torch's name


class PolicyConfig(Section):
    """The actor-critic: the keywords that all policy classes have.

    Attributes:
        actor_hidden_dims, critic_hidden_dims: sizes of the hidden layers.
        activation: name of the activation.
        init_noise_std: initial standard deviation of the actions.
        mu_activation: activation of the action mean, or null.
        initialization: torch (uniform in +-1/sqrt(inputs)) or orthogonal (gain sqrt(2)).
    """

    actor_hidden_dims: tuple[Count, ...] = (256, 256, 256)
    critic_hidden_dims: tuple[Count, ...] = (256, 256, 256)
    activation: Activation = "elu"
    init_noise_std: Positive = 1.0
    mu_activation: Activation | None = None
    initialization: Literal["torch", "orthogonal"] = "torch"


class MemoryFields(Section):
    """Recurrent networks of the actor, the critic, and estimators that do not use the actor's.

    Attributes:
        rnn_type: lstm or gru, in any case.
        rnn_hidden_size: size of the hidden state.
        rnn_num_layers: number of layers.
    """

    rnn_type: Annotated[Literal["lstm", "gru"], BeforeValidator(_lower)] = "lstm"
    rnn_hidden_size: Count = 256
    rnn_num_layers: int = Field(1, ge=1, le=16)


class MlpKwargs(Section):
    """An MLP.

    Attributes:
        hidden_sizes: sizes of the hidden layers, a list or a number.
        nonlinearity: name of the activation, torch's or this library's.
    """

    hidden_sizes: Sizes = (256, 128)
    nonlinearity: Nonlinearity = "ReLU"


class EncoderKwargs(MlpKwargs):
    """An encoder; all keys after the first two belong to the convolutions of Conv2dHeadModel.

    Attributes:
        channels: output channels of each convolution.
        kernel_sizes, strides: one for each convolution, numbers or pairs of height and width.
        paddings: one for each convolution, numbers or pairs; null: no padding.
        use_maxpool: the convolutions have stride 1, and a max-pool has the strides above 1.
        normlayer: BatchNorm2d (its statistics are constant), InstanceNorm2d or null.
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
        encoder_class_name: MlpModel or Conv2dHeadModel, one for all encoders or one for each.
        encoder_kwargs: keywords of the encoders, one mapping for all or one for each.
        encoder_output_size: size of each latent.
        critic_encoder_component_names: components that the critic's encoders replace; null: the critic has no
            encoders; shared: it uses the actor's.
        critic_encoder_class_name, critic_encoder_kwargs: class and keywords of the critic's encoders;
            null: the same as the actor's.
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
        estimator_kwargs: keywords of its network.
        use_actor_rnn: it reads the output of the actor's recurrent network.
        replace_state_prob: probability with which the actor sees the estimate.
    """

    estimator_obs_components: Names
    estimator_target_components: Names
    estimator_kwargs: MlpKwargs = MlpKwargs()
    use_actor_rnn: bool = False
    replace_state_prob: Fraction = 0.0


class AdaptorFields(Section):
    """A second estimator, of privileged components; it is evaluated before the first.

    Attributes:
        adaptor_obs_components: components that it reads.
        adaptor_target_components: components that it predicts.
        adaptor_kwargs: keywords of its network.
        privilege_replace_state_prob: probability with which the actor sees its estimate.
    """

    adaptor_obs_components: Names
    adaptor_target_components: Names
    adaptor_kwargs: MlpKwargs = MlpKwargs()
    privilege_replace_state_prob: Fraction = 0.0


class VisualFields(Section):
    """A convolutional encoder of an image; the policy is deterministic: actions are the mean.

    Attributes:
        visual_component_name: the image among the actor's components, channels first.
        visual_kwargs: keywords of the convolutions and the head.
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
        task_reward_lerp: share of the task's reward in the total reward; 0: style reward only.
        discriminator_grad_pen: factor of the gradient penalty.
    """

    hidden_dims: tuple[Count, ...] = (1024, 512)
    style_reward_coef: float = Field(2.0, ge=0, le=1e6)
    task_reward_lerp: Fraction = 0.0
    discriminator_grad_pen: float = Field(5.0, ge=0, le=1e6)


class DiscriminatorFields(Section):
    """A discriminator that judges the style of the motion.

    Attributes:
        amp_discriminator: keywords of the discriminator.
    """

    amp_discriminator: DiscriminatorConfig = DiscriminatorConfig()


class MutexFields(Section):
    """Sub-policies from run folders, one of which acts at a time.

    Attributes:
        sub_policy_class_name: class of the sub-policies.
        sub_policy_paths: their run folders, written by this library or by st_rl.
        env_action_scale: action scale of the environment, a number or one for each action; null:
            the environment's attribute action_scale, or 1 if it has none.
    """

    sub_policy_class_name: Text = "ActorCritic"
    sub_policy_paths: Names
    env_action_scale: Scale | tuple[Scale, ...] | None = None


class FieldMutexFields(MutexFields):
    """Selection by the observation component engaging_block.

    Attributes:
        cmd_vel_mapping: index of a sub-policy to its commanded forward velocity in m/s, or to a
            range from which a velocity is drawn for each episode.
        reset_non_selected: which sub-policies get a zero recurrent state after a step. all: those that are not
            selected; when_skill: the same without the first, and only while the first is not selected; false: none.
        action_smoothing_buffer_len: number of steps over which the selection is averaged.
    """

    cmd_vel_mapping: dict[Annotated[str, Field(pattern=r"^\d+$")], Bounded | tuple[Bounded, Bounded]] = Field(
        default_factory=dict
    )
    reset_non_selected: Literal["all", "when_skill", False] = "all"
    action_smoothing_buffer_len: Count = 1

    @field_validator("cmd_vel_mapping", mode="before")
    @classmethod
    def _plain_keys(cls, value):
        """Keys are strings in JSON and numbers in YAML; neither has tuples."""
        if not isinstance(value, dict):
            return value
        return {str(key): tuple(item) if isinstance(item, list) else item for key, item in value.items()}


class ClimbMutexFields(FieldMutexFields):
    """As ActorCriticFieldMutex; the last sub-policy jumps down.

    Attributes:
        jump_down_vel: velocity of the last sub-policy in m/s, or a range; null: the velocity of
            the jump-up sub-policy.
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
    """The section of the policy class ``name``. Raises ``KeyError`` for an unknown class."""
    groups = FIELDS[name]
    if not groups:
        return PolicyConfig
    return create_model(f"{name}Config", __base__=(PolicyConfig, *reversed(groups)), __doc__=PolicyConfig.__doc__)
