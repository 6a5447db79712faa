"""From a config's ``env`` to an environment: names, keywords, and what is wrong with them."""

import contextlib
import inspect
import math
import warnings
from collections.abc import Callable

from pydantic import ValidationError

from strl_jax.config import Config, EnvConfig
from strl_jax.config.errors import ConfigError, dotted, hint, problems_of, raised, show
from strl_jax.config.import_path import import_callable
from strl_jax.config.values import coerce, plain
from strl_jax.envs import contract, probe
from strl_jax.envs.base import Env
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.envs.legged.config import LeggedConfig

ENV_NAMES = "brax:NAME:BACKEND, legged:NAME, playground:NAME, probe:NAME or package.module:callable"


def make_env(config: EnvConfig) -> Env:
    """The environments that ``config.name`` names, built with ``config.kwargs``.

    Raises:
        ConfigError: nothing of that name, arguments that it does not take, or what
            came is no environment.
    """
    kind, rest = _split(config.name)
    if kind == "legged":
        return _legged_env(rest, config.kwargs)
    if kind == "playground":
        return _playground_env(rest, config.kwargs)
    if kind not in ("brax", "probe"):
        return _own_env(config)
    try:
        return _brax_env(rest, config.kwargs) if kind == "brax" else _probe_env(rest, config.kwargs)
    except (TypeError, ValueError) as error:  # TypeError: an argument that the call itself has, such as name
        raise _env_error(config, str(error)) from None


def check_env(config: EnvConfig) -> None:
    """What can be told of name and kwargs without a simulator: of ``legged:`` all but the robot's file, of one's own
    environment import and signature, of ``probe:`` all. Brax and Playground alone know what they take.

    Raises:
        ConfigError: as ``make_env``.
    """
    kind, rest = _split(config.name)
    if kind == "legged":
        _legged_config(rest, config.kwargs)
    elif kind == "probe":  # has no simulator
        make_env(config)
    elif kind not in ("brax", "playground"):
        _own_callable(config)


def filled(config: Config) -> Config:
    """The config with all defaults of a legged environment in its ``env.kwargs``; others keep theirs to themselves.

    So a run stays what it was when a default changes.

    Raises:
        ConfigError: as ``check_env``.
    """
    kind, rest = _split(config.env.name)
    if kind != "legged":
        return config
    kwargs = _legged_config(rest, config.env.kwargs).model_dump(mode="json")
    return config.model_copy(update={"env": config.env.model_copy(update={"kwargs": kwargs})})


def _split(name: str) -> tuple[str, str]:
    """What stands before the first colon and behind it."""
    kind, _, rest = name.partition(":")
    if not rest:
        raise ConfigError(f"env.name: {show(name)} is not allowed; it must be {ENV_NAMES}")
    return kind, rest


def make_episode_env(config: Config, env: Env) -> EpisodeEnv:
    """Episodes of ``env``, with the config's time limit or the environment's own.

    Raises:
        ConfigError: ``env`` does not keep to ``strl_jax.envs.base.Env``: a part is
            lacking, a shape or dtype is another, or one of its functions raises.
    """
    if type(env).__module__ not in ADAPTERS:
        try:
            contract.check(env)
        except contract.ContractError as error:
            raise ConfigError(f"env.name: {config.env.name} gives {type(env).__name__}; {error}") from error
        except Exception as error:
            what = f"env.name: {config.env.name} gives {type(env).__name__}, whose functions fail"
            raise ConfigError(f"{what}: {raised(error)}") from error
    return EpisodeEnv(env, config.env.episode_length or env.episode_length, config.env.pool_fraction)


ADAPTERS = ("strl_jax.envs.brax", "strl_jax.envs.legged.env")  # tested here, and a simulator takes seconds to trace


def _brax_env(rest: str, kwargs: dict) -> Env:
    name, _, backend = rest.partition(":")
    with contextlib.redirect_stdout(None), warnings.catch_warnings():
        # mujoco.mjx prints that it lacks warp, which nothing here needs; Brax warns that it rests
        warnings.filterwarnings("ignore", message="Brax System")
        from strl_jax.envs.brax import BraxEnv  # Brax takes seconds to import

        return BraxEnv(name, backend or "mjx", **kwargs)


def _legged_env(rest: str, kwargs: dict) -> Env:
    settings = _legged_config(rest, kwargs)
    with contextlib.redirect_stdout(None):  # see _brax_env
        from strl_jax.envs.legged.env import LeggedEnv
    try:
        return LeggedEnv(settings)
    except ValueError as error:
        raise ConfigError(f"env.kwargs.{error}") from None


def _legged_config(rest: str, kwargs: dict) -> LeggedConfig:
    """Keywords of a legged environment, checked as far as they go without its robot."""
    if rest not in LEGGED:
        near = f"unknown legged environment {rest!r}; known: {', '.join(LEGGED)}{hint(rest, LEGGED)}"
        raise ConfigError(f"env.name: {show('legged:' + rest)} is not allowed; {near}")
    data = coerce(LeggedConfig, plain(kwargs))
    if isinstance(data.get("terrain", {}), dict):
        data["terrain"] = LEGGED[rest] | data.get("terrain", {})
    try:
        return LeggedConfig.model_validate(data, strict=True)
    except ValidationError as error:
        problems = problems_of(error, data, LeggedConfig)
        lines = (f"{dotted(('env', 'kwargs', *problem.path))}: {problem.text}" for problem in problems)
        raise ConfigError(*lines) from None


LEGGED = {"flat": {"mesh_type": "plane"}, "rough": {"mesh_type": "heightfield"}}  # what each is in section terrain


def _playground_env(rest: str, kwargs: dict) -> Env:
    wrong = f"env.name: {show('playground:' + rest)} is not allowed"
    try:
        with contextlib.redirect_stdout(None):  # see _brax_env
            from strl_jax.envs.playground import PlaygroundEnv, SettingError
    except ImportError as error:
        lacking = f"MuJoCo Playground cannot be imported ({error})"
        raise ConfigError(f"{wrong}; {lacking}: pip install 'strl_jax[playground]'") from error
    known = list(inspect.signature(PlaygroundEnv).parameters)[1:]
    for key in kwargs:
        if key not in known:
            raise ConfigError(f"env.kwargs.{key}: unknown key; known are {', '.join(known)}")
    try:
        return PlaygroundEnv(rest, **kwargs)
    except SettingError as error:
        raise ConfigError(f"env.kwargs.{error}") from error
    except ValueError as error:
        _, listed, known = str(error).partition("known: ")
        raise ConfigError(f"{wrong}; {error}{hint(rest, known.split(', ')) if listed else ''}") from error


def _probe_env(rest: str, kwargs: dict) -> Env:
    options = getattr(probe.PROBES.get(rest), "__dataclass_fields__", {})
    for name in [name for name in kwargs if name in options]:
        value = kwargs[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{name} is {show(value)}; it must be a finite number")
    return probe.make(rest, **kwargs)


def _env_error(config: EnvConfig, message: str) -> ConfigError:
    """The line for what an adapter says; where it lists the known names, with the nearest."""
    _, listed, known = message.rpartition("known: ")
    if config.kwargs and not listed:
        return ConfigError(f"env.kwargs: {show(config.kwargs)} is not allowed; {message}")
    parts = config.name.split(":")
    wrong = parts[2] if "backend" in message and len(parts) > 2 else parts[1]
    near = hint(wrong, known.split(", ")) if listed else ""
    return ConfigError(f"env.name: {show(config.name)} is not allowed; {message}{near}")


def _own_env(config: EnvConfig) -> Env:
    """The environment that a callable of the user's returns."""
    make = _own_callable(config)
    try:
        return make(**config.kwargs)
    except Exception as error:
        given = f" with {show(config.kwargs)}" if config.kwargs else ""
        raise ConfigError(f"env.name: {config.name}{given} fails: {raised(error)}") from error


def _own_callable(config: EnvConfig) -> Callable:
    """The callable of the user's, which takes the keywords."""
    make = import_callable(config.name, "env.name:", ENV_NAMES)
    try:
        inspect.signature(make).bind(**config.kwargs)
    except TypeError as error:
        raise ConfigError(f"env.kwargs: {show(config.kwargs)} does not fit {config.name}: {error}") from None
    except ValueError:  # a built-in class without a signature
        raise ConfigError(f"env.name: {show(config.name)} is not allowed; it must be {ENV_NAMES}") from None
    return make
