"""Checks of a config before training: the algorithm fits the policy, and the batch fits the devices."""

import jax

from strl_jax.algorithms import appo, estimator, tppo
from strl_jax.config import Config
from strl_jax.config.errors import ConfigError, reported_after
from strl_jax.config.policy import DiscriminatorFields, MutexFields
from strl_jax.config.sections import ALGORITHMS
from strl_jax.modules.policy import Policy

GUARDS = ("", "_host_to_device", "_device_to_device", "_device_to_host")
# Settings of JAX: values with which a run fails or gives other numbers, and why.
JAX_OPTIONS = {
    "jax_debug_key_reuse": ((True,), "the check does not know how environments divide their keys"),
    "jax_debug_nans": ((True,), "NaN is a regular value here, such as the return of an episode that has not ended"),
    "jax_disable_jit": ((True,), "a run consists of compiled programs"),
    "jax_enable_x64": ((True,), "all numbers are float32 and int32"),
    "jax_numpy_dtype_promotion": (("strict",), "integers and float32 are combined"),
    "jax_numpy_rank_promotion": (("raise",), "arrays of different ranks are combined"),
} | {
    f"jax_transfer_guard{kind}": (("disallow", "disallow_explicit"), "metrics and states go to the host and back")
    for kind in GUARDS
}


def check_jax_options() -> None:
    """Checks the settings of JAX, which are environment variables or set by ``jax.config.update``.

    Raises:
        ConfigError: one of ``JAX_OPTIONS`` is set to such a value.
    """
    for name, (values, reason) in JAX_OPTIONS.items():
        value = getattr(jax.config, name, None)
        if value in values:
            raise ConfigError(f"{name.upper()}: {value} is not allowed: {reason}")


def check_trains(config: Config, policy: Policy) -> None:
    """Checks that the config's algorithm trains all parts of the policy.

    Raises:
        ConfigError: it does not; the message names algorithms that do.
    """
    runner, algorithm = config.runner, config.algorithm
    key = (
        f"runner.algorithm_class_name: {runner.algorithm_class_name} is not allowed "
        f"with the policy class {runner.policy_class_name}"
    )
    if isinstance(config.policy, MutexFields):
        raise ConfigError(
            f"{key}, whose sub-policies are trained already; this class can only act, be evaluated and teach"
        )
    discriminated = isinstance(config.policy, DiscriminatorFields)
    if discriminated != isinstance(algorithm, appo.AmpFields):
        what = "whose discriminator it does not train" if discriminated else "which has no discriminator"
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
    """Names of the algorithms that have these keywords."""
    *first, last = (name for name, config in ALGORITHMS.items() if issubclass(config, fields))
    return f"{', '.join(first)} and {last}"


def check_shards(config: Config, num_shards: int) -> None:
    """Checks that environments and minibatches can be divided among the devices.

    Raises:
        ConfigError: they cannot; the message has numbers that can.
    """
    _check_divides("env.num_envs", config.env.num_envs, num_shards)
    if config.runner.eval_interval or config.runner.eval_after_load:
        _check_divides("runner.num_eval_envs", config.runner.num_eval_envs, num_shards)
    with reported_after(""):
        config.check_minibatches(num_shards)


def _check_divides(key: str, number: int, num_shards: int) -> None:
    if number % num_shards:
        below = number // num_shards * num_shards
        fitting = " or ".join(str(n) for n in (below, below + num_shards) if n)
        raise ConfigError(f"{key}: {number} does not divide over {num_shards} devices; nearest is {fitting}")
