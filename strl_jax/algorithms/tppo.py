"""Teacher-guided PPO (st_rl's TPPO): a teacher labels the observations and acts at first; the student imitates it.

Labels on the states that the student visits are the idea of DAgger, "A Reduction of Imitation Learning and Structured
Prediction to No-Regret Online Learning" (https://arxiv.org/abs/1011.0686).
"""

import dataclasses
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from strl_jax.algorithms import distillation, estimator, lr_schedulers, optimizers, ppo, schedules
from strl_jax.algorithms.base import Algorithm, Metric, Outputs, Term
from strl_jax.algorithms.compat import Compat
from strl_jax.algorithms.hooks import LABELS
from strl_jax.algorithms.plateau import ReduceLROnPlateau
from strl_jax.algorithms.ppo import PPOConfig
from strl_jax.algorithms.schedules import Coefficient
from strl_jax.algorithms.teacher import LABEL_STD, LATENT, PROBABILITIES, Teacher, TeacherHook, act_probability
from strl_jax.algorithms.update import update
from strl_jax.modules.policy import Policy
from strl_jax.observations import Segments
from strl_jax.section import Fraction, Keywords, Section, Text
from strl_jax.types import Batch

__all__ = ["EstimatorTPPOConfig", "TPPOConfig", "Teacher", "TeacherFields", "add", "make", "update"]


class TeacherFields(Section):
    """The keywords and defaults of st_rl's ``TPPO``.

    Attributes:
        teacher_policy_class_name: class of the teacher's policy.
        teacher_policy: mapping with the key ``teacher_ac_path``, the run folder or torch file of the teacher;
            for a torch file also the keywords of its policy. A mutex class has sub_policy_paths instead.
            ``obs_segments`` and ``privileged_obs_segments`` (or ``critic_obs_segments``) are st_rl's layouts of
            what its actor and critic observe, ``{component: shape, ...}``.
        label_action_with_critic_obs: the teacher sees the critic's components, not the actor's,
            unless env.groups.teacher, obs_segments or the run folder of the teacher names its components.
        teacher_act_prob: probability with which the teacher acts: linear, exp, tanh, or a number.
        update_times_scale: time scale in iterations over which this probability decreases.
        using_ppo: use the losses of PPO; false: distillation only (DAgger).
        distillation_loss_coef: factor of the distance from the labels, a number or a schedule.
        distill_target: the distance: real, mse_sum, l1, tanh, scaled_tanh, max_log_prob or kl.
        distill_latent_coef: factor of the distances of the latents, a number or a schedule.
        distill_latent_target: their distance: real, mse_sum, l1, tanh or scaled_tanh.
        distill_latent_obs_component_mapping: for each latent loss, the student's encoded component, and the
            teacher's component whose latent is the target; null: no latent losses.
        buffer_dilation_ratio: an update learns from the last
            int(buffer_dilation_ratio * num_steps_per_env) steps.
        lr_scheduler_class_name: torch's name of a learning-rate scheduler, or null.
        lr_scheduler: torch's arguments of this scheduler. ReduceLROnPlateau also has ``metric``: the loss or
            other number of the update that must improve, by its name in the log without ``Loss/``.
        hidden_state_resample_prob: probability with which a sequence of the update starts from a
            recurrent state drawn from [-1, 1].
        action_labels_from_sample: labels are samples of the teacher's actions, not their mean.
    """

    teacher_policy_class_name: Text = "ActorCritic"
    teacher_policy: Keywords = Field(default_factory=dict)
    label_action_with_critic_obs: bool = True
    teacher_act_prob: Literal[PROBABILITIES] | Fraction = "exp"
    update_times_scale: float = Field(100.0, gt=0, le=1e9)
    using_ppo: bool = True
    distillation_loss_coef: Coefficient = 1.0
    distill_target: Literal[distillation.KINDS] = "real"
    distill_latent_coef: Coefficient = 1.0
    distill_latent_target: Literal[distillation.LATENT_KINDS] = "real"
    distill_latent_obs_component_mapping: dict[str, str] | None = None
    buffer_dilation_ratio: float = Field(1.0, ge=1, le=1000)
    lr_scheduler_class_name: Literal[tuple(lr_schedulers.SCHEDULERS)] | None = None
    lr_scheduler: dict[str, Any] = Field(default_factory=dict, validate_default=True)
    hidden_state_resample_prob: Fraction = 0.0
    action_labels_from_sample: bool = False

    @field_validator("lr_scheduler")
    @classmethod
    def _scheduler_takes(cls, arguments: dict[str, Any], info: Any) -> dict[str, Any]:
        name = info.data.get("lr_scheduler_class_name")
        if name is not None:
            lr_schedulers.find(name, arguments)
        elif arguments and "lr_scheduler_class_name" in info.data:
            raise ValueError("it must be empty where lr_scheduler_class_name is null")
        return arguments

    @model_validator(mode="after")
    def _teacher_schedule_exists(self):
        act_probability(self.teacher_act_prob, self.update_times_scale)
        return self


class TPPOConfig(TeacherFields, PPOConfig):
    """PPO with a teacher."""

    @model_validator(mode="after")
    def _scheduler_fits(self):
        name = self.lr_scheduler_class_name
        if name is None:
            return self
        if self.schedule != "fixed":
            raise ValueError(
                f"lr_scheduler_class_name: {name} is not allowed with a schedule, which also "
                "sets the learning rate; schedule must be fixed, or lr_scheduler_class_name null"
            )
        optimizer = self.optimizer_class_name
        scheduled = lr_schedulers.find(name, self.lr_scheduler).changes_momentum
        if scheduled and not optimizers.OPTIMIZERS[optimizer].has_momentum:
            raise ValueError(
                f"lr_scheduler.cycle_momentum: true is not allowed with {optimizer}, which has no momentum; "
                "it must be false"
            )
        return self


class EstimatorTPPOConfig(estimator.EstimatorFields, TPPOConfig):
    """TPPO that also trains the policy's estimator and adaptor."""


def make(
    config: TPPOConfig,
    policy: Policy,
    actor: Segments,
    critic: Segments,
    teacher: Teacher,
    compat: Compat = Compat(),  # noqa: B008 (frozen)
) -> Algorithm:
    """TPPO over ``policy``; pass the teacher's weights as ``data={"teacher": {"variables": ..., "stats": ...}}``.

    Args:
        config: settings; an ``EstimatorTPPOConfig`` adds the supervised terms.
        policy, actor, critic, compat: as in ``ppo.make``.
        teacher: the policy that gives the labels.

    Raises:
        ValueError: as ``ppo.make`` and ``add``.
    """
    return add(ppo.make(config, policy, actor, critic, compat), config, teacher)


def add(algorithm: Algorithm, config: TeacherFields, teacher: Teacher) -> Algorithm:
    """An algorithm with a teacher.

    Raises:
        ValueError: teacher and student have different numbers of actions, a target for bounded values
            is used with unbounded ones, a latent of the mapping is missing or the sizes of a pair differ,
            the metric of ReduceLROnPlateau is unknown, or ``hidden_state_resample_prob`` is above 0 for a
            policy without a memory.
    """
    mapping = config.distill_latent_obs_component_mapping or {}
    _check(algorithm.policy, config, teacher, mapping)
    dropped = () if config.using_ppo else {term.name for term in ppo.terms(algorithm.config)}
    terms = [term for term in algorithm.terms if term.name not in dropped]
    hook = TeacherHook(
        teacher,
        act_probability(config.teacher_act_prob, config.update_times_scale),
        from_sample=config.action_labels_from_sample,
        with_std=config.distill_target == "kl",
        latents=tuple(dict.fromkeys(mapping.values())),
    )
    algorithm = dataclasses.replace(
        algorithm,
        terms=(*terms, *_terms(config, mapping)),
        metrics=(*algorithm.metrics, *_metrics(config, algorithm.compat)),
        act_hook=hook,
        queue=config.buffer_dilation_ratio,
        resample_prob=config.hidden_state_resample_prob,
    )
    return algorithm if config.lr_scheduler_class_name is None else _with_scheduler(algorithm, config)


def _with_scheduler(algorithm: Algorithm, config: TeacherFields) -> Algorithm:
    scheduler = lr_schedulers.find(config.lr_scheduler_class_name, config.lr_scheduler)
    if isinstance(scheduler, ReduceLROnPlateau):
        known = [part.name for part in (*algorithm.terms, *algorithm.metrics)] + ["total_loss", "kl", "grad_norm"]
        if scheduler.metric not in known:
            raise ValueError(
                f"lr_scheduler.metric: {scheduler.metric!r} is not allowed; it must be one of {', '.join(known)}"
            )
        return dataclasses.replace(algorithm, plateau=scheduler)
    rates = algorithm.rates | {"policy": scheduler.schedule(algorithm.config.learning_rate)}
    algorithm = dataclasses.replace(algorithm, rates=rates)
    if not scheduler.changes_momentum:
        return algorithm
    optimizer = ppo.make_optimizer(algorithm.config, algorithm.compat, scheduled_momentum=True)
    return dataclasses.replace(
        algorithm,
        optimizers=algorithm.optimizers | {"policy": optimizer},
        momenta=algorithm.momenta | {"policy": scheduler.momentum_schedule},
    )


def _terms(config: TeacherFields, mapping: dict[str, str]) -> tuple[Term, ...]:
    """``distillation_loss``, and ``distill_latent_COMPONENT`` for each pair of latents."""

    def actions(outputs: Outputs, mb: Batch):
        policy = outputs.policy
        return distillation.distance(
            config.distill_target,
            policy.mean,
            mb.extras[LABELS],
            std=policy.std,
            wanted_std=mb.extras.get(LABEL_STD),
            weight=mb.weight,
        )

    def latent(own: str, teachers: str) -> Term:
        def fn(outputs: Outputs, mb: Batch):
            wanted = mb.extras[f"{LATENT}/{teachers}"]
            actual = outputs.policy.latents[own]
            return distillation.distance(config.distill_latent_target, actual, wanted, weight=mb.weight)

        return Term(f"distill_latent_{own}", schedules.make(config.distill_latent_coef), fn)

    first = Term("distillation_loss", schedules.make(config.distillation_loss_coef), actions)
    return (first, *(latent(own, teachers) for own, teachers in mapping.items()))


def _metrics(config: TeacherFields, compat: Compat) -> tuple[Metric, ...]:
    if config.distill_target not in distillation.BOUNDED:
        return ()

    def named(name: str) -> Metric:
        def fn(outputs: Outputs, mb: Batch):
            mean, labels, literal = outputs.policy.mean, mb.extras[LABELS], compat.tan_statistic
            return distillation.statistics(config.distill_target, mean, labels, weight=mb.weight, literal=literal)[name]

        return Metric(name, fn)

    return named("l1distance"), named("l1_before_tanh")


def _check(policy: Policy, config: TeacherFields, teacher: Teacher, mapping: dict[str, str]) -> None:
    if teacher.policy.action_size != policy.action_size:
        raise ValueError(f"the teacher has {teacher.policy.action_size} actions, the student {policy.action_size}")
    if config.distill_target in distillation.BOUNDED and (policy.mu_activation or "").lower() != "tanh":
        raise ValueError(f"distill_target {config.distill_target!r} needs mu_activation: tanh, for means in [-1, 1]")
    if config.hidden_state_resample_prob > 0 and not policy.is_recurrent:
        raise ValueError("hidden_state_resample_prob needs a policy with a memory")
    if mapping:
        _check_latents(policy, teacher, mapping, config.distill_latent_target)


def _check_latents(policy: Policy, teacher: Teacher, mapping: dict[str, str], target: str) -> None:
    """Raises ``ValueError`` unless student and teacher encode the mapped components to latents of the same size."""
    key = "distill_latent_obs_component_mapping"
    own, others = ({stage.component: stage for stage in module.encoders} for module in (policy, teacher.policy))
    for name, wanted in mapping.items():
        for who, component, stages in (("student", name, own), ("teacher", wanted, others)):
            if component not in stages:
                known = ", ".join(stages) or "nothing"
                raise ValueError(f"{key}: the {who} has no encoder of {component!r}; it encodes {known}")
        if target in distillation.BOUNDED:
            for who, stage in (("student", own[name]), ("teacher", others[wanted])):
                if stage.linear or stage.nonlinearity.lower() != "tanh":
                    raise ValueError(
                        f"distill_latent_target {target!r} needs encoders that end in Tanh, for latents in [-1, 1]; "
                        f"the {who}'s encoder of {stage.component} does not"
                    )
        sizes = own[name].latent_size, others[wanted].latent_size
        if sizes[0] != sizes[1]:
            raise ValueError(
                f"{key}: the latent of {name} has {sizes[0]} entries, that of the teacher's {wanted} {sizes[1]}"
            )
