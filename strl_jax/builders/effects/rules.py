"""Keys that a config sets without effect; this is the one place that knows when a key has none.

A function here yields the keys that have no effect in a config, each with the reason. Only those whose value is
not the default become lines: a default never gives a line, and neither does a stored config that lists all defaults.
"""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from strl_jax.algorithms import distillation
from strl_jax.algorithms.appo import AmpFields
from strl_jax.algorithms.compat import Compat
from strl_jax.algorithms.estimator import EstimatorFields
from strl_jax.algorithms.lr_cycles import Cycle
from strl_jax.algorithms.schedules import Coefficient
from strl_jax.algorithms.tppo import TeacherFields
from strl_jax.builders import environment
from strl_jax.builders.effects import legged
from strl_jax.builders.effects.policy import policy_keys
from strl_jax.builders.effects.teacher import keyword_keys, teacher_keys
from strl_jax.builders.effects.torch_arguments import argument_keys, scheduler_of
from strl_jax.config import Config, ConfigError
from strl_jax.config.policy import AdaptorFields, FieldMutexFields, MemoryFields, MutexFields
from strl_jax.config.sections import LOGGERS
from strl_jax.envs.episode import SMALLEST_POOL

Keys = Iterator[tuple[str, str]]  # dotted key, reason
OF_PPO = ("clip_param", "use_clipped_value_loss", "value_loss_coef", "entropy_coef", "surrogate_loss_coef")
OF_REWARDS = ("gamma", "lam", "normalize_rewards", "normalized_reward_clamp_value")


def without_effect(config: Config, num_shards: int = 1, env_is_given: bool = False) -> list[str]:
    """One line for each key that is not at its default and has no effect; arguments as in ``unused``."""
    keys = [(key, why) for key, why in unused(config, num_shards, env_is_given) if _is_set(config, key)]
    keys += [*keyword_keys(config), *argument_keys(config)]
    if not env_is_given and config.env.name.startswith("legged:"):
        keys += _legged(config)
    reasons = dict(reversed(keys))  # of several reasons for a key the first
    return [f"{key}: no effect; {reasons[key]}" for key in dict.fromkeys(key for key, _ in keys)]


def unused(config: Config, num_shards: int = 1, env_is_given: bool = False) -> list[tuple[str, str]]:
    """The dotted keys to which another value than the default would have no effect, each with the reason.

    The arguments of a legged environment, of torch's optimisers, schedulers and losses, and the keywords of a teacher
    are not among them.

    Args:
        num_shards: number of devices.
        env_is_given: the environment is built already, not from the section ``env``.
    """
    keys = [*_env(config, num_shards, env_is_given), *_ppo(config), *_style(config), *_factors(config)]
    return [*keys, *teacher_keys(config), *_compat(config), *policy_keys(config), *_runner(config)]


def _is_set(root: BaseModel, key: str) -> bool:
    """Whether the value at a dotted key exists and is not its default."""
    *sections, name = key.split(".")
    owner: Any = root
    for section in sections:
        is_list = isinstance(owner, tuple)
        owner = owner[int(section)] if is_list else getattr(owner, section, None)
    if not isinstance(owner, BaseModel) or name not in type(owner).model_fields:
        return False
    return getattr(owner, name) != type(owner).model_fields[name].get_default(call_default_factory=True)


def _legged(config: Config) -> list[tuple[str, str]]:
    """The keys of a legged environment; none where its arguments are wrong, which is reported when it is built."""
    try:
        settings = environment.legged_config(config.env)
    except ConfigError:
        return []
    keys = legged.keys(settings, _observed(config))
    return [(f"env.kwargs.{key}", why) for key, why in keys if _is_set(settings, key)]


def _observed(config: Config) -> set[str] | None:
    """The components that a network observes; None: all, or they are not known before files are read."""
    groups, algorithm = config.env.groups, config.algorithm
    used = [groups.actor, groups.critic]
    if isinstance(algorithm, TeacherFields):
        used.append(groups.teacher)
    others = [groups.amp if isinstance(algorithm, AmpFields) else None, groups.rnd if algorithm.rnd_cfg else None]
    if None in used:
        return None
    return {name for names in (*used, *others) for name in names or ()}


def _env(config: Config, num_shards: int, env_is_given: bool) -> Keys:
    env, algorithm = config.env, config.algorithm
    if int(env.pool_fraction * (env.num_envs // num_shards)) < SMALLEST_POOL:
        yield "env.pool_fraction", f"the pool has at least {SMALLEST_POOL} states, more than this share of num_envs"
    if env_is_given:
        yield "env.kwargs", "the environment is built already"
    if not isinstance(algorithm, TeacherFields):
        yield "env.groups.teacher", "the algorithm has no teacher"
    if not isinstance(algorithm, AmpFields):
        yield "env.groups.amp", "the algorithm has no discriminator"
    if algorithm.rnd_cfg is None:
        yield "env.groups.rnd", "it needs algorithm.rnd_cfg"


def _ppo(config: Config) -> Keys:
    algorithm, rnd = config.algorithm, config.algorithm.rnd_cfg
    if algorithm.schedule != "adaptive":
        yield "algorithm.desired_kl", "only schedule: adaptive uses it"
    discriminator_uses_it = (
        isinstance(algorithm, AmpFields)
        and algorithm.discriminator_learning_rate is None
        and not config.resolved_compat.discriminator_with_policy
    )
    if not isinstance(algorithm.schedule, str) and not discriminator_uses_it:
        yield "algorithm.learning_rate", f"schedule {algorithm.schedule.name} sets the learning rate"
    if isinstance(scheduler_of(algorithm), Cycle) and not discriminator_uses_it:
        yield "algorithm.learning_rate", f"{algorithm.lr_scheduler_class_name} sets the learning rate"
    if not algorithm.normalize_rewards:
        yield "algorithm.normalized_reward_clamp_value", "it needs normalize_rewards: true"
    why = "it needs empirical_normalization: true, or a normalization of rnd_cfg"
    normalizes = algorithm.empirical_normalization or (rnd and rnd.state_normalization)
    if not normalizes and not (rnd and rnd.reward_normalization):
        yield "algorithm.normalization_until", why
    if not normalizes and not (rnd and rnd.reward_normalization and not rnd.rsl_rl):
        yield "algorithm.normalization_eps", f"{why}; rnd_cfg.reward_normalization as in rsl_rl does not use it"
    if rnd and not (rnd.predictor_hidden_dims or rnd.target_hidden_dims):
        yield "algorithm.rnd_cfg.activation", "the networks have no hidden layers"
    if not getattr(algorithm, "using_ppo", True):
        for name in OF_PPO:
            yield f"algorithm.{name}", "using_ppo: false removes the losses of PPO"
        for name in OF_REWARDS:
            yield f"algorithm.{name}", "with using_ppo: false nothing is learned from rewards"


def _style(config: Config) -> Keys:
    algorithm, compat = config.algorithm, config.resolved_compat
    if not isinstance(algorithm, AmpFields):
        return
    if not compat.mimic_in_loss:
        yield (
            "algorithm.mimic_loss_coef",
            "the mimic loss has no gradient and is only logged; compat.mimic_in_loss adds it to the total loss",
        )
    if algorithm.task_reward_w is not None:
        yield "policy.amp_discriminator.task_reward_lerp", "algorithm.task_reward_w sets the share of the task"
    if compat.discriminator_with_policy:
        for name in ("learning_rate", "max_grad_norm", "optimizer_class_name"):
            why = "with compat.discriminator_with_policy the policy's optimiser trains the discriminator"
            yield f"algorithm.discriminator_{name}", why
    if compat.whole_discriminator_batch and algorithm.discriminator_batch_fraction != 1:
        why = "with compat.whole_discriminator_batch the discriminator learns from every sample"
        yield "algorithm.discriminator_batch_fraction", why


def _factors(config: Config) -> Keys:
    """Factors of the only loss of a network: an optimiser that divides a gradient by its size cancels them."""
    algorithm, policy, compat = config.algorithm, config.policy, config.resolved_compat
    if isinstance(algorithm, AmpFields) and _is_never_zero(algorithm.discriminator_loss_coef):
        key, optimizer = "algorithm.discriminator_loss_coef", algorithm.discriminator_optimizer_class_name
        if compat.discriminator_with_policy:
            yield key, "with compat.discriminator_with_policy it is only a switch, and each factor except 0 means 1"
        elif optimizer != "SGD":
            yield key, _cancelled("discriminator", optimizer, "discriminator_max_grad_norm")
    optimizer = algorithm.optimizer_class_name
    estimates = isinstance(algorithm, EstimatorFields)
    if estimates and not isinstance(policy, AdaptorFields):
        yield "algorithm.adaptor_loss_coef", f"the policy class {config.runner.policy_class_name} has no adaptor"
    if optimizer == "SGD":
        return
    if estimates and _is_never_zero(algorithm.adaptor_loss_coef):
        yield "algorithm.adaptor_loss_coef", _cancelled("adaptor", optimizer)
    on_actor = getattr(policy, "use_actor_rnn", False)
    if estimates and not on_actor and _is_never_zero(algorithm.estimator_loss_coef):
        yield "algorithm.estimator_loss_coef", _cancelled("estimator", optimizer)
    if isinstance(algorithm, TeacherFields) and not algorithm.using_ppo:
        others = algorithm.distill_latent_obs_component_mapping or getattr(algorithm, "dagger_loss_coef", 0) != 0
        if not others and not on_actor and _is_never_zero(algorithm.distillation_loss_coef):
            yield "algorithm.distillation_loss_coef", _cancelled("actor", optimizer)


def _cancelled(network: str, optimizer: str, clip: str = "max_grad_norm") -> str:
    return (
        f"the {network} has no other loss, and {optimizer} divides its gradient by the gradient's size; "
        f"the factor only changes when {clip} clips the gradient"
    )


def _is_never_zero(coef: Coefficient) -> bool:
    values = [coef] if isinstance(coef, int | float) else [value for _, value in coef.values()]
    return min(values) > 0 or max(values) < 0


def _compat(config: Config) -> Keys:
    if not isinstance(config.compat, Compat):  # a name stands for all keys
        return
    algorithm, policy = config.algorithm, config.policy
    teaches, judges = isinstance(algorithm, TeacherFields), isinstance(algorithm, AmpFields)
    if not isinstance(policy, MemoryFields):
        for name in ("contiguous_envs", "advance_critic_memory"):
            yield f"compat.{name}", "the policy class has no memory"
    probs = (getattr(policy, name, 0.0) for name in ("replace_state_prob", "privilege_replace_state_prob"))
    if not any(0 < prob < 1 for prob in probs):
        yield "compat.redraw_replacement", "no estimate replaces a component with a probability between 0 and 1"
    if not isinstance(policy, FieldMutexFields) and not (teaches and "sub_policy_paths" in algorithm.teacher_policy):
        yield "compat.zero_mutex_buffer", "there is no mutex policy that reads obstacles"
    if not algorithm.empirical_normalization:
        yield "compat.normalize_while_collecting", "it needs empirical_normalization: true"
    if not teaches:
        yield "compat.sample_log_prob", "the algorithm has no teacher"
    if not (teaches and judges):
        yield "compat.executed_labels", "it needs a teacher and a discriminator"
    if not teaches or algorithm.buffer_dilation_ratio == 1:
        yield "compat.looped_returns", "it needs a buffer_dilation_ratio above 1"
    if not teaches or algorithm.distill_target not in distillation.BOUNDED:
        yield "compat.tan_statistic", f"only distill_target {' and '.join(distillation.BOUNDED)} use it"
    yield from _compat_of_style(config, judges)


def _compat_of_style(config: Config, judges: bool) -> Keys:
    names = ("discriminator_with_policy", "whole_discriminator_batch", "separate_amp_normalizers", "amp_after_reset")
    for name in (*names, "mimic_in_loss") if not judges else ():
        yield f"compat.{name}", "the algorithm has no discriminator"
    if judges and config.algorithm.mimic_loss_coef == 0:
        yield "compat.mimic_in_loss", "mimic_loss_coef is 0"
    if judges and config.algorithm.discriminator_batch_fraction == 1:
        yield "compat.whole_discriminator_batch", "discriminator_batch_fraction is 1"
    if judges and config.env.groups.amp is None:
        yield "compat.amp_after_reset", "only states of env.groups.amp are pairs of observations"


def _runner(config: Config) -> Keys:
    runner = config.runner
    if runner.init_from is None:
        yield "runner.ckpt_manipulator", "it needs runner.init_from; a resumed or loaded run is not changed"
    evaluates = runner.eval_interval > 0 or runner.eval_after_load
    if not evaluates and not isinstance(config.policy, MutexFields):  # these policies are only evaluated
        yield "runner.num_eval_envs", "eval_interval is 0; only OnPolicyRunner.evaluation uses it"
    for name in ("best_metric", "best_direction") if not evaluates else ():
        yield f"runner.{name}", "there are no evaluations; runner.eval_interval adds them"
    loggers = [runner.logger] if isinstance(runner.logger, str) else runner.logger
    if all(name in LOGGERS and name != "wandb" for name in loggers):
        yield "runner.wandb_project", "runner.logger has no wandb"
