"""The keys of a teacher that have no effect; see ``rules``."""

import os
from collections.abc import Iterator

from strl_jax.algorithms.tppo import TeacherFields
from strl_jax.builders.effects.policy import names_no_class
from strl_jax.builders.teacher import CRITIC_SEGMENTS, PATH, SEGMENTS, UNUSED
from strl_jax.config import Config
from strl_jax.config.policy import PolicyConfig

RUN = "the teacher's run folder names it"
KEY = "algorithm.teacher_policy"


def teacher_keys(config: Config) -> Iterator[tuple[str, str]]:
    """Dotted keys without effect in ``config``, each with the reason, except keywords of the teacher."""
    algorithm = config.algorithm
    if not isinstance(algorithm, TeacherFields):
        return
    if not isinstance(algorithm.teacher_act_prob, str):
        yield "algorithm.update_times_scale", "teacher_act_prob is a constant"
    if not algorithm.distill_latent_obs_component_mapping:
        for name in ("distill_latent_coef", "distill_latent_target"):
            yield f"algorithm.{name}", "it needs distill_latent_obs_component_mapping"
    if "class_name" in algorithm.teacher_policy:
        yield "algorithm.teacher_policy_class_name", "teacher_policy.class_name names the class"
    elif _is_run(algorithm):
        yield "algorithm.teacher_policy_class_name", RUN
    if config.env.groups.teacher is not None:
        yield "algorithm.label_action_with_critic_obs", "env.groups.teacher names the teacher's components"
    elif SEGMENTS in algorithm.teacher_policy:
        yield "algorithm.label_action_with_critic_obs", f"teacher_policy.{SEGMENTS} names the teacher's components"
    elif _is_run(algorithm):
        yield "algorithm.label_action_with_critic_obs", "the teacher's run folder names its components"
    if "sub_policy_paths" in algorithm.teacher_policy:
        yield "algorithm.action_labels_from_sample", "the actions of a mutex policy have no distribution"


def keyword_keys(config: Config) -> Iterator[tuple[str, str]]:
    """The keywords in ``algorithm.teacher_policy`` that have no effect, each with the reason."""
    section = getattr(config.algorithm, "teacher_policy", {})
    for name in UNUSED:
        if name in section:
            yield f"{KEY}.{name}", "a keyword of torch's constructor; a teacher does not need it"
    paths = section.get("sub_policy_paths")
    if paths is not None:
        for name in PolicyConfig.model_fields:
            if name in section:
                yield f"{KEY}.{name}", "each sub-policy has the settings of its own run"
        for name in (name for name in CRITIC_SEGMENTS if name in section):
            yield f"{KEY}.{name}", "a mutex policy has no critic"
        if PATH in section:
            yield f"{KEY}.{PATH}", "sub_policy_paths names the files"
        if "sub_policy_class_name" in section and not names_no_class(tuple(map(str, paths))):
            yield f"{KEY}.sub_policy_class_name", "each sub-policy's folder names its class"
    elif isinstance(config.algorithm, TeacherFields) and _is_run(config.algorithm):
        for name, value in section.items():  # other values are compared with those of the run
            if isinstance(value, dict) and name not in (*UNUSED, SEGMENTS, *CRITIC_SEGMENTS):
                yield f"{KEY}.{name}", RUN
    else:
        for name in ("init_noise_std", "initialization"):
            if name in section and section[name] != PolicyConfig.model_fields[name].default:
                yield f"{KEY}.{name}", "the file has the values"


def _is_run(algorithm: TeacherFields) -> bool:
    """Whether the teacher is read from a run folder; a torch file and a mutex policy are not."""
    path = algorithm.teacher_policy.get(PATH)
    return isinstance(path, str) and os.path.isdir(path)
