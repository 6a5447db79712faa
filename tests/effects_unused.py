"""Configs in which keys have no effect, and these keys."""

from typing import Any

from effects_bases import CYCLE
from effects_keys import CASES

NO_PPO = {"algorithm.using_ppo": False}
RUN = {"algorithm.teacher_policy": {"teacher_ac_path": "HERE/first"}}
COSINE = {"name": "cosine_decay", "init_value": 1e-3, "decay_steps": 5}
ONE_CYCLE = {"max_lr": 1e-2, "total_steps": 9}


def value_of(key: str) -> Any:
    """The value of a key that has no effect; not the default, which never gives a line."""
    return True if key.startswith("compat.") else CASES[key].value


# Base config, changes that remove the effect, then the keys that have none; see ``value_of``.
UNUSED = {
    "no teacher, discriminator or RND": (
        "plain",
        {},
        ["env.groups.teacher", "env.groups.amp", "env.groups.rnd", "algorithm.desired_kl"],
    ),
    "no normalisation": (
        "plain",
        {},
        [f"algorithm.{name}" for name in ("normalized_reward_clamp_value", "normalization_eps", "normalization_until")],
    ),
    "few environments": ("plain", {"env.num_envs": 16}, ["env.pool_fraction"]),
    "a schedule": ("plain", {"algorithm.schedule": COSINE}, ["algorithm.learning_rate"]),
    "a cycle": (
        "teacher",
        {"algorithm.lr_scheduler_class_name": "CyclicLR", "algorithm.lr_scheduler": CYCLE},
        ["algorithm.learning_rate"],
    ),
    "one cycle": (
        "teacher",
        {"algorithm.lr_scheduler_class_name": "OneCycleLR", "algorithm.lr_scheduler": ONE_CYCLE},
        ["algorithm.learning_rate"],
    ),
    "no hidden layers": (
        "plain",
        {"policy.actor_hidden_dims": [], "policy.critic_hidden_dims": []},
        ["policy.activation"],
    ),
    "no hidden layers of RND": (
        "rnd",
        {"algorithm.rnd_cfg": {"predictor_hidden_dims": [], "target_hidden_dims": []}},
        ["algorithm.rnd_cfg.activation"],
    ),
    "no hidden layers of estimators": (
        "adaptor",
        {"policy.estimator_kwargs.hidden_sizes": [], "policy.adaptor_kwargs.hidden_sizes": []},
        ["policy.estimator_kwargs.nonlinearity", "policy.adaptor_kwargs.nonlinearity"],
    ),
    "rewards normalised as in rsl_rl": (
        "rnd",
        {"algorithm.rnd_cfg.rsl_rl": True},
        ["algorithm.normalization_eps"],
    ),
    "no strides": (
        "image",
        {"policy.encoder_kwargs.strides": [1], "policy.critic_encoder_kwargs.strides": [1]},
        ["policy.encoder_kwargs.use_maxpool", "policy.critic_encoder_kwargs.use_maxpool"],
    ),
    "no strides of a visual policy": (
        "visual",
        {"policy.visual_kwargs.strides": [1]},
        ["policy.visual_kwargs.use_maxpool"],
    ),
    "no losses of PPO": (
        "teacher",
        NO_PPO,
        [
            f"algorithm.{name}"
            for name in (
                "clip_param",
                "use_clipped_value_loss",
                "value_loss_coef",
                "entropy_coef",
                "surrogate_loss_coef",
            )
        ],
    ),
    "a constant probability": ("teacher", {"algorithm.teacher_act_prob": 0.5}, ["algorithm.update_times_scale"]),
    "no latents": ("teacher", {}, ["algorithm.distill_latent_coef", "algorithm.distill_latent_target"]),
    "a named class": (
        "teacher",
        {"algorithm.teacher_policy.class_name": "ActorCritic"},
        ["algorithm.teacher_policy_class_name"],
    ),
    "the teacher's group": (
        "teacher",
        {"env.groups.teacher": ["state", "hidden"]},
        ["algorithm.label_action_with_critic_obs"],
    ),
    "the teacher's segments": (
        "teacher",
        {"algorithm.teacher_policy.obs_segments": {"state": [1], "hidden": [1]}},
        ["algorithm.label_action_with_critic_obs"],
    ),
    "mimic": ("style", {}, ["algorithm.mimic_loss_coef"]),
    "a weight of the task": ("style", {"algorithm.task_reward_w": 0.5}, ["policy.amp_discriminator.task_reward_lerp"]),
    "one optimiser": (
        "style",
        {"compat.discriminator_with_policy": True},
        [f"algorithm.discriminator_{name}" for name in ("learning_rate", "max_grad_norm", "optimizer_class_name")],
    ),
    "the whole batch": (
        "style",
        {"compat.whole_discriminator_batch": True},
        ["algorithm.discriminator_batch_fraction"],
    ),
    "no adaptor": ("estimator", {"algorithm.optimizer_class_name": "SGD"}, ["algorithm.adaptor_loss_coef"]),
    "a mutex policy": (
        "mutex",
        {},
        ["policy.sub_policy_class_name", *(f"policy.{name}" for name in ("activation", "init_noise_std"))],
    ),
    "a mutex policy's other keys": (
        "field mutex",
        {},
        [f"policy.{name}" for name in ("actor_hidden_dims", "critic_hidden_dims", "mu_activation", "initialization")],
    ),
    "compat of others": (
        "ppo",
        {"compat": {}, "algorithm.empirical_normalization": False},
        [
            f"compat.{name}"
            for name in (
                "contiguous_envs",
                "advance_critic_memory",
                "redraw_replacement",
                "zero_mutex_buffer",
                "normalize_while_collecting",
                "sample_log_prob",
                "executed_labels",
                "looped_returns",
                "tan_statistic",
                "discriminator_with_policy",
                "whole_discriminator_batch",
                "separate_amp_normalizers",
                "amp_after_reset",
                "mimic_in_loss",
            )
        ],
    ),
    "compat of a teacher": ("teacher", {}, ["compat.looped_returns", "compat.tan_statistic", "compat.executed_labels"]),
    "compat of a discriminator": (
        "style",
        {"algorithm.discriminator_batch_fraction": 1.0},
        ["compat.mimic_in_loss", "compat.whole_discriminator_batch", "compat.executed_labels"],
    ),
}
# Their programs differ in what is not used, or in which of two equal values is used.
DEAD = {"compat.redraw_replacement", "compat.sample_log_prob"}
EACH = [(name, key) for name, (_, _, keys) in UNUSED.items() for key in keys]

CYCLIC = {"algorithm.lr_scheduler_class_name": "CyclicLR", "algorithm.lr_scheduler": CYCLE}
STEADY = {"cycle_momentum": False}
SGD = {"algorithm.optimizer_class_name": "SGD"}
# Base config, changes, key and value of arguments, more arguments, and those of them that have no effect.
UNUSED_ARGUMENTS: dict[str, tuple[str, dict, str, dict, dict[str, Any], list[str]]] = {
    "factor of another mode": ("teacher", CYCLIC, "lr_scheduler", CYCLE, {"gamma": 0.5}, ["gamma"]),
    "constant momentum": (
        "teacher",
        CYCLIC,
        "lr_scheduler",
        CYCLE | STEADY,
        {"base_momentum": 0.5, "max_momentum": 0.7},
        ["base_momentum", "max_momentum"],
    ),
    "constant momentum of one cycle": (
        "teacher",
        {"algorithm.lr_scheduler_class_name": "OneCycleLR", "algorithm.lr_scheduler": ONE_CYCLE},
        "lr_scheduler",
        ONE_CYCLE | STEADY,
        {"base_momentum": 0.5, "max_momentum": 0.7},
        ["base_momentum", "max_momentum"],
    ),
    "scheduled beta": ("teacher", CYCLIC, "optimizer_kwargs", {}, {"betas": [0.5, 0.999]}, ["betas"]),
    "scheduled momentum": ("teacher", CYCLIC | SGD, "optimizer_kwargs", {}, {"momentum": 0.5}, ["momentum"]),
    "scheduled momentum, Nesterov's": ("teacher", CYCLIC | SGD, "optimizer_kwargs", {}, {"nesterov": True}, []),
    "no momentum": ("plain", SGD, "optimizer_kwargs", {}, {"nesterov": True}, ["nesterov"]),
    "momentum": ("plain", SGD, "optimizer_kwargs", {"momentum": 0.5}, {"nesterov": True}, []),
    "no logarithm": (
        "estimator",
        {"algorithm.estimator_loss_func": "poisson_nll_loss"},
        "estimator_loss_kwargs",
        {},
        {"eps": 0.5},
        ["eps"],
    ),
    "a default": ("teacher", CYCLIC, "lr_scheduler", CYCLE | STEADY, {"gamma": 1.0, "max_momentum": 0.9}, []),
}
