"""Layouts of torch checkpoints: the actor-critic, student or teacher in a file of st_rl, legged_gym or rsl_rl.

rsl_rl up to version 3 has one ``model_state_dict``; rsl_rl 4 and 5 have one state dict for each network.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strl_jax.torch_files.file import TorchFileError

MODEL = "model_state_dict"
RL = ("actor_state_dict", "critic_state_dict")
STUDENT, TEACHER = "student_state_dict", "teacher_state_dict"
# Statistics of a group as a separate dict, up to rsl_rl 2.3; ``privileged`` are the teacher's in a distillation.
STATISTICS = {
    "actor": ("obs_norm_state_dict",),
    "critic": ("critic_obs_norm_state_dict", "privileged_obs_norm_state_dict"),
}
KEYS = (MODEL, *RL, STUDENT, TEACHER, *(key for keys in STATISTICS.values() for key in keys))
PREFIXES = {"actor": "actor_obs_normalizer.", "critic": "critic_obs_normalizer."}  # of statistics among the weights
DISCRIMINATOR = "discriminator."
DEVIATIONS = ("std", "log_std")
# Start of a name in the file -> start of the name in an actor-critic of rsl_rl 3.
# rsl_rl 4 and 5, the state dict of one network:
ACTOR_PARTS = {
    "mlp.": "actor.",
    "rnn.": "memory_a.",
    "obs_normalizer.": PREFIXES["actor"],
    "distribution.std_param": "std",
    "distribution.log_std_param": "log_std",
    "std": "std",
    "log_std": "log_std",
}
CRITIC_PARTS = {"mlp.": "critic.", "rnn.": "memory_c.", "obs_normalizer.": PREFIXES["critic"]}
# Distillation of rsl_rl 2.3 to 3, whose student and teacher are in one state dict:
STUDENT_PARTS = {"student.": "actor.", "memory_s.": "memory_a.", "student_obs_normalizer.": PREFIXES["actor"]}
TEACHER_PARTS = {"teacher.": "actor.", "memory_t.": "memory_a.", "teacher_obs_normalizer.": PREFIXES["actor"]}


@dataclass(frozen=True)
class Model:
    """The weights of a file under the names of an actor-critic of rsl_rl 3.

    Attributes:
        weights: name -> array, without statistics, in the order in which torch numbers the parameters.
        statistics: group -> ``{"_mean": [1, D], "_var": [1, D], "count": []}``, for groups that have some.
        labels: name -> name in the file, where they differ; for messages.
        distillation: it is a student or a teacher, which have no critic.
    """

    weights: dict[str, Any]
    statistics: dict[str, dict]
    labels: dict[str, str]
    distillation: bool = False

    @property
    def policy(self) -> dict[str, Any]:
        """The weights without a discriminator."""
        return {name: value for name, value in self.weights.items() if not name.startswith(DISCRIMINATOR)}

    @property
    def discriminator(self) -> dict[str, Any]:
        """The weights of the discriminator, without its prefix."""
        inner = (name for name in self.weights if name.startswith(DISCRIMINATOR))
        return {name.removeprefix(DISCRIMINATOR): self.weights[name] for name in inner}

    @property
    def has_std(self) -> bool:
        """Whether the file has a standard deviation of the actions that does not depend on the state."""
        return any(name in self.weights for name in DEVIATIONS)

    def label(self, name: str) -> str:
        """The name in the file."""
        return self.labels.get(name, name)


def read(checkpoint: Mapping[str, Any], teacher: bool = False) -> Model:
    """The actor-critic of a checkpoint; of a distillation the student, or the teacher if ``teacher`` is set.

    Raises:
        TorchFileError: the file has no weights; one line.
    """
    if all(_is_state_dict(checkpoint.get(key)) for key in RL):
        parts = zip(RL, (ACTOR_PARTS, CRITIC_PARTS), strict=True)
        return _model(item for key, names in parts for item in _inside(checkpoint, key, names))
    half, weights = TEACHER if teacher else STUDENT, checkpoint.get(MODEL)
    if _is_state_dict(checkpoint.get(half)):
        return _model(_inside(checkpoint, half, ACTOR_PARTS), distillation=True)
    if not _is_state_dict(weights):
        keys = ", ".join(str(key)[:40] for key in list(checkpoint)[:8])
        raise TorchFileError(
            f"the file has no {MODEL}; it has {keys or 'nothing'}; the weights must be in {MODEL}, "
            f"in {' and '.join(RL)}, or in {STUDENT} and {TEACHER}"
        )
    if any(name.startswith("student.") for name in weights):
        return _distillation(checkpoint, weights, teacher)
    statistics = {group: _last(checkpoint, keys) for group, keys in STATISTICS.items()}
    return _model(((name, name, value) for name, value in weights.items()), statistics)


def _distillation(checkpoint: Mapping[str, Any], weights: Mapping[str, Any], teacher: bool) -> Model:
    """Student or teacher of rsl_rl 2.3 to 3. The standard deviation in the file is the student's."""
    own, others = (TEACHER_PARTS, STUDENT_PARTS) if teacher else (STUDENT_PARTS, TEACHER_PARTS)
    others = (*others, *DEVIATIONS) if teacher else tuple(others)
    named = ((_renamed(name, own) or name, name, weights[name]) for name in weights if not name.startswith(others))
    statistics = {"actor": _last(checkpoint, STATISTICS["critic" if teacher else "actor"])}
    return _model(named, statistics, distillation=True)


def _model(
    named: Iterable[tuple[str, str, Any]], statistics: Mapping[str, dict] | None = None, **fields: bool
) -> Model:
    """A model from (name, name in the file, value); statistics among them replace ``statistics``."""
    weights, labels, inner = {}, {}, {}
    for name, label, value in named:
        group = next((group for group, prefix in PREFIXES.items() if name.startswith(prefix)), None)
        if group is not None:
            inner.setdefault(group, {})[name.removeprefix(PREFIXES[group])] = value
            continue
        own = label if name in weights else name  # of two entries with the same meaning, the second is unknown
        weights[own] = value
        if label != own:
            labels[own] = label
    given = {group: values for group, values in (statistics or {}).items() if values}
    return Model(weights, given | inner, labels, **fields)


def _inside(checkpoint: Mapping[str, Any], key: str, parts: Mapping[str, str]) -> Iterable[tuple[str, str, Any]]:
    """(Name, name in the file, value) of a network's state dict; unknown names stay those of the file."""
    for name, value in checkpoint[key].items():
        label = f"{key}.{name}"
        yield _renamed(name, parts) or label, label, value


def _renamed(name: str, parts: Mapping[str, str]) -> str | None:
    for start, replacement in parts.items():
        if name == start or (start.endswith(".") and name.startswith(start)):
            return replacement + name.removeprefix(start)
    return None


def _last(checkpoint: Mapping[str, Any], keys: Sequence[str]) -> dict:
    """The last of ``keys`` that holds statistics. Without normalisation torch saves an empty dict."""
    given = [dict(checkpoint[key]) for key in keys if isinstance(checkpoint.get(key), Mapping) and checkpoint[key]]
    return given[-1] if given else {}


def _is_state_dict(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)
