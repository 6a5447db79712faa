"""Algorithms from a config, with the data of their hooks."""

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
from strl_jax.builders.teacher import load_teacher, teacher_path
from strl_jax.config import Config, ConfigError, GroupsConfig
from strl_jax.config.errors import reported_after
from strl_jax.config.policy import DiscriminatorFields, MutexFields
from strl_jax.envs.base import LARGEST, Env, carried
from strl_jax.run_folder.arrays import encode


@dataclass(frozen=True)
class Assembled:
    """An algorithm with its data.

    Attributes:
        algorithm: the algorithm.
        data: NumPy arrays for its hooks, by name: ``teacher``, ``expert``.
        references: name of the data -> ``path`` and ``sha256``. Checkpoints store these, not the data.
    """

    algorithm: Algorithm
    data: dict[str, Any]
    references: dict[str, dict[str, str]]


def assemble(config: Config, env: Env) -> Assembled:
    """The algorithm of a config for the observations and actions of ``env``, with all files read.

    Raises:
        ConfigError: parts do not fit each other or the environment, or a file cannot be read.
    """
    if isinstance(config.policy, MutexFields):
        return Assembled(make_mutex(config, env), {}, {})
    algorithm, settings, data, paths = make_acting(config, env), config.algorithm, {}, {}
    for group in GroupsConfig.model_fields:  # checks the names of all groups, also those not used by the algorithm
        make_group(config, env, group)
    with reported_after("algorithm: "):
        if isinstance(settings, tppo.TeacherFields):
            teacher, data["teacher"] = load_teacher(config, env)
            paths["teacher"] = teacher_path(settings)
            algorithm = tppo.add(algorithm, settings, teacher)
        if isinstance(settings, appo.AmpFields) and isinstance(config.policy, DiscriminatorFields):
            amp_input, expert = _amp_input(config, env)
            data |= expert
            paths["expert"] = settings.expert_file
            style = Style(**dict(config.policy.amp_discriminator), initialization=config.policy.initialization)
            algorithm = appo.add(algorithm, settings, style, amp_input)
        if settings.rnd_cfg is not None:
            group = make_group(config, env, "rnd", algorithm.groups["actor"].names)
            algorithm = rnd.add(algorithm, settings.rnd_cfg, group, env.dt)
    references = {name: {"path": str(paths[name]), "sha256": _digest(tree)} for name, tree in data.items()}
    return Assembled(algorithm, data, references)


def changed_data(saved: dict, current: dict) -> list[str]:
    """A line for every reference of a checkpoint whose data has changed.

    Args:
        saved, current: ``Assembled.references`` of the checkpoint and of now.
    """
    lines = []
    for name in saved:
        if name not in current or current[name]["sha256"] == saved[name]["sha256"]:
            continue
        before, after = saved[name]["path"], current[name]["path"]
        same_file = f"{name}: the numbers in {after} have changed since the run was saved"
        lines.append(same_file if before == after else f"{name}: {before} when the run was saved, {after} now")
    return lines


def _digest(tree: Any) -> str:
    """SHA-256 of all paths and values of a tree."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        digest.update(jax.tree_util.keystr(path).encode())
        digest.update(np.ascontiguousarray(encode(leaf)).tobytes())
    return digest.hexdigest()


def _amp_input(config: Config, env: Env) -> tuple[AmpInput, dict[str, np.ndarray]]:
    """Input of the discriminator, and ``{"expert": states}`` if they are from a file."""
    kept, steps = config.algorithm.amp_replay_size, config.runner.num_steps_per_env
    if 0 < kept < steps:
        raise ConfigError(
            f"algorithm.amp_replay_size: {kept} is not allowed; it must be 0, or num_steps_per_env {steps} or more"
        )
    group = make_group(config, env, "amp") if config.env.groups.amp is not None else None
    path, expert = config.algorithm.expert_file, {}
    # Only if states of the environment are used, because tracing a simulator takes seconds.
    extras = _extras(env) if group is None or path is None else {}
    if group is None and "ref_obs" not in extras:
        raise ConfigError(
            "env.groups.amp: null is not allowed for an environment without ref_obs; it must list the components of "
            f"the discriminator's states, of {', '.join(env.observation_shapes)}"
        )
    if path is not None:
        expert["expert"] = _read_expert(Path(path))
    elif "ref_motion" not in extras:
        raise ConfigError(
            "algorithm.expert_file: null is not allowed for an environment without ref_motion; it must be a .npy "
            "file with the expert's states [N, amp_obs_dim]"
        )
    size = expert["expert"].shape[1] if expert else None
    return make_input(config.algorithm.amp_obs_dim, group, extras, size), expert


def _extras(env: Env) -> dict[str, tuple[int, ...]]:
    """Shapes of the ``extras`` of an environment's steps, without batch; nothing is compiled."""
    start = jax.eval_shape(lambda key: carried(env.reset(key)), jax.random.split(jax.random.key(0), 1))
    extras = jax.eval_shape(env.step, start, jax.ShapeDtypeStruct((1, env.action_size), jnp.float32)).extras
    return {name: leaf.shape[1:] for name, leaf in extras.items()}


def _read_expert(path: Path) -> np.ndarray:
    """Expert states ``[N, amp_obs_dim]`` of a .npy file, float32."""
    prefix = f"algorithm.expert_file: {path}"
    try:
        states = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise ConfigError(f"{prefix}: no such file") from None
    except (OSError, ValueError, EOFError, BadZipFile, MemoryError) as error:
        raise ConfigError(f"{prefix}: cannot be read as .npy: {error}") from None
    if not isinstance(states, np.ndarray) or states.ndim != 2 or not states.size or states.dtype.kind not in "fiu":
        content = f"{states.dtype} {list(states.shape)}" if isinstance(states, np.ndarray) else "an archive"
        raise ConfigError(f"{prefix}: it holds {content}; it must hold numbers [N, amp_obs_dim]")
    with np.errstate(over="ignore"):  # reported below
        states = states.astype(np.float32)
    if not (np.abs(states) < LARGEST).all():  # also for NaN
        raise ConfigError(f"{prefix}: all numbers must be finite, with absolute values below {LARGEST:g}")
    return states
