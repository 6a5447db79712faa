"""Keys that only the start of a new run reads; see ``rules``."""

from collections.abc import Mapping

from strl_jax.config import Config
from strl_jax.config.errors import show
from strl_jax.config.sections import RunnerConfig
from strl_jax.config.values import plain

OF_A_START = {
    "runner": ("init_from", "ckpt_manipulator", "init_at_random_ep_len", "log_root", "experiment_name", "run_name"),
    "policy": ("init_noise_std", "initialization"),
}


def without_effect_in_resume(saved: Mapping, config: Config) -> list[str]:
    """One line for each key that a resumed run does not read and that has another value than at its start.

    Args:
        saved: the config in the checkpoint.
    """
    lines = []
    for section, names in OF_A_START.items():
        for name in names:
            before, now = saved[section].get(name), plain(getattr(getattr(config, section), name))
            if name in saved[section] and before != now:
                lines.append(f"{section}.{name}: no effect; only a new run reads it, and this one had {show(before)}")
    return lines


def without_effect_in_load(config: Config) -> list[str]:
    """One line for each key of the start of a new run, where the weights of another run are loaded instead."""
    if config.runner.init_from is None:  # a manipulator without it already has a line
        return []
    names = ("init_from", "ckpt_manipulator")
    given = [name for name in names if getattr(config.runner, name) != RunnerConfig.model_fields[name].default]
    return [f"runner.{name}: no effect; load gives the weights" for name in given]
