"""Checks of a config before training: its algorithm fits its policy, its batch fits the devices."""

from strl_jax.algorithms import appo, estimator, minibatch, tppo
from strl_jax.config import Config
from strl_jax.config.errors import ConfigError
from strl_jax.config.policy import DiscriminatorFields, MemoryFields, MutexFields, has
from strl_jax.config.sections import ALGORITHMS
from strl_jax.modules.policy import Policy


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
