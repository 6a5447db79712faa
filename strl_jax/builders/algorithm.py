"""An algorithm from its config, and the data that it needs beside the environment."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import jax
import jax.numpy as jnp
import numpy as np

from strl_jax.algorithms import appo, rnd, tppo
from strl_jax.algorithms.amp_input import AmpInput, make_input
from strl_jax.algorithms.base import Algorithm
from strl_jax.algorithms.style import Style
from strl_jax.builders.acting import make_acting, make_group
from strl_jax.builders.mutex import make_mutex
from strl_jax.builders.teacher import load_teacher, trained_at
from strl_jax.config import Config, ConfigError, GroupsConfig
from strl_jax.config.policy import AmpFields as DiscriminatorFields
from strl_jax.config.policy import MutexFields, has
from strl_jax.envs.base import LARGEST, Env, carried


@dataclass(frozen=True)
class Assembled:
    """What a config makes.

    Attributes:
        algorithm: the algorithm.
        data: NumPy arrays that its hooks need: ``teacher``, ``expert``.
        references: name of the data -> ``path`` and ``sha256``, which checkpoints keep in their place.
    """

    algorithm: Algorithm
    data: dict[str, Any]
    references: dict[str, dict[str, str]]


def assemble(config: Config, env: Env) -> Assembled:
    """The algorithm that a config names, for what ``env`` offers, with everything loaded.

    Raises:
        ConfigError: parts that do not fit each other or the environment, or files that are not there.
    """
    if has(config.policy, MutexFields):
        return Assembled(make_mutex(config, env), {}, {})
    algorithm, settings, data, paths = make_acting(config, env), config.algorithm, {}, {}
    for group in GroupsConfig.model_fields:  # names are wrong or right, whether the algorithm asks for them or not
        make_group(config, env, group)
    try:
        if isinstance(settings, tppo.TeacherFields):
            teacher, data["teacher"] = load_teacher(config, env)
            paths["teacher"] = trained_at(settings)
            algorithm = tppo.add(algorithm, settings, teacher)
        if isinstance(settings, appo.AmpFields) and has(config.policy, DiscriminatorFields):
            found, expert = _amp_input(config, env)
            data |= expert
            paths["expert"] = settings.expert_file
            algorithm = appo.add(algorithm, settings, _style(config), found)
        if settings.rnd_cfg is not None:
            group = make_group(config, env, "rnd", algorithm.groups["actor"].names)
            algorithm = rnd.add(algorithm, settings.rnd_cfg, group)
    except ConfigError:  # a ValueError too, but its lines name their keys
        raise
    except ValueError as error:
        raise ConfigError(f"algorithm: {error}") from None
    references = {name: {"path": str(paths[name]), "sha256": _digest(tree)} for name, tree in data.items()}
    return Assembled(algorithm, data, references)


def changed_data(saved: dict, now: dict) -> list[str]:
    """A line for every reference of a checkpoint that leads to something else now."""
    lines = []
    for name, about in saved.items():
        if name not in now or now[name]["sha256"] == about["sha256"]:
            continue
        before, after = about["path"], now[name]["path"]
        same = f"{name}: {after} holds other numbers than when the run was saved"
        lines.append(same if before == after else f"{name}: {before} when the run was saved, {after} now")
    return lines


def _digest(tree: Any) -> str:
    """Of all numbers, whatever file they are from."""
    found = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        found.update(jax.tree_util.keystr(path).encode())
        found.update(np.ascontiguousarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf).tobytes())
    return found.hexdigest()


def _is_key(leaf) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _style(config: Config) -> Style:
    settings = config.policy.amp_discriminator
    return Style(
        hidden_dims=settings.hidden_dims,
        style_reward_coef=settings.style_reward_coef,
        task_reward_lerp=settings.task_reward_lerp,
        discriminator_grad_pen=settings.discriminator_grad_pen,
        initialization=config.policy.initialization,
    )


def _amp_input(config: Config, env: Env) -> tuple[AmpInput, dict[str, np.ndarray]]:
    """What the discriminator sees, and the expert's states if they are from a file."""
    kept, steps = config.algorithm.amp_replay_size, config.runner.num_steps_per_env
    if 0 < kept < steps:
        raise ConfigError(
            f"algorithm.amp_replay_size: {kept} is not allowed; it must be 0, or num_steps_per_env {steps} or more"
        )
    group = make_group(config, env, "amp") if config.env.groups.amp is not None else None
    path, expert = config.algorithm.expert_file, {}
    # A simulator takes seconds to trace: only if the states are its own.
    extras = _extras(env) if group is None or path is None else {}
    if group is None and "ref_obs" not in extras:
        raise ConfigError(
            "env.groups.amp: null is not allowed here; the environment gives no ref_obs, so that it must name the "
            f"components of the discriminator's states, of {', '.join(env.observation_shapes)}"
        )
    if path is not None:
        expert["expert"] = _read_expert(Path(path))
    elif "ref_motion" not in extras:
        raise ConfigError(
            "algorithm.expert_file: null is not allowed here; the environment gives no ref_motion, so that a .npy "
            "file must hold the expert's states [N, amp_obs_dim]"
        )
    size = expert["expert"].shape[1] if expert else None
    return make_input(config.algorithm.amp_obs_dim, group, extras, size), expert


def _extras(env: Env) -> dict[str, tuple[int, ...]]:
    """Shapes of what the environment's steps give beside observations; nothing is compiled."""
    start = jax.eval_shape(lambda key: carried(env.reset(key)), jax.random.split(jax.random.key(0), 1))
    extras = jax.eval_shape(env.step, start, jax.ShapeDtypeStruct((1, env.action_size), jnp.float32)).extras
    return {name: leaf.shape[1:] for name, leaf in extras.items()}


def _read_expert(path: Path) -> np.ndarray:
    key = "algorithm.expert_file"
    try:
        found = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise ConfigError(f"{key}: {path}: no such file") from None
    except (OSError, ValueError, EOFError, BadZipFile, MemoryError) as error:
        raise ConfigError(f"{key}: {path}: cannot be read as .npy: {error}") from None
    if not isinstance(found, np.ndarray) or found.ndim != 2 or not found.size or found.dtype.kind not in "fiu":
        what = f"{found.dtype} {list(found.shape)}" if isinstance(found, np.ndarray) else "an archive"
        raise ConfigError(f"{key}: {path}: it holds {what}; it must hold numbers [N, amp_obs_dim]")
    with np.errstate(over="ignore"):  # told below
        found = found.astype(np.float32)
    if not (np.abs(found) < LARGEST).all():  # false for NaN too
        raise ConfigError(f"{key}: {path}: not all numbers in it are finite and under {LARGEST:g} in size")
    return found
