"""From a config to objects: environments and classes by their names."""

import contextlib
import importlib
import inspect
import math
from collections.abc import Callable

from strl_jax.algorithms import minibatch, ppo
from strl_jax.algorithms.base import Algorithm
from strl_jax.config import Config, EnvConfig
from strl_jax.config_errors import ConfigError, hint, not_one_of, raised, show
from strl_jax.config_policies import AmpFields, MemoryFields, MutexFields, has
from strl_jax.envs import contract, probe
from strl_jax.envs.base import Env
from strl_jax.envs.episode import EpisodeEnv
from strl_jax.modules.policy import Policy
from strl_jax.observations import Segments
from strl_jax.policies import make_policy

FORMS = "brax:NAME:BACKEND, probe:NAME or package.module:callable"


def make_env(config: EnvConfig) -> Env:
    """The environments that ``config.name`` names, built with ``config.kwargs``.

    Raises:
        ConfigError: nothing of that name, arguments that it does not take, or what
            came is no environment.
    """
    kind, _, rest = config.name.partition(":")
    if not rest:
        raise ConfigError(f"env.name: {show(config.name)} is not allowed; it must be {FORMS}")
    if kind not in ("brax", "probe"):
        return _own_env(config)
    try:
        return _brax_env(rest, config.kwargs) if kind == "brax" else _probe_env(rest, config.kwargs)
    except (TypeError, ValueError) as error:  # TypeError: an argument that the call itself has, such as name
        raise _env_error(config, str(error)) from None


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


ADAPTERS = ("strl_jax.envs.brax",)  # tested here, and a simulator takes seconds to trace


def make_algorithm(config: Config, env: Env) -> Algorithm:
    """The algorithm and the policy that the config names, for what ``env`` offers.

    Raises:
        ConfigError: an unknown component, or ``clip_min_std`` of another length than
            the actions.
    """
    build = ALGORITHMS[config.runner.algorithm_class_name]
    groups = make_groups(config, env)
    return build(config, make_policy(config, env.action_size, groups), groups)


def make_groups(config: Config, env: Env) -> dict[str, Segments]:
    """Layouts of the groups ``actor`` and ``critic``. Raises ``ConfigError`` for an unknown component."""
    return {name: _group(config, env, name) for name in ("actor", "critic")}


def check_trains(config: Config, policy: Policy) -> None:
    """Whether the config's algorithm trains all that the policy has.

    Raises:
        ConfigError: it does not.
    """
    runner = config.runner
    algorithm_class, policy_class = runner.algorithm_class_name, runner.policy_class_name
    key = f"runner.algorithm_class_name: {algorithm_class} is not allowed with the policy class {policy_class}"
    if has(config.policy, MutexFields):
        raise ConfigError(f"{key}, whose sub-policies are trained already; it can act, be evaluated and teach")
    if has(config.policy, AmpFields):
        raise ConfigError(f"{key}, whose discriminator it does not train")
    stages = [name for name in ("estimator", "adaptor") if getattr(policy, name) is not None]
    estimates = algorithm_class in ESTIMATING
    if stages and not estimates:
        raise ConfigError(f"{key}, whose {stages[0]} it does not train; it must be one of {', '.join(ESTIMATING)}")
    if estimates and not stages:
        raise ConfigError(f"{key}, which has no estimator; it must be another than {', '.join(ESTIMATING)}")
    if policy.deterministic:
        raise ConfigError(f"{key}: its actions are the mean, which has no gradient in the surrogate loss")


def check_shards(config: Config, num_shards: int) -> None:
    """Whether environments and minibatches divide over the devices.

    Raises:
        ConfigError: they do not; the message has numbers that do.
    """
    total, steps, parts = config.env.num_envs, config.runner.num_steps_per_env, config.algorithm.num_mini_batches
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


def _ppo(config: Config, policy: Policy, groups: dict[str, Segments]) -> Algorithm:
    std = config.algorithm.clip_min_std
    if isinstance(std, tuple) and len(std) != policy.action_size:
        raise ConfigError(
            f"algorithm.clip_min_std: {show(list(std))} is not allowed; it must be one number, "
            f"or one for each of the {policy.action_size} actions"
        )
    return ppo.make(config.algorithm, policy, groups["actor"], groups["critic"], config.resolved_compat)


ALGORITHMS: dict[str, Callable[[Config, Policy, dict[str, Segments]], Algorithm]] = {"PPO": _ppo, "EstimatorPPO": _ppo}
ESTIMATING = ("EstimatorPPO",)


def _group(config: Config, env: Env, group: str) -> Segments:
    """The components of one observation group."""
    offered = env.observation_shapes
    names = getattr(config.env.groups, group)
    names = tuple(offered) if names is None else names
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
    make = _import(config.name)
    try:
        inspect.signature(make).bind(**config.kwargs)
    except TypeError as error:
        raise ConfigError(f"env.kwargs: {show(config.kwargs)} does not fit {config.name}: {error}") from None
    except ValueError:  # a built-in class without a signature
        raise ConfigError(f"env.name: {show(config.name)} is not allowed; it must be {FORMS}") from None
    try:
        return make(**config.kwargs)
    except Exception as error:
        given = f" with {show(config.kwargs)}" if config.kwargs else ""
        raise ConfigError(f"env.name: {config.name}{given} fails: {raised(error)}") from error


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
