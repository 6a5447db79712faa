"""From a config to objects: environments and classes by their names."""

import contextlib
import importlib
import inspect
import math
from collections.abc import Callable, Sequence

from pydantic import ValidationError

from strl_jax.algorithms import appo, estimator, minibatch, ppo, tppo
from strl_jax.algorithms.base import Algorithm
from strl_jax.config import Config, EnvConfig
from strl_jax.config_coerce import coerce, plain
from strl_jax.config_errors import ConfigError, deepest, dotted, hint, not_one_of, problems_of, raised, show
from strl_jax.config_models import ALGORITHMS
from strl_jax.config_policies import AmpFields as DiscriminatorFields
from strl_jax.config_policies import MemoryFields, MutexFields, has
from strl_jax.envs import contract, probe
from strl_jax.envs.base import Env
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.envs.legged import terrain
from strl_jax.envs.legged.config import LeggedConfig
from strl_jax.modules.policy import Policy
from strl_jax.observations import Segments
from strl_jax.policies import make_policy

FORMS = "brax:NAME:BACKEND, legged:NAME, playground:NAME, probe:NAME or package.module:callable"


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


def _split(name: str) -> tuple[str, str]:
    """What stands before the first colon and behind it."""
    kind, _, rest = name.partition(":")
    if not rest:
        raise ConfigError(f"env.name: {show(name)} is not allowed; it must be {FORMS}")
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


def make_ppo(config: Config, policy: Policy, groups: dict[str, Segments]) -> Algorithm:
    """PPO with the config's numbers: what every algorithm is built on, and all that acting needs.

    Raises:
        ConfigError: ``clip_min_std`` has another length than the actions.
    """
    std = config.algorithm.clip_min_std
    if isinstance(std, tuple) and len(std) != policy.action_size:
        raise ConfigError(
            f"algorithm.clip_min_std: {show(list(std))} is not allowed; it must be one number, "
            f"or one for each of the {policy.action_size} actions"
        )
    return ppo.make(config.algorithm, policy, groups["actor"], groups["critic"], config.resolved_compat)


def make_acting(config: Config, env: Env) -> Algorithm:
    """The policy that the config names for what ``env`` offers, under PPO: whoever only acts needs no more.

    Raises:
        ConfigError: an unknown component, or as ``make_ppo``.
    """
    groups = make_groups(config, env)
    return make_ppo(config, make_policy(config, env.action_size, groups), groups)


def make_groups(config: Config, env: Env) -> dict[str, Segments]:
    """Layouts of the groups ``actor`` and ``critic``. Raises ``ConfigError`` for an unknown component."""
    return {name: make_group(config, env, name) for name in ("actor", "critic")}


def check_trains(config: Config, policy: Policy) -> None:
    """Whether the config's algorithm trains all that the policy has.

    Raises:
        ConfigError: it does not.
    """
    runner, algorithm = config.runner, config.algorithm
    key = (
        f"runner.algorithm_class_name: {runner.algorithm_class_name} is not allowed "
        f"with the policy class {runner.policy_class_name}"
    )
    if has(config.policy, MutexFields):
        raise ConfigError(f"{key}, whose sub-policies are trained already; it can act, be evaluated and teach")
    if has(config.policy, DiscriminatorFields) != isinstance(algorithm, appo.AmpFields):
        judged = has(config.policy, DiscriminatorFields)
        what = "whose discriminator it does not train" if judged else "which has no discriminator"
        raise ConfigError(f"{key}, {what}; {_whose(appo.AmpFields)} train one")
    stages = [name for name in ("estimator", "adaptor") if getattr(policy, name) is not None]
    estimates = isinstance(algorithm, estimator.EstimatorFields)
    if stages and not estimates:
        raise ConfigError(f"{key}, whose {stages[0]} it does not train; {_whose(estimator.EstimatorFields)} train it")
    if estimates and not stages:
        raise ConfigError(f"{key}, which has no estimator; {_whose(estimator.EstimatorFields)} train one")
    if policy.deterministic and getattr(algorithm, "using_ppo", True):
        more = f"; {_whose(tppo.TeacherFields)} with using_ppo: false train it"
        raise ConfigError(f"{key}: its actions are the mean, which has no gradient in the surrogate loss{more}")


def _whose(fields: type) -> str:
    """The algorithms that have these keywords."""
    *first, last = (name for name, config in ALGORITHMS.items() if issubclass(config, fields))
    return f"{', '.join(first)} and {last}"


def check_shards(config: Config, num_shards: int) -> None:
    """Whether environments and minibatches divide over the devices.

    Raises:
        ConfigError: they do not; the message has numbers that do.
    """
    total, steps, parts = config.env.num_envs, config.update_steps, config.algorithm.num_mini_batches
    _check_divides("env.num_envs", total, num_shards)
    recurrent = has(config.policy, MemoryFields)
    if config.runner.eval_interval:
        _check_divides("runner.num_eval_envs", config.runner.num_eval_envs, num_shards)
    samples, unit = total // num_shards * (1 if recurrent else steps), "environments" if recurrent else "samples"
    if parts > samples:
        raise ConfigError(f"algorithm.num_mini_batches: {parts} is more than the {samples} {unit} of a shard")
    compat = config.resolved_compat
    if compat.contiguous_envs if recurrent else compat.reuse_permutation:
        return
    try:
        minibatch.check_divides(samples, parts, unit)
    except ValueError as error:
        raise ConfigError(f"algorithm.num_mini_batches: {error}") from None


def _check_divides(key: str, number: int, num_shards: int) -> None:
    if number % num_shards:
        below = number // num_shards * num_shards
        fitting = " or ".join(str(n) for n in (below, below + num_shards) if n)
        raise ConfigError(f"{key}: {number} does not divide over {num_shards} devices; nearest is {fitting}")


def make_group(config: Config, env: Env, group: str, default: Sequence[str] | None = None) -> Segments:
    """The components of one observation group.

    Args:
        default: its components where the config names none; None: all that the environment offers.

    Raises:
        ConfigError: an unknown component.
    """
    offered = env.observation_shapes
    names = getattr(config.env.groups, group)
    if names is None:
        names = tuple(offered) if default is None else tuple(default)
    for name in names:
        if name not in offered:
            raise ConfigError(f"env.groups.{group}: {not_one_of(name, tuple(offered))}")
    try:
        return Segments.select_from(offered, names)
    except ValueError as error:
        raise ConfigError(f"env.groups.{group}: {error}") from None


def _brax_env(rest: str, kwargs: dict) -> Env:
    with contextlib.redirect_stdout(None):  # mujoco.mjx prints that it lacks warp, which nothing here needs
        from strl_jax.envs.brax import BraxEnv  # Brax takes seconds to import

    name, _, backend = rest.partition(":")
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
        settings = LeggedConfig.model_validate(data, strict=True)
    except ValidationError as error:
        problems = deepest(problems_of(error, data, LeggedConfig))
        lines = (f"{dotted(('env', 'kwargs', *problem.path))}: {problem.text}" for problem in problems)
        raise ConfigError(*lines) from None
    try:
        if settings.terrain.mesh_type == "heightfield":
            terrain.check(settings.terrain)
    except ValueError as error:
        raise ConfigError(f"env.kwargs.{error}") from None
    return settings


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
    make = _import(config.name)
    try:
        inspect.signature(make).bind(**config.kwargs)
    except TypeError as error:
        raise ConfigError(f"env.kwargs: {show(config.kwargs)} does not fit {config.name}: {error}") from None
    except ValueError:  # a built-in class without a signature
        raise ConfigError(f"env.name: {show(config.name)} is not allowed; it must be {FORMS}") from None
    return make


def _import(name: str) -> Callable:
    path, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(path)
    except (ImportError, ValueError, TypeError) as error:
        raise ConfigError(f"env.name: {show(name)}: cannot import {path}: {error}; it must be {FORMS}") from None
    except Exception as error:
        raise ConfigError(f"env.name: {show(name)}: cannot import {path}: {raised(error)}") from error
    if not hasattr(module, attribute):
        raise ConfigError(f"env.name: {show(name)}: {path} has no {attribute}{hint(attribute, vars(module))}")
    found = getattr(module, attribute)
    if not callable(found):
        raise ConfigError(f"env.name: {show(name)}: {attribute} is {show(found)}; it must be a function or a class")
    return found
