"""Teachers: the policy of a run of this library, of a torch file, or one that selects among trained sub-policies."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from strl_jax.algorithms.tppo import Teacher, TeacherFields
from strl_jax.builders import torch_policy
from strl_jax.builders.acting import make_group, make_groups
from strl_jax.builders.mutex import make_mutex
from strl_jax.builders.transfer.start import read_policy
from strl_jax.config import Config, ConfigError, from_dict, to_dict
from strl_jax.config.errors import hint, not_one_of, show
from strl_jax.config.policy import FIELDS, MutexFields, policy_config
from strl_jax.config.values import plain
from strl_jax.observations import Segments
from strl_jax.run_folder import run_dir
from strl_jax.run_folder.errors import CheckpointError
from strl_jax.torch_files.file import TorchFileError

KEY = "algorithm.teacher_policy"
PATH = "teacher_ac_path"
GROUP = "env.groups.teacher"
# Torch's constructor wants them; here the sizes are known, and nobody judges a teacher.
NEEDLESS = ("num_actor_obs", "num_critic_obs", "num_actions", "amp_discriminator")


def load_teacher(config: Config, env) -> tuple[Teacher, dict[str, Any]]:
    """The teacher that ``algorithm.teacher_policy`` names, and its weights and statistics.

    What it sees is what ``env.groups.teacher`` says; without that, what its own run saw, and for a
    torch file the components of the critic, or of the actor (``label_action_with_critic_obs``).

    Returns:
        The teacher, and ``{"variables": ..., "stats": {"actor": component -> RunningStats}}``.

    Raises:
        ConfigError: nothing there, or it does not fit the environment; one line for each fault.
    """
    section = dict(config.algorithm.teacher_policy)
    name, path = _class_name(config.algorithm, section), section.pop(PATH, None)
    section = {key: value for key, value in section.items() if key not in NEEDLESS} | {"class_name": name}
    if any(issubclass(fields, MutexFields) for fields in FIELDS[name]):
        return _translated(lambda: _mutex(config, env, section), KEY)
    if not isinstance(path, str) or not path:
        found = "missing" if path is None else show(path)
        raise ConfigError(f"{KEY}.{PATH}: {found}; it must be the run folder or the torch file of a trained policy")
    if not os.path.exists(path):  # unlike Path.exists, no error for a name too long
        where = "" if Path(path).is_absolute() else f" in {Path.cwd()}"
        raise ConfigError(f"{KEY}.{PATH}: {path}: no such file or folder{where}")
    load = _torch if Path(path).is_file() else _own
    return _translated(lambda: load(config, env, Path(path), section), f"{KEY}.{PATH}: {path}", Path(path))


def trained_at(settings: TeacherFields) -> str:
    """Where a teacher is from: a run folder, a torch file, or the folders of its sub-policies."""
    folders = settings.teacher_policy.get("sub_policy_paths")
    return ", ".join(folders) if folders else settings.teacher_policy[PATH]


def _class_name(settings: TeacherFields, section: dict) -> str:
    """The class that a section names, and takes out of it; every other key must be one of that class's."""
    key = f"{KEY}.class_name" if "class_name" in section else "algorithm.teacher_policy_class_name"
    name = section.pop("class_name", settings.teacher_policy_class_name)
    if not isinstance(name, str) or name not in FIELDS:
        raise ConfigError(f"{key}: {not_one_of(name, tuple(FIELDS))}")
    known = (PATH, *NEEDLESS, *policy_config(name).model_fields)
    wrong = [key for key in section if key not in known]
    if wrong:
        listed = f"; known are {', '.join(known)}"
        raise ConfigError(*(f"{KEY}.{key}: unknown key of {name}{hint(key, known) or listed}" for key in wrong))
    return name


def _translated(load: Callable[[], tuple[Teacher, dict]], place: str, path: Path = Path()) -> tuple[Teacher, dict]:
    """What ``load`` gives; of a fault, a line about a config of the teacher's own gets the key that it has here.

    Args:
        place: what stands before every other line.
        path: what need not stand in it again.
    """
    try:
        return load()
    except (ConfigError, CheckpointError, TorchFileError) as error:
        lines = []
        for line in str(error).split("\n"):
            text = run_dir.inside(path, line).removeprefix(f"{path}: ")
            if text.startswith(("policy.", "policy:")):
                text = KEY + text.removeprefix("policy")
            elif not text.startswith(GROUP):
                text = f"{place}: {text}"
            lines.append(text)
        raise ConfigError(*lines) from None


def _own(config: Config, env, path: Path, section: Mapping) -> tuple[Teacher, dict]:
    """The best policy of a run of this library; its last where it has kept no best one, or a numbered one."""
    source, variables, stats, meta = read_policy(path)
    _check_told(config.algorithm.teacher_policy, section, meta["config"])
    if source.policy.action_size != env.action_size:
        raise ConfigError(f"it has {source.policy.action_size} actions, the environment {env.action_size}")
    seen = source.groups["actor"]
    missing = [name for name in seen.names if name not in env.observation_shapes]
    if missing and config.env.groups.teacher is None:
        offered = ", ".join(env.observation_shapes)
        raise ConfigError(
            f"it acts on {missing[0]!r}, which the environment does not offer; env.groups.teacher must name what it "
            f"sees instead, of {offered}"
        )
    here = make_group(config, env, "teacher", seen.names)
    _check_shapes(seen, here)
    renamed = dict(zip(seen.names, here.names, strict=True))
    moments = {renamed[name]: value for name, value in stats.get("actor", {}).items()}
    teacher = Teacher(source.policy, {"actor": here}, eps=source.config.normalization_eps)
    return teacher, {"variables": variables, "stats": {"actor": moments}}


def _check_told(given: Mapping, section: Mapping, run: Mapping) -> None:
    """Whether the keywords of a section are those of the run, which needs none."""
    own = {**run["policy"], "class_name": run["runner"]["policy_class_name"]}
    for key in (key for key in section if key in given):
        told = plain(section[key])
        if not isinstance(told, dict) and told != own.get(key):
            raise ConfigError(f"its {key} is {show(own.get(key))}, teacher_policy says {show(told)}")


def _check_shapes(seen: Segments, here: Segments) -> None:
    """Whether the teacher's components have, one after the other, the shapes that it was trained on."""
    if len(seen.names) != len(here.names):
        raise ConfigError(f"it acts on {_show(seen)}; here it would see {_show(here)}")
    for before, now, shape, offered in zip(seen.names, here.names, seen.shapes, here.shapes, strict=True):
        if shape != offered:
            raise ConfigError(f"its component {before} has shape {shape}; here {now} has shape {offered}")


def _show(segments: Segments) -> str:
    return ", ".join(f"{name} {shape}" for name, shape in zip(segments.names, segments.shapes, strict=True))


def _torch(config: Config, env, path: Path, section: Mapping) -> tuple[Teacher, dict]:
    groups = make_groups(config, env)
    here = make_group(config, env, "teacher", _default_names(config, groups))
    policy, variables, moments, eps = torch_policy.load(path, section, env.action_size, groups | {"actor": here})
    return Teacher(policy, {"actor": here}, eps=eps), {"variables": variables, "stats": {"actor": moments}}


def _default_names(config: Config, groups: Mapping[str, Segments]) -> Sequence[str]:
    return groups["critic" if config.algorithm.label_action_with_critic_obs else "actor"].names


def _mutex(config: Config, env, section: dict) -> tuple[Teacher, dict]:
    """A policy that selects among trained ones; its folders are its weights."""
    names = make_group(config, env, "teacher", _default_names(config, make_groups(config, env))).names
    groups = {"actor": list(names), "critic": list(names)}
    compat = {"zero_mutex_buffer": config.resolved_compat.zero_mutex_buffer}
    own, _ = from_dict({"env": {**to_dict(config.env), "groups": groups}, "policy": section, "compat": compat})
    algorithm = make_mutex(own, env)
    teacher = Teacher(algorithm.policy, algorithm.groups, algorithm.act_groups, own.algorithm.normalization_eps)
    return teacher, {"variables": algorithm.variables, "stats": {}}
