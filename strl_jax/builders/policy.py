"""Policies: from the section ``policy`` of a config to a policy with its stages."""

from collections.abc import Sequence

from strl_jax.config import Config
from strl_jax.config.errors import ConfigError, not_one_of, reported_after, show
from strl_jax.config.policy import (
    AdaptorFields,
    EncoderFields,
    EncoderKwargs,
    EstimatorStageFields,
    MemoryFields,
    MlpKwargs,
    PolicyConfig,
    VisualFields,
)
from strl_jax.modules.conv2d import CONVOLUTIONS, Conv2dModel
from strl_jax.modules.policy import Policy
from strl_jax.modules.stages import EncoderStage, EstimatorStage, MemoryStage
from strl_jax.observations import Segments


def make_policy(config: Config, action_size: int, groups: dict[str, Segments]) -> Policy:
    """The policy of the class ``runner.policy_class_name``.

    Args:
        groups: the observation groups ``actor`` and ``critic``.

    Raises:
        ConfigError: a component is not in its group, lists have different lengths,
            convolutions do not fit the image, or stages exclude each other.
    """
    policy, actor, critic = config.policy, groups["actor"], groups["critic"]
    memory = None
    if isinstance(policy, MemoryFields):
        memory = MemoryStage(policy.rnn_type, policy.rnn_hidden_size, policy.rnn_num_layers)
    plain = {name: getattr(policy, name) for name in PolicyConfig.model_fields}
    return Policy(
        action_size,
        log_std=not config.resolved_compat.linear_std,
        deterministic=isinstance(policy, VisualFields),
        actor_obs=actor,
        critic_obs=critic,
        memory=memory,
        estimator=_estimator(policy, actor, critic) if isinstance(policy, EstimatorStageFields) else None,
        adaptor=_adaptor(policy, actor, critic) if isinstance(policy, AdaptorFields) else None,
        encoders=_encoders(policy, actor),
        critic_encoders=_critic_encoders(policy, critic),
        **plain,
    )


def _estimator(policy: EstimatorStageFields, actor: Segments, critic: Segments) -> EstimatorStage:
    if policy.use_actor_rnn and not isinstance(policy, MemoryFields):
        raise ConfigError("policy.use_actor_rnn: true is not allowed; the policy class has no memory")
    if policy.use_actor_rnn and policy.replace_state_prob > 0:
        raise ConfigError(
            f"policy.replace_state_prob: {policy.replace_state_prob} is not allowed with use_actor_rnn, "
            "whose estimate is computed after the actor has seen the observation; it must be 0"
        )
    return _estimator_stage("estimator", policy, actor, critic, policy.replace_state_prob, policy.use_actor_rnn)


def _adaptor(policy: AdaptorFields, actor: Segments, critic: Segments) -> EstimatorStage:
    return _estimator_stage("adaptor", policy, actor, critic, policy.privilege_replace_state_prob, False)


def _estimator_stage(
    name: str, policy: PolicyConfig, actor: Segments, critic: Segments, prob: float, on_memory: bool
) -> EstimatorStage:
    inputs, targets = getattr(policy, f"{name}_obs_components"), getattr(policy, f"{name}_target_components")
    _check_components(f"policy.{name}_obs_components", inputs, actor)
    _check_components(f"policy.{name}_target_components", targets, critic)
    if prob > 0:
        why = "; the estimate replaces a component of the actor"
        _check_components(f"policy.{name}_target_components", targets, actor, why)
    network: MlpKwargs = getattr(policy, f"{name}_kwargs")
    return EstimatorStage(inputs, targets, _sizes(network.hidden_sizes), network.nonlinearity, prob, on_memory)


def _encoders(policy: PolicyConfig, actor: Segments) -> tuple[EncoderStage, ...]:
    if isinstance(policy, VisualFields):
        name, options, size = policy.visual_component_name, policy.visual_kwargs, policy.visual_latent_size
        _check_components("policy.visual_component_name", (name,), actor)
        return (_encoder("policy.visual_kwargs", actor, name, "Conv2dHeadModel", options, size, True),)
    if not isinstance(policy, EncoderFields):
        return ()
    return _encoder_list("", policy, actor)


def _critic_encoders(policy: PolicyConfig, critic: Segments) -> tuple[EncoderStage, ...] | str:
    if not isinstance(policy, EncoderFields):
        return ()
    names = policy.critic_encoder_component_names
    for key in ("critic_encoder_class_name", "critic_encoder_kwargs") if names in (None, "shared") else ():
        if getattr(policy, key) is not None:
            raise ConfigError(
                f"policy.{key}: not allowed where critic_encoder_component_names is {names or 'null'}; "
                "the critic has no encoders of its own"
            )
    if names is None:
        return ()
    if names == "shared":
        _check_components("policy.encoder_component_names", policy.encoder_component_names, critic, " of the critic")
        return "shared"
    return _encoder_list("critic_", policy, critic)


def _encoder_list(prefix: str, policy: EncoderFields, group: Segments) -> tuple[EncoderStage, ...]:
    """The encoders whose keys begin with ``prefix``; class and keywords are by default those of the actor's."""
    names = getattr(policy, f"{prefix}encoder_component_names")
    _check_components(f"policy.{prefix}encoder_component_names", names, group)
    classes = _one_each(policy, prefix, "encoder_class_name", str, names)
    options = _one_each(policy, prefix, "encoder_kwargs", EncoderKwargs, names)
    key, size = f"policy.{prefix}encoder_kwargs", policy.encoder_output_size
    return tuple(
        _encoder(key, group, name, kind, option, size, False)
        for name, kind, option in zip(names, classes, options, strict=True)
    )


def _encoder(
    key: str, group: Segments, name: str, kind: str, options: EncoderKwargs, size: int, linear: bool
) -> EncoderStage:
    convolutions = {field: getattr(options, field) for field in CONVOLUTIONS}
    if kind == "MlpModel":
        given = [field for field in CONVOLUTIONS if field in options.model_fields_set and convolutions[field]]
        if given:
            raise ConfigError(f"{key}: MlpModel takes no {given[0]}; it takes {', '.join(MlpKwargs.model_fields)}")
        convolutions = {}
    else:
        _check_image(key, name, group.shapes[group.names.index(name)], options)
    return EncoderStage(name, _sizes(options.hidden_sizes), size, linear, options.nonlinearity, **convolutions)


def _check_image(key: str, name: str, shape: tuple[int, ...], options: EncoderKwargs) -> None:
    if len(shape) != 3:
        raise ConfigError(f"{key}: component {name} has shape {shape}; Conv2dHeadModel needs (channels, height, width)")
    if not options.channels:
        raise ConfigError(f"{key}: Conv2dHeadModel needs channels, kernel_sizes and strides")
    model = Conv2dModel(**{field: getattr(options, field) for field in CONVOLUTIONS})
    with reported_after(f"{key}: "):
        model.conv_out_resolution(*shape[1:])


def _one_each(policy: EncoderFields, prefix: str, key: str, kind: type, names: Sequence[str]) -> tuple:
    value = getattr(policy, prefix + key)
    value = getattr(policy, key) if value is None else value
    if isinstance(value, kind):
        return (value,) * len(names)
    if len(value) != len(names):
        raise ConfigError(
            f"policy.{prefix}{key}: {len(value)} for {len(names)} components; it must be one, or one for each"
        )
    return tuple(value)


def _sizes(value: int | tuple[int, ...]) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value)


def _check_components(key: str, names: Sequence[str], group: Segments, why: str = "") -> None:
    for name in names:
        if name not in group.names:
            raise ConfigError(f"{key}: {not_one_of(name, group.names)}{why}")
        if list(names).count(name) > 1:
            raise ConfigError(f"{key}: {show(list(names))} is not allowed; {name} is listed twice")
