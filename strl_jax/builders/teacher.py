"""Teachers: the policy of a run of this library, of a torch file, or a mutex policy."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from strl_jax.algorithms.tppo import Teacher, TeacherFields
from strl_jax.builders import torch_policy
from strl_jax.builders.acting import make_group, make_groups
from strl_jax.builders.mutex import make_mutex
from strl_jax.builders.read_errors import reported_under
from strl_jax.builders.segments import read_segments
from strl_jax.builders.stored import read_policy
from strl_jax.config import Config, ConfigError, from_dict, to_dict
from strl_jax.config.errors import hint, not_one_of, show
from strl_jax.config.policy import FIELDS, MutexFields, policy_config
from strl_jax.config.values import plain
from strl_jax.observations import Segments
from strl_jax.run_folder.layout import show_components

KEY = "algorithm.teacher_policy"
PATH = "teacher_ac_path"
GROUP = "env.groups.teacher"
# Keywords of torch's constructor that have no effect: the sizes are known, and a teacher needs no discriminator.
UNUSED = ("num_actor_obs", "num_critic_obs", "num_actions", "amp_discriminator")
SEGMENTS = "obs_segments"  # st_rl's layout of what the actor observes
CRITIC_SEGMENTS = ("privileged_obs_segments", "critic_obs_segments")  # both names of the critic's
ERROR_KEYS = {"policy.": f"{KEY}.", "policy:": f"{KEY}:", GROUP: GROUP}  # see reported_under


def load_teacher(config: Config, env) -> tuple[Teacher, dict[str, Any]]:
    """The teacher that ``algorithm.teacher_policy`` names, and its weights and statistics.

    The teacher observes the components of ``env.groups.teacher``. By default these are the components that its
    run folder or ``obs_segments`` names; without both, those of the critic or of the actor
    (``label_action_with_critic_obs``).

    Returns:
        The teacher, and ``{"variables": ..., "stats": {"actor": component -> RunningStats}}``; ``stats`` is
        empty for a mutex policy.

    Raises:
        ConfigError: the policy cannot be read, or does not fit the environment; one line for each fault.
    """
    section = dict(config.algorithm.teacher_policy)
    name, path = _class_name(config.algorithm, section), section.pop(PATH, None)
    layouts = {key: read_segments(section.pop(key), key) for key in (SEGMENTS, *CRITIC_SEGMENTS) if key in section}
    first, second = (layouts.get(key) for key in CRITIC_SEGMENTS)
    if None not in (first, second) and first != second:
        raise ConfigError(
            f"{KEY}.{CRITIC_SEGMENTS[1]}: {show_components(second)} contradicts {CRITIC_SEGMENTS[0]}, "
            f"{show_components(first)}; they are two names of one layout"
        )
    section = {key: value for key, value in section.items() if key not in UNUSED} | {"class_name": name}
    if any(issubclass(fields, MutexFields) for fields in FIELDS[name]):
        with reported_under(KEY, keys=ERROR_KEYS):
            return _mutex(config, env, section, layouts.get(SEGMENTS))
    if not isinstance(path, str) or not path:
        given = "missing" if path is None else show(path)
        raise ConfigError(f"{KEY}.{PATH}: {given}; it must be the run folder or the torch file of a trained policy")
    if not os.path.exists(path):  # unlike Path.exists, raises no error for a name that is too long
        where = "" if Path(path).is_absolute() else f" in {Path.cwd()}"
        raise ConfigError(f"{KEY}.{PATH}: {path}: no such file or folder{where}")
    load = _from_torch if Path(path).is_file() else _from_run
    with reported_under(f"{KEY}.{PATH}", path, ERROR_KEYS):
        return load(config, env, Path(path), section, layouts)


def teacher_path(settings: TeacherFields) -> str:
    """The run folder or torch file of a teacher, or the folders of its sub-policies."""
    folders = settings.teacher_policy.get("sub_policy_paths")
    return ", ".join(folders) if folders else settings.teacher_policy[PATH]


def _class_name(settings: TeacherFields, section: dict) -> str:
    """Removes the class name from a section and returns it; every other key must be one of that class's."""
    key = f"{KEY}.class_name" if "class_name" in section else "algorithm.teacher_policy_class_name"
    name = section.pop("class_name", settings.teacher_policy_class_name)
    if not isinstance(name, str) or name not in FIELDS:
        raise ConfigError(f"{key}: {not_one_of(name, tuple(FIELDS))}")
    known = (PATH, *UNUSED, SEGMENTS, *CRITIC_SEGMENTS, *policy_config(name).model_fields)
    wrong = [key for key in section if key not in known]
    if wrong:
        listed = f"; known are {', '.join(known)}"
        raise ConfigError(*(f"{KEY}.{key}: unknown key of {name}{hint(key, known) or listed}" for key in wrong))
    return name


def _from_run(config: Config, env, path: Path, section: Mapping, layouts: Mapping) -> tuple[Teacher, dict]:
    """The policy of a run of this library: the best; without one, the newest ``last`` or ``numbered``."""
    source, variables, stats, meta = read_policy(path)
    _check_keywords(config.algorithm.teacher_policy, section, meta["config"])
    for key, given in layouts.items():
        trained_on = source.groups["actor" if key == SEGMENTS else "critic"]
        if given != trained_on:
            raise ConfigError(
                f"it was trained on {show_components(trained_on)}, but {KEY}.{key} is {show_components(given)}"
            )
    if source.policy.action_size != env.action_size:
        raise ConfigError(f"it has {source.policy.action_size} actions, the environment {env.action_size}")
    observed = _observed(config, env, source.groups["actor"])
    moments = _renamed(stats.get("actor", {}), source.groups["actor"], observed)
    teacher = Teacher(source.policy, {"actor": observed}, eps=source.config.normalization_eps)
    return teacher, {"variables": variables, "stats": {"actor": moments}}


def _observed(config: Config, env, trained_on: Segments) -> Segments:
    """The environment's components that a teacher observes in place of those on which it was trained."""
    missing = [name for name in trained_on.names if name not in env.observation_shapes]
    if missing and config.env.groups.teacher is None:
        raise ConfigError(
            f"it observes {missing[0]!r}, which the environment does not offer; {GROUP} must name components "
            f"in its place, of {', '.join(env.observation_shapes)}"
        )
    observed = make_group(config, env, "teacher", trained_on.names)
    if trained_on.shapes != observed.shapes:
        raise ConfigError(
            f"it was trained on {show_components(trained_on)}; "
            f"{show_components(observed)} must have the same shapes in the same order"
        )
    return observed


def _renamed(moments: Mapping, trained_on: Segments, observed: Segments) -> dict:
    """Statistics by the names of the environment's components."""
    names = dict(zip(trained_on.names, observed.names, strict=True))
    return {names[name]: value for name, value in moments.items()}


def _check_keywords(given: Mapping, section: Mapping, run: Mapping) -> None:
    """Checks that keywords given for a run's policy, which are optional, are those of the run."""
    trained = {**run["policy"], "class_name": run["runner"]["policy_class_name"]}
    for key in (key for key in section if key in given):
        value = plain(section[key])
        if not isinstance(value, dict) and _lower(value) != _lower(trained.get(key)):
            raise ConfigError(f"its {key} is {show(trained.get(key))}, but {KEY}.{key} is {show(value)}")


def _lower(value: Any) -> Any:
    """Names of classes and functions are the same in any case."""
    return value.lower() if isinstance(value, str) else value


def _from_torch(config: Config, env, path: Path, section: Mapping, layouts: Mapping) -> tuple[Teacher, dict]:
    groups = make_groups(config, env)
    observed = _observed_or_default(config, env, groups, layouts.get(SEGMENTS))
    trained_on = layouts.get(SEGMENTS, observed)
    critics = [layouts[key] for key in CRITIC_SEGMENTS if key in layouts]
    trained = {"actor": trained_on, "critic": critics[0] if critics else groups["critic"]}
    needs_std = config.algorithm.action_labels_from_sample or config.algorithm.distill_target == "kl"
    options = {"critic_is_its_own": bool(critics), "teacher": True, "needs_std": needs_std}
    policy, variables, stats, eps = torch_policy.load(path, section, env.action_size, trained, **options)
    moments = _renamed(stats, trained_on, observed)
    return Teacher(policy, {"actor": observed}, eps=eps), {"variables": variables, "stats": {"actor": moments}}


def _observed_or_default(config: Config, env, groups: Mapping[str, Segments], trained_on: Segments | None) -> Segments:
    """``_observed``, or without a layout of the teacher the components of ``env.groups`` or of the run's policy."""
    if trained_on is not None:
        return _observed(config, env, trained_on)
    return make_group(config, env, "teacher", _default_names(config, groups))


def _default_names(config: Config, groups: Mapping[str, Segments]) -> Sequence[str]:
    return groups["critic" if config.algorithm.label_action_with_critic_obs else "actor"].names


def _mutex(config: Config, env, section: dict, trained_on: Segments | None) -> tuple[Teacher, dict]:
    """The mutex policy that ``section`` describes, as a teacher."""
    names = _observed_or_default(config, env, make_groups(config, env), trained_on).names
    groups = {"actor": list(names), "critic": list(names)}
    compat = {"zero_mutex_buffer": config.resolved_compat.zero_mutex_buffer}
    teacher_config, _ = from_dict(
        {"env": {**to_dict(config.env), "groups": groups}, "policy": section, "compat": compat}
    )
    algorithm = make_mutex(teacher_config, env)
    eps = teacher_config.algorithm.normalization_eps
    teacher = Teacher(algorithm.policy, algorithm.groups, algorithm.act_groups, eps)
    return teacher, {"variables": algorithm.variables, "stats": {}}
