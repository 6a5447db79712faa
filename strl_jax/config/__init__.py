"""The config of a run: typed, frozen, strict; read from YAML or from a ``train_cfg`` dict."""

from strl_jax.config.errors import ConfigError
from strl_jax.config.loading import from_dict, json_schema, load, to_dict, to_yaml
from strl_jax.config.policy import PolicyConfig
from strl_jax.config.sections import Config, EnvConfig, GroupsConfig, RunnerConfig

__all__ = [
    "Config",
    "ConfigError",
    "EnvConfig",
    "GroupsConfig",
    "PolicyConfig",
    "RunnerConfig",
    "from_dict",
    "json_schema",
    "load",
    "to_dict",
    "to_yaml",
]
