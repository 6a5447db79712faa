"""Configs in which keys have an effect, and the files that they name; HERE stands for the folder of the files."""

from pathlib import Path

import numpy as np
import yaml
from course import LIN_VEL, Course, saved, write_json
from torch_writer import save

SMALL = {"actor_hidden_dims": [4], "critic_hidden_dims": [4]}
CONV = {"channels": [2], "kernel_sizes": [3], "strides": [2], "paddings": [1], "hidden_sizes": [3]}
ESTIMATOR = {"estimator_obs_components": ["state"], "estimator_target_components": ["hidden"]}
ESTIMATOR |= {"estimator_kwargs": {"hidden_sizes": [3]}}
ADAPTOR = {"adaptor_obs_components": ["state"], "adaptor_target_components": ["hidden"]}
ADAPTOR |= {"adaptor_kwargs": {"hidden_sizes": [3]}}
MEMORY = {"rnn_hidden_size": 3}
ENCODER = {"encoder_component_names": ["hidden"], "encoder_kwargs": {"hidden_sizes": [3]}, "encoder_output_size": 2}
LINEAR = {"actor_hidden_dims": [], "critic_hidden_dims": []}
TEACHER = {"teacher_policy": {"teacher_ac_path": "HERE/teacher.pt", **LINEAR}}
ENCODED = {"class_name": "EncoderActorCritic", "teacher_ac_path": "HERE/encoder.pt", **LINEAR, **ENCODER}
RND = {"predictor_hidden_dims": [3], "target_hidden_dims": [3]}
LINE = {"mode": "linear", "initial_step": 2, "final_step": 9, "final_value": 0.5}
CYCLE = {"base_lr": 1e-4, "max_lr": 1e-2}
COURSE = ["proprioception", "height"]
BLOCKS = ["proprioception", "engaging_block"]


def _config(policy_class="ActorCritic", algorithm_class="PPO", env="probe:two_groups", **sections) -> dict:
    """A tiny config; ``groups`` and the sections' values are added to it."""
    config = {
        "env": {"name": env, "num_envs": 128, "groups": sections.get("groups", {})},
        "policy": SMALL | sections.get("policy", {}),
        "algorithm": sections.get("algorithm", {}),
        "runner": {
            "policy_class_name": policy_class,
            "algorithm_class_name": algorithm_class,
            "num_steps_per_env": 3,
            "logger": "none",
            **sections.get("runner", {}),
        },
    }
    return config | ({"compat": sections["compat"]} if "compat" in sections else {})


def _style(**sections) -> dict:
    """APPO; the discriminator sees pairs of one component."""
    algorithm = {"expert_file": "HERE/expert.npy", **sections.pop("algorithm", {})}
    policy = {"amp_discriminator": {"hidden_dims": [3]}}
    names = {"policy_class": "AmpActorCritic", "algorithm_class": "APPO"} | sections
    return _config(**names, policy=policy, groups={"amp": ["state"]}, algorithm=algorithm)


def _mutex(class_name: str, paths: tuple[str, ...], groups: list[str], env: str = "blocks", **policy) -> dict:
    policy = {"sub_policy_paths": [f"HERE/{path}" for path in paths], **policy}
    config = _config(class_name, env=f"effects_bases:{env}", groups={"actor": groups}, policy=policy)
    config["policy"] = policy
    return config


PPO = {
    "num_learning_epochs": 2,
    "num_mini_batches": 2,
    "schedule": "adaptive",
    "empirical_normalization": True,
    "normalize_rewards": True,
}
GRU_SUBS = tuple(["gru"] * 5)
BASES: dict[str, dict] = {
    "plain": _config(),
    "probe": _config(env="probe:action"),
    "ppo": _config(algorithm=PPO, runner={"eval_interval": 1}),
    "rnd": _config(algorithm={"rnd_cfg": RND | {"reward_normalization": True}}),
    "schedule of rnd": _config(algorithm={"rnd_cfg": RND | {"rsl_rl": True, "weight_schedule": LINE}}),
    "memory": _config("ActorCriticRecurrent", policy=MEMORY, compat={}),
    "encoder": _config("EncoderActorCritic", policy=ENCODER),
    "image": _config(
        "EncoderActorCritic",
        env="probe:image",
        policy={
            "encoder_component_names": ["image"],
            "encoder_class_name": "Conv2dHeadModel",
            "encoder_kwargs": CONV,
            "encoder_output_size": 2,
            "critic_encoder_component_names": ["image"],
            "critic_encoder_kwargs": CONV,
        },
    ),
    "estimator": _config(
        "StateAc",
        "EstimatorPPO",
        policy=ESTIMATOR | {"replace_state_prob": 0.5},
        algorithm={"estimator_loss_func": "smooth_l1_loss"},
        compat={},
    ),
    "adaptor": _config(
        "PrivilegeStateAcRecurrent",
        "EstimatorPPO",
        policy=ESTIMATOR | ADAPTOR | MEMORY,
        algorithm={"optimizer_class_name": "SGD"},
    ),
    "visual": _config(
        "VisualDeterministicAC",
        "TPPO",
        env="probe:image",
        groups={"teacher": ["state"]},
        policy={"visual_component_name": "image", "visual_kwargs": CONV, "visual_latent_size": 3},
        algorithm={"teacher_policy": {"teacher_ac_path": "HERE/narrow.pt", **LINEAR}, "using_ppo": False},
    ),
    "teacher": _config(algorithm_class="TPPO", groups={"critic": ["hidden", "state"]}, algorithm=TEACHER, compat={}),
    "teacher's tanh and queue": _config(
        algorithm_class="TPPO",
        policy={"mu_activation": "tanh"},
        algorithm=TEACHER | {"distill_target": "tanh", "buffer_dilation_ratio": 2.0},
        compat={},
    ),
    "teacher of a memory": _config("ActorCriticRecurrent", "TPPO", policy=MEMORY, algorithm=TEACHER),
    "teacher and plateau": _config(
        algorithm_class="TPPO", algorithm=TEACHER | {"lr_scheduler_class_name": "ReduceLROnPlateau"}
    ),
    "teacher and cycle": _config(
        algorithm_class="TPPO", algorithm=TEACHER | {"lr_scheduler_class_name": "CyclicLR", "lr_scheduler": CYCLE}
    ),
    "latents": _config(
        "EncoderActorCritic",
        "TPPO",
        policy=ENCODER,
        algorithm={"teacher_policy": ENCODED, "distill_latent_obs_component_mapping": {"hidden": "hidden"}},
    ),
    "style": _style(compat={}),
    "mimic in loss": _style(
        algorithm={"mimic_loss_coef": 0.5, "discriminator_optimizer_class_name": "SGD"}, compat={"mimic_in_loss": True}
    ),
    "style and teacher": _style(algorithm_class="ATPPO", algorithm=TEACHER, compat={}),
    "mutex": _mutex("ActorCriticMutex", ("first", "second"), COURSE, "course"),
    "torch mutex": _mutex("ActorCriticMutex", ("torch", "torch"), COURSE, "course"),
    "field mutex": _mutex("ActorCriticFieldMutex", GRU_SUBS, BLOCKS) | {"compat": {}},
    "climb mutex": _mutex("ActorCriticClimbMutex", (*GRU_SUBS, "gru"), BLOCKS, cmd_vel_mapping={"3": 0.5}),
}


def course() -> Course:
    """An environment with the components of the mutex policies; it selects the first of two sub-policies."""
    return Course()


def blocks() -> Course:
    """An environment with the component of obstacles."""
    return Course(shapes=(("proprioception", (12,)), ("engaging_block", (8,))))


def config(name: str, folder: Path) -> dict:
    """The config of a name, with the files in ``folder``."""
    return placed(BASES[name], folder)


def placed(data: dict, folder: Path) -> dict:
    """A copy of a config with HERE replaced."""
    return yaml.safe_load(yaml.safe_dump(data, sort_keys=False).replace("HERE", str(folder)))


def write_files(folder: Path) -> None:
    """Experts' states, torch files of teachers, and run folders of sub-policies."""
    for number, name in enumerate(("expert", "other_expert")):
        np.save(folder / f"{name}.npy", np.full((5, 2), number, np.float32))
    for number, name in enumerate(("teacher", "other_teacher")):
        save(folder / f"{name}.pt", {"model_state_dict": _weights(2, 2, 1 + number), "iter": 0})
    save(folder / "narrow.pt", {"model_state_dict": _weights(1, 65, 1), "iter": 0})
    encoder = {"encoders.0.model.0.weight": (3, 1), "encoders.0.model.0.bias": (3,)}
    encoder |= {"encoders.0.model.2.weight": (2, 3), "encoders.0.model.2.bias": (2,)}
    weights = _weights(3, 2, 1) | {name: np.ones(shape, np.float32) for name, shape in encoder.items()}
    save(folder / "encoder.pt", {"model_state_dict": weights, "iter": 0})
    gru = {"rnn_type": "gru", "rnn_hidden_size": 2}
    for run in (
        saved(folder / "first", course(), "ActorCritic", 1),
        saved(folder / "second", course(), "ActorCritic", 2),
        saved(folder / "gru", blocks(), "ActorCriticRecurrent", 3, actor=tuple(BLOCKS), **gru),
    ):
        run.close()
    torch = folder / "torch"
    torch.mkdir()
    save(torch / "model_1.pt", {"model_state_dict": _weights(14, 16, 1, actions=2), "iter": 1})
    units = {"policy": LINEAR, "control": {"action_scale": 0.5}, **LIN_VEL}
    write_json(torch, units)


def _weights(actor: int, critic: int, value: float, actions: int = 1) -> dict:
    """A linear actor and a linear critic of observations of these sizes."""
    shapes = {"std": (actions,), "actor.0.weight": (actions, actor), "actor.0.bias": (actions,)}
    shapes |= {"critic.0.weight": (1, critic), "critic.0.bias": (1,)}
    return {name: np.full(shape, value, np.float32) for name, shape in shapes.items()}
