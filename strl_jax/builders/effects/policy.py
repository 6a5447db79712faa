"""The keys of ``policy`` that have no effect; see ``rules``."""

from collections.abc import Iterator
from pathlib import Path

from strl_jax.config import Config, ConfigError
from strl_jax.config.policy import EncoderKwargs, MutexFields, PolicyConfig
from strl_jax.run_folder import run_dir


def policy_keys(config: Config) -> Iterator[tuple[str, str]]:
    """Dotted keys without effect in ``config``, each with the reason."""
    policy = config.policy
    if isinstance(policy, MutexFields):
        for name in PolicyConfig.model_fields:
            yield f"policy.{name}", "each sub-policy has the settings of its own run"
        if not names_no_class(policy.sub_policy_paths):
            yield "policy.sub_policy_class_name", "each sub-policy's folder names its class"
        return
    if not policy.actor_hidden_dims and not policy.critic_hidden_dims:
        yield "policy.activation", "actor and critic have no hidden layers"
    for name in ("estimator_kwargs", "adaptor_kwargs"):
        if getattr(policy, name, None) is not None and getattr(policy, name).hidden_sizes == ():
            yield f"policy.{name}.nonlinearity", "the network has no hidden layers"
    for name in ("encoder_kwargs", "critic_encoder_kwargs", "visual_kwargs"):
        yield from _convolutions(f"policy.{name}", getattr(policy, name, None))


def _convolutions(key: str, kwargs: EncoderKwargs | tuple[EncoderKwargs, ...] | None) -> Iterator[tuple[str, str]]:
    each = kwargs if isinstance(kwargs, tuple) else (kwargs,)
    for number, one in enumerate(each):
        if one is None or any(size != 1 for stride in one.strides for size in _sizes(stride)):
            continue
        if one.use_maxpool:
            where = f"{key}.{number}" if isinstance(kwargs, tuple) else key
            yield f"{where}.use_maxpool", "all strides are 1, so there is nothing to pool"


def _sizes(value: int | tuple[int, ...]) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else value


def names_no_class(paths: tuple[str, ...]) -> bool:
    """Whether the class of a sub-policy in one of the folders is not known from the folder itself."""
    return any(not _names_class(Path(path)) for path in paths)


def _names_class(path: Path) -> bool:
    if (path / "checkpoints").is_dir():
        return True
    try:
        section = run_dir.read_json(path).get("policy")
    except ConfigError:  # reported when the sub-policy is read
        return False
    return isinstance(section, dict) and "class_name" in section
