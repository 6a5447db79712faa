"""Environments: from the section ``env`` of a config to an environment."""

import contextlib
import inspect
import math
import os
import warnings
from collections.abc import Callable

from strl_jax.algorithms import schedules
from strl_jax.config import Config, EnvConfig
from strl_jax.config.errors import ConfigError, Problem, hint, raised, reported_after, show, validated
from strl_jax.config.import_path import import_callable
from strl_jax.config.values import coerce, plain
from strl_jax.envs import contract, probe
from strl_jax.envs.base import Env
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.envs.fused import Fused
from strl_jax.envs.legged.config import LeggedConfig

ENV_NAMES = "brax:NAME:BACKEND, legged:NAME, playground:NAME, probe:NAME or package.module:callable"


def make_env(config: EnvConfig) -> Env:
    """The environment ``config.name``, built with ``config.kwargs``.

    Raises:
        ConfigError: there is no environment of this name, it does not accept the arguments, or its simulator cannot
            be imported with the OpenGL library of ``MUJOCO_GL``.
    """
    kind, rest = _split(config.name)
    if kind in ("legged", "brax", "playground"):
        _check_mujoco()
    if kind == "legged":
        return _legged_env(config)
    if kind == "playground":
        return _playground_env(rest, config.kwargs)
    if kind not in ("brax", "probe"):
        return _own_env(config)
    try:
        return _brax_env(rest, config.kwargs) if kind == "brax" else _probe_env(rest, config.kwargs)
    except (TypeError, ValueError) as error:  # TypeError: also a duplicate argument such as name
        raise _env_error(config, str(error)) from None


def check_env(config: EnvConfig) -> None:
    """Checks name and kwargs as far as this is possible without a simulator.

    For ``legged:`` this is everything except the robot's file, for ``probe:`` everything, for an import path the
    import and the signature. Brax and Playground are not checked.

    Raises:
        ConfigError: as ``make_env``.
    """
    kind, _ = _split(config.name)
    if kind == "legged":
        legged_config(config)
    elif kind == "probe":  # needs no simulator
        make_env(config)
    elif kind not in ("brax", "playground"):
        _own_callable(config)


def filled(config: Config) -> Config:
    """The config with all defaults of a legged environment in ``env.kwargs``; other configs are not changed.

    With the defaults in the stored config, a run can be continued after a default has changed.

    Raises:
        ConfigError: as ``check_env``.
    """
    kind, _ = _split(config.env.name)
    if kind != "legged":
        return config
    kwargs = legged_config(config.env).model_dump(mode="json")
    return config.model_copy(update={"env": config.env.model_copy(update={"kwargs": kwargs})})


def _split(name: str) -> tuple[str, str]:
    """The parts of a name before and after the first colon."""
    kind, _, rest = name.partition(":")
    if not rest:
        raise ConfigError(f"env.name: {show(name)} is not allowed; it must be {ENV_NAMES}")
    return kind, rest


def make_episode_env(config: Config, env: Env) -> EpisodeEnv:
    """Episodes of ``env``, with the config's time limit or the environment's default.

    Raises:
        ConfigError: ``env`` does not follow ``strl_jax.envs.base.Env``: a method or attribute is
            missing, a shape or dtype is wrong, or one of its functions raises.
    """
    if type(env).__module__ not in ADAPTERS:
        try:
            contract.check(env)
        except contract.ContractError as error:
            raise ConfigError(f"env.name: {config.env.name} gives {type(env).__name__}; {error}") from error
        except Exception as error:
            what = f"env.name: {config.env.name} gives {type(env).__name__}, whose functions fail"
            raise ConfigError(f"{what}: {raised(error)}") from error
    length, schedule = config.env.episode_length or env.episode_length, config.env.episode_length_schedule
    make_schedule = None if schedule is None else schedules.make(schedule)
    kernels = None if config.env.kernel == "off" else Fused(required=config.env.kernel == "on")
    return EpisodeEnv(env, length, config.env.pool_fraction, make_schedule, kernels=kernels)


def _check_mujoco() -> None:
    try:
        import mujoco  # noqa: F401 (its import loads the library of MUJOCO_GL, also where nothing is rendered)
    except Exception as error:  # PyOpenGL raises AttributeError, MuJoCo RuntimeError
        chosen = os.environ.get("MUJOCO_GL")
        if not chosen:
            raise
        fault = f"MUJOCO_GL={chosen}: MuJoCo cannot be imported: {type(error).__name__}: {error}"
        packages = "egl needs libegl1 and a driver, osmesa needs libosmesa6"
        raise ConfigError(f"{fault}; unset it, or install the library: {packages}") from error


# Tested in this library; tracing a simulator takes seconds.
ADAPTERS = ("strl_jax.envs.brax", "strl_jax.envs.legged.env")


def _brax_env(rest: str, kwargs: dict) -> Env:
    name, _, backend = rest.partition(":")
    with contextlib.redirect_stdout(None), warnings.catch_warnings():
        # mujoco.mjx prints that warp is missing, which is not needed; Brax warns that it is not maintained
        warnings.filterwarnings("ignore", message="Brax System")
        from strl_jax.envs.brax import BraxEnv  # Brax takes seconds to import

        return BraxEnv(name, backend or "mjx", **kwargs)


def _legged_env(config: EnvConfig) -> Env:
    settings = legged_config(config)
    with contextlib.redirect_stdout(None):  # see _brax_env
        from strl_jax.envs.legged.env import LeggedEnv
    with reported_after("env.kwargs."):
        return LeggedEnv(settings)


def legged_config(config: EnvConfig) -> LeggedConfig:
    """The config of a legged environment, without a check against its robot. Raises ``ConfigError`` as ``make_env``."""
    rest = config.name.partition(":")[2]
    if rest not in LEGGED:
        known = f"unknown legged environment {rest!r}; known: {', '.join(LEGGED)}{hint(rest, LEGGED)}"
        raise ConfigError(f"env.name: {show('legged:' + rest)} is not allowed; {known}")
    data = coerce(LeggedConfig, plain(config.kwargs))
    if isinstance(data.get("terrain", {}), dict):
        data["terrain"] = LEGGED[rest] | data.get("terrain", {})
    return validated(LeggedConfig, data, lambda problem: str(Problem(("env", "kwargs", *problem.path), problem.text)))


LEGGED = {"flat": {"mesh_type": "plane"}, "rough": {"mesh_type": "heightfield"}}  # name -> terrain defaults


def _playground_env(rest: str, kwargs: dict) -> Env:
    wrong = f"env.name: {show('playground:' + rest)} is not allowed"
    try:
        with contextlib.redirect_stdout(None):  # see _brax_env
            from strl_jax.envs.playground import PlaygroundEnv, SettingError
    except ImportError as error:
        missing = f"MuJoCo Playground cannot be imported ({error})"
        raise ConfigError(f"{wrong}; {missing}: pip install 'strl_jax[playground]'") from error
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
    """The error for an adapter's message, with the nearest name if the message lists the known ones."""
    _, listed, known = message.rpartition("known: ")
    if config.kwargs and not listed:
        return ConfigError(f"env.kwargs: {show(config.kwargs)} is not allowed; {message}")
    parts = config.name.split(":")
    wrong = parts[2] if "backend" in message and len(parts) > 2 else parts[1]
    near = hint(wrong, known.split(", ")) if listed else ""
    return ConfigError(f"env.name: {show(config.name)} is not allowed; {message}{near}")


def _own_env(config: EnvConfig) -> Env:
    """The environment that the user's callable returns."""
    make = _own_callable(config)
    try:
        return make(**config.kwargs)
    except Exception as error:
        given = f" with {show(config.kwargs)}" if config.kwargs else ""
        raise ConfigError(f"env.name: {config.name}{given} fails: {raised(error)}") from error


def _own_callable(config: EnvConfig) -> Callable:
    """The user's callable, which accepts ``config.kwargs``."""
    make = import_callable(config.name, "env.name:", ENV_NAMES)
    try:
        inspect.signature(make).bind(**config.kwargs)
    except TypeError as error:
        raise ConfigError(f"env.kwargs: {show(config.kwargs)} does not fit {config.name}: {error}") from None
    except ValueError:  # a built-in class without a signature
        raise ConfigError(f"env.name: {show(config.name)} is not allowed; it must be {ENV_NAMES}") from None
    return make
