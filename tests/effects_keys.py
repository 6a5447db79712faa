"""The keys of a config, and for each a config in which another value has an effect.

Of the section ``runner`` the table has only the keys of programs; the others are in the test of the runner.
"""

from dataclasses import dataclass
from typing import Any

from effects import leaves
from effects_bases import CYCLE, LINEAR

from strl_jax.algorithms.compat import Compat
from strl_jax.builders import teacher
from strl_jax.config.policy import FIELDS, policy_config
from strl_jax.config.sections import ALGORITHMS, Config, EnvConfig


@dataclass(frozen=True)
class Case:
    """A base config of ``effects_bases``, and another value of the key.

    Attributes:
        refused: key that the error names which this value gives; the only effect of the key is a check, or no
            other value alone fits. Empty: the value is allowed.
    """

    base: str
    value: Any
    refused: str = ""


def keys() -> set[str]:
    """All keys of a config with any policy and any algorithm, and of ``runner`` those of programs."""
    sections = set(Config.model_fields) - {"compat", "env", "policy", "algorithm", "runner"}
    found = sections | {*RUNNER, *leaves(Compat, "compat."), *leaves(EnvConfig, "env.")}
    for name in FIELDS:
        found |= set(leaves(policy_config(name), "policy."))
    for algorithm in ALGORITHMS.values():
        found |= set(leaves(algorithm, "algorithm."))
    keywords = (teacher.PATH, teacher.SEGMENTS, *teacher.CRITIC_SEGMENTS)  # that are not those of its policy
    return found | {f"{TEACHER_KEY}.{name}" for name in keywords}


TEACHER_KEY = "algorithm.teacher_policy"
TEACHER_PATH = f"{TEACHER_KEY}.teacher_ac_path"
ENV = {
    "env.name": Case("plain", "probe:observed_reward"),
    "env.num_envs": Case("plain", 64),
    "env.episode_length": Case("plain", 3),
    "env.episode_length_schedule": Case(
        "plain", {"name": "linear", "init_value": 3, "end_value": 5, "transition_steps": 9}
    ),
    "env.pool_fraction": Case("plain", 0.5),
    "env.kernel": Case("plain", "on"),
    "env.kwargs": Case("probe", {"target": 0.25}),
    "env.groups.actor": Case("plain", ["state"]),
    "env.groups.critic": Case("plain", ["state"]),
    "env.groups.teacher": Case("teacher", ["state", "hidden"]),
    "env.groups.amp": Case("style", ["hidden"]),
    "env.groups.rnd": Case("rnd", ["state"]),
}
POLICY = {
    "policy.actor_hidden_dims": Case("plain", [5]),
    "policy.critic_hidden_dims": Case("plain", [5]),
    "policy.activation": Case("plain", "relu"),
    "policy.init_noise_std": Case("plain", 0.5),
    "policy.mu_activation": Case("plain", "tanh"),
    "policy.initialization": Case("plain", "orthogonal"),
    "policy.rnn_type": Case("memory", "gru"),
    "policy.rnn_hidden_size": Case("memory", 5),
    "policy.rnn_num_layers": Case("memory", 2),
    "policy.encoder_component_names": Case("encoder", ["state"]),
    "policy.encoder_class_name": Case("image", "MlpModel", "policy.encoder_kwargs"),
    "policy.encoder_output_size": Case("encoder", 3),
    "policy.critic_encoder_component_names": Case("encoder", "shared"),
    "policy.critic_encoder_class_name": Case("image", "MlpModel", "policy.critic_encoder_kwargs"),
    "policy.estimator_obs_components": Case("estimator", ["hidden"]),
    "policy.estimator_target_components": Case("estimator", ["state"]),
    "policy.estimator_kwargs.hidden_sizes": Case("estimator", [4]),
    "policy.estimator_kwargs.nonlinearity": Case("estimator", "Tanh"),
    "policy.use_actor_rnn": Case("adaptor", True),
    "policy.replace_state_prob": Case("estimator", 0.25),
    "policy.adaptor_obs_components": Case("adaptor", ["hidden"]),
    "policy.adaptor_target_components": Case("adaptor", ["state"]),
    "policy.adaptor_kwargs.hidden_sizes": Case("adaptor", [4]),
    "policy.adaptor_kwargs.nonlinearity": Case("adaptor", "Tanh"),
    "policy.privilege_replace_state_prob": Case("adaptor", 0.25),
    "policy.visual_component_name": Case("visual", "state", "policy.visual_kwargs"),
    "policy.visual_latent_size": Case("visual", 4),
    "policy.amp_discriminator.hidden_dims": Case("style", [4]),
    "policy.amp_discriminator.style_reward_coef": Case("style", 1.0),
    "policy.amp_discriminator.task_reward_lerp": Case("style", 0.5),
    "policy.amp_discriminator.discriminator_grad_pen": Case("style", 1.0),
    "policy.sub_policy_class_name": Case("torch mutex", "ActorCriticRecurrent", "policy.sub_policy_paths"),
    "policy.sub_policy_paths": Case("mutex", ["HERE/second", "HERE/first"]),
    "policy.env_action_scale": Case("mutex", 0.25),
    "policy.cmd_vel_mapping": Case("field mutex", {"2": 0.5}),
    "policy.reset_non_selected": Case("field mutex", "when_skill"),
    "policy.action_smoothing_buffer_len": Case("field mutex", 2),
    "policy.jump_down_vel": Case("climb mutex", 0.25),
}
for _name in ("encoder_kwargs", "critic_encoder_kwargs", "visual_kwargs"):
    _base = "visual" if _name == "visual_kwargs" else "image"
    POLICY |= {
        f"policy.{_name}.hidden_sizes": Case(_base, [4]),
        f"policy.{_name}.nonlinearity": Case(_base, "Tanh"),
        f"policy.{_name}.channels": Case(_base, [3]),
        f"policy.{_name}.kernel_sizes": Case(_base, [2]),
        f"policy.{_name}.strides": Case(_base, [1]),
        f"policy.{_name}.paddings": Case(_base, [0]),
        f"policy.{_name}.use_maxpool": Case(_base, True),
        f"policy.{_name}.normlayer": Case(_base, "BatchNorm2d"),
    }
RND_SCHEDULE = "algorithm.rnd_cfg.weight_schedule"
ALGORITHM = {
    "algorithm.num_learning_epochs": Case("plain", 2),
    "algorithm.num_mini_batches": Case("plain", 2),
    "algorithm.clip_param": Case("plain", 0.1),
    "algorithm.gamma": Case("plain", 0.9),
    "algorithm.lam": Case("plain", 0.9),
    "algorithm.value_loss_coef": Case("plain", 0.5),
    "algorithm.entropy_coef": Case("plain", 0.5),
    "algorithm.learning_rate": Case("plain", 0.5),
    "algorithm.max_grad_norm": Case("plain", 0.5),
    "algorithm.use_clipped_value_loss": Case("plain", False),
    "algorithm.clip_min_std": Case("plain", 0.5),
    "algorithm.optimizer_class_name": Case("plain", "SGD"),
    "algorithm.optimizer_kwargs": Case("plain", {"betas": [0.5, 0.999]}),
    "algorithm.schedule": Case("plain", "adaptive"),
    "algorithm.desired_kl": Case("ppo", 0.02),
    "algorithm.empirical_normalization": Case("plain", True),
    "algorithm.surrogate_loss_coef": Case("plain", 0.5),
    "algorithm.normalization_eps": Case("ppo", 0.5),
    "algorithm.normalization_until": Case("ppo", 10.0),
    "algorithm.normalize_rewards": Case("plain", True),
    "algorithm.normalized_reward_clamp_value": Case("ppo", 1.0),
    "algorithm.rnd_cfg.weight": Case("rnd", 0.5),
    "algorithm.rnd_cfg.num_outputs": Case("rnd", 2),
    "algorithm.rnd_cfg.predictor_hidden_dims": Case("rnd", [4]),
    "algorithm.rnd_cfg.target_hidden_dims": Case("rnd", [4]),
    "algorithm.rnd_cfg.activation": Case("rnd", "relu"),
    "algorithm.rnd_cfg.learning_rate": Case("rnd", 0.5),
    "algorithm.rnd_cfg.state_normalization": Case("rnd", True),
    "algorithm.rnd_cfg.reward_normalization": Case("rnd", False),
    "algorithm.rnd_cfg.max_grad_norm": Case("rnd", 0.5),
    "algorithm.rnd_cfg.rsl_rl": Case("rnd", True),
    f"{RND_SCHEDULE}.mode": Case("schedule of rnd", "step", RND_SCHEDULE),
    f"{RND_SCHEDULE}.initial_step": Case("schedule of rnd", 3),
    f"{RND_SCHEDULE}.final_step": Case("schedule of rnd", 7),
    f"{RND_SCHEDULE}.final_value": Case("schedule of rnd", 0.25),
    "algorithm.estimator_loss_func": Case("estimator", "mse_loss"),
    "algorithm.estimator_loss_kwargs": Case("estimator", {"beta": 0.5}),
    "algorithm.estimator_loss_coef": Case("adaptor", 0.5),
    "algorithm.adaptor_loss_coef": Case("adaptor", 0.5),
    "algorithm.teacher_policy_class_name": Case("teacher", "ActorCriticRecurrent", TEACHER_PATH),
    "algorithm.teacher_policy": Case("teacher", {"teacher_ac_path": "HERE/other_teacher.pt", **LINEAR}),
    TEACHER_PATH: Case("teacher", "HERE/other_teacher.pt"),
    f"{TEACHER_KEY}.obs_segments": Case("teacher", {"state": [1], "hidden": [1]}),
    f"{TEACHER_KEY}.privileged_obs_segments": Case("teacher", {"state": [3]}, TEACHER_PATH),
    f"{TEACHER_KEY}.critic_obs_segments": Case("teacher", {"state": [3]}, TEACHER_PATH),
    "algorithm.label_action_with_critic_obs": Case("teacher", False),
    "algorithm.teacher_act_prob": Case("teacher", "linear"),
    "algorithm.update_times_scale": Case("teacher", 10.0),
    "algorithm.using_ppo": Case("teacher", False),
    "algorithm.distillation_loss_coef": Case("teacher", 0.5),
    "algorithm.distill_target": Case("teacher", "l1"),
    "algorithm.distill_latent_coef": Case("latents", 0.5),
    "algorithm.distill_latent_target": Case("latents", "l1"),
    "algorithm.distill_latent_obs_component_mapping": Case("latents", None),
    "algorithm.buffer_dilation_ratio": Case("teacher", 2.0),
    "algorithm.lr_scheduler_class_name": Case("teacher", "LinearLR"),
    "algorithm.lr_scheduler": Case("teacher and cycle", CYCLE | {"max_lr": 0.1}),
    "algorithm.hidden_state_resample_prob": Case("teacher of a memory", 0.5),
    "algorithm.action_labels_from_sample": Case("teacher", True),
    "algorithm.discriminator_loss_coef": Case("mimic in loss", 0.5),
    "algorithm.mimic_loss_coef": Case("mimic in loss", 0.25),
    "algorithm.dagger_loss_coef": Case("style", 0.5),
    "algorithm.amp_obs_dim": Case("style", 3, "algorithm: amp_obs_dim"),
    "algorithm.discriminator_learning_rate": Case("style", 0.5),
    "algorithm.discriminator_max_grad_norm": Case("style", 0.5),
    "algorithm.discriminator_optimizer_class_name": Case("style", "SGD"),
    "algorithm.discriminator_batch_fraction": Case("style", 0.5),
    "algorithm.amp_replay_size": Case("style", 6),
    "algorithm.task_reward_w": Case("style", 0.5),
    "algorithm.discriminator_termination_threshold": Case("style", 0.5),
    "algorithm.expert_file": Case("style", "HERE/other_expert.npy"),
}
COMPAT = {
    "compat.bootstrap_current_value": Case("ppo", True),
    "compat.reuse_permutation": Case("ppo", True),
    "compat.kl_log_eps": Case("ppo", 1e-5),
    "compat.linear_std": Case("ppo", True),
    "compat.grad_norm_eps": Case("ppo", 1e-6),
    "compat.normalize_while_collecting": Case("ppo", True),
    "compat.contiguous_envs": Case("memory", True),
    "compat.advance_critic_memory": Case("memory", True),
    "compat.redraw_replacement": Case("estimator", True),
    "compat.zero_mutex_buffer": Case("field mutex", True),
    "compat.sample_log_prob": Case("teacher", True),
    "compat.executed_labels": Case("style and teacher", True),
    "compat.discriminator_with_policy": Case("style", True),
    "compat.whole_discriminator_batch": Case("style", True),
    "compat.separate_amp_normalizers": Case("style", True),
    "compat.amp_after_reset": Case("style", True),
    "compat.mimic_in_loss": Case("mimic in loss", False),
    "compat.looped_returns": Case("teacher's tanh and queue", True),
    "compat.tan_statistic": Case("teacher's tanh and queue", True),
}
RUNNER = {
    "runner.num_steps_per_env": Case("plain", 2),
    "runner.num_eval_envs": Case("ppo", 8),
}
CASES: dict[str, Case] = RUNNER | ENV | POLICY | ALGORITHM | COMPAT
ELSEWHERE = {"seed"}  # keys with tests of their own, in the same file as the test of the table
# Arguments of torch's classes that have their effect outside of these classes.
ARGUMENTS: dict[str, tuple[str, Case]] = {
    "metric": ("algorithm.lr_scheduler", Case("teacher and plateau", {"metric": "value_loss"})),
    "factor": ("algorithm.lr_scheduler", Case("teacher and plateau", {"factor": 0.5})),
    "cycle_momentum": ("algorithm.lr_scheduler", Case("teacher and cycle", CYCLE | {"cycle_momentum": False})),
    "max_momentum": ("algorithm.lr_scheduler", Case("teacher and cycle", CYCLE | {"max_momentum": 0.95})),
    "second beta": ("algorithm.optimizer_kwargs", Case("teacher and cycle", {"betas": [0.9, 0.5]})),
}
