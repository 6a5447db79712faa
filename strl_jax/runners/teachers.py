"""Teachers: the policy of a run of this library, of a torch file, or one that selects among trained sub-policies."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from strl_jax.algorithms.tppo import Teacher
from strl_jax.config import Config, ConfigError, from_dict, to_dict
from strl_jax.config_errors import show
from strl_jax.config_policies import FIELDS, MutexFields
from strl_jax.interop.torch_file import TorchFileError
from strl_jax.observations import Segments
from strl_jax.registry import make_group, make_groups
from strl_jax.runners import torch_policies
from strl_jax.runners.checkpoint import Checkpointer, CheckpointError
from strl_jax.runners.sub_policies import make_mutex
from strl_jax.runners.transfer import read_policy

KEY = "algorithm.teacher_policy"
PATH = "teacher_ac_path"
GIVEN = ("num_actor_obs", "num_critic_obs", "num_actions")  # torch's constructor wants them; here they are known


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
    name = section.pop("class_name", config.algorithm.teacher_policy_class_name)
    path = section.pop(PATH, None)
    if any(issubclass(fields, MutexFields) for fields in FIELDS.get(name, ())):
        return _mutex(config, env, {**section, "class_name": name})
    if not isinstance(path, str) or not path:
        found = "missing" if path is None else show(path)
        raise ConfigError(f"{KEY}.{PATH}: {found}; it must be the run folder or the torch file of a trained policy")
    if not Path(path).exists():
        raise ConfigError(f"{KEY}.{PATH}: {path}: no such file or folder")
    try:
        if Path(path).is_dir():
            return _own(config, env, Path(path))
        keywords = {key: value for key, value in section.items() if key not in GIVEN}
        return _torch(config, env, Path(path), {**keywords, "class_name": name})
    except (ConfigError, CheckpointError, TorchFileError) as error:
        lines = [line.removeprefix(f"{Path(path).absolute()}: ") for line in str(error).split("\n")]
        raise ConfigError(*(f"{KEY}.{PATH}: {path}: {line}" for line in lines)) from None


def _own(config: Config, env, path: Path) -> tuple[Teacher, dict]:
    """The best policy of a run of this library, its last where it has kept no best one."""
    checkpointer = Checkpointer(path)
    kind = "last" if checkpointer.latest("best") is None else "best"
    checkpointer.close()
    source, variables, stats, _ = read_policy(path, kind)
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
    policy, variables, moments, eps = torch_policies.load(path, section, env.action_size, groups | {"actor": here})
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
