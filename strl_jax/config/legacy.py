"""Keys of a ``train_cfg`` of st_rl, legged_gym or rsl_rl that have another name or no meaning in this library."""

from typing import Any

from strl_jax.config.errors import ConfigError, dotted, show

_FLAT = (
    "runner_class_name",
    "policy_class_name",
    "algorithm_class_name",
    "num_steps_per_env",
    "max_iterations",
    "save_interval",
    "experiment_name",
    "run_name",
    "logger",
    "wandb_project",
)
RENAMED: dict[tuple[str, ...], tuple[str, ...]] = {
    **{(name,): ("runner", name) for name in _FLAT},
    ("policy", "class_name"): ("runner", "policy_class_name"),
    ("algorithm", "class_name"): ("runner", "algorithm_class_name"),
    ("empirical_normalization",): ("algorithm", "empirical_normalization"),
    ("runner", "empirical_normalization"): ("algorithm", "empirical_normalization"),
}

_RESUME = "a run is continued with --resume RUN_DIR on the command line"
_DEVICE = "JAX uses all devices; JAX_PLATFORMS and CUDA_VISIBLE_DEVICES limit them"
_RUNNER = {
    "device": _DEVICE,
    "inference_mode_rollout": "collecting never records gradients",
    "neptune_project": "there is no Neptune writer; runner.logger may be the import path of one",
    **dict.fromkeys(
        ("resume", "load_run", "checkpoint", "load_checkpoint", "resume_path", "load_optimizer"),
        _RESUME,
    ),
}
_RND = ("algorithm", "rnd_cfg")
_OF_RSL_RL = ("weight_schedule", "num_states", "obs_groups")  # keys that only rsl_rl's rnd_cfg has
DROPPED: dict[tuple[str, ...], str] = {
    **{(name,): why for name, why in _RUNNER.items()},
    **{("runner", name): why for name, why in _RUNNER.items()},
    ("algorithm", "device"): _DEVICE,
    ("algorithm", "ppo"): "runner.algorithm_class_name names the algorithm",
    (*_RND, "num_states"): "it is the length of the components in env.groups.rnd",
    (*_RND, "obs_groups"): "env.groups.rnd names the components",
    (*_RND, "device"): _DEVICE,
    ("policy", "amp_discriminator", "input_dim"): "it is the length of the states that the discriminator sees",
    ("init_member_classes",): "it is a method of legged_gym's config classes",
}


def translate(data: dict) -> list[str]:
    """Moves the keys of ``data`` to their names in this library, and removes those without a meaning.

    Returns:
        One warning for each key that is removed.

    Raises:
        ConfigError: a key is given under both of its names, with two values.
    """
    for old, new in RENAMED.items():
        _move(data, old, new)
    warnings = _mark_rsl_rl(data)
    for path, why in DROPPED.items():
        section = _section(data, path)
        if section is not None and path[-1] in section:
            del section[path[-1]]
            warnings.append(warning(path, why))
    return warnings


def translate_override(key: tuple[str, ...], value: Any) -> tuple[list[tuple[tuple[str, ...], Any]], list[str]]:
    """An override with the key names of this library, and the warnings; ``value`` may be a section with old keys.

    Returns:
        The keys with their values, and one warning for each key that is removed.
    """
    key = RENAMED.get(key, key)
    data: dict[str, Any] = {}
    _put(data, key, value)
    warnings = translate(data)
    section = _section(data, key)
    kept = [(key, section[key[-1]])] if section is not None and key[-1] in section else []
    others = [name for name in data if name != key[0]]
    return kept + [((name, inner), data[name][inner]) for name in others for inner in data[name]], warnings


def _put(data: dict, path: tuple[str, ...], value: Any) -> None:
    """Sets the value at a path in nested mappings, which are created."""
    for name in path[:-1]:
        data = data.setdefault(name, {})
    data[path[-1]] = value


def _mark_rsl_rl(data: dict) -> list[str]:
    """Gives an ``rnd_cfg`` that has keys of rsl_rl the meaning that it has there. Returns a warning if it does."""
    config = _section(data, (*_RND, ""))
    if config is None or "rsl_rl" in config or not any(key in config for key in _OF_RSL_RL):
        return []
    for key, value in {"rsl_rl": True, "weight": 0.0, "max_grad_norm": None}.items():
        config.setdefault(key, value)
    meaning = (
        "the weight is multiplied by the time step and is 0 by default, weight_schedule counts steps, "
        "normalised rewards are divided by the deviation of their discounted sum, the gradient is not clipped"
    )
    return [f"{dotted(_RND)}: it has keys of rsl_rl and so gets rsl_rl: true: {meaning}"]


def warning(path: tuple[str, ...], why: str) -> str:
    """The line for a key that is removed."""
    return f"{dotted(path)}: ignored; {why}"


def _section(data: dict, path: tuple[str, ...]) -> dict[str, Any] | None:
    """The mapping that contains the last key of ``path``, if there is one."""
    section: Any = data
    for name in path[:-1]:
        section = section.get(name) if isinstance(section, dict) else None
    return section if isinstance(section, dict) else None


def _move(data: dict, old: tuple[str, ...], new: tuple[str, ...]) -> None:
    source = _section(data, old)
    if source is None or old[-1] not in source:
        return
    if data.get(new[0]) is None:
        data[new[0]] = {}
    if not isinstance(data[new[0]], dict):
        return
    value, target = source.pop(old[-1]), data[new[0]]
    if target.setdefault(new[-1], value) != value:
        raise ConfigError(f"{dotted(old)}: {show(value)} contradicts {dotted(new)}, which is {show(target[new[-1]])}")
