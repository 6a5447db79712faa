"""Run folders as a training leaves them, without the time of a training: weights from numpy."""

from pathlib import Path

import jax
import jax.numpy as jnp
from commands import settings
from tiny import make_state

from strl_jax.config import from_dict
from strl_jax.run_folder import run_dir
from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.sharding import make_mesh

FIRST = 10


def recurrent(path: Path, kinds: tuple[str, ...], **runner) -> Path:
    """A run of a GRU policy in ``path``, with a checkpoint of every kind, see ``write``."""
    data = settings(path, **runner)
    data["policy"] |= {"rnn_type": "gru", "rnn_hidden_size": 4, "class_name": "ActorCriticRecurrent"}
    return write(path, kinds, data)


def write(path: Path, kinds: tuple[str, ...], data: dict) -> Path:
    """A run with the config ``data`` in ``path``.

    The weights of kind ``i`` are ``make_state(algorithm, i)``, its iteration is ``FIRST + i``.
    """
    config, _ = from_dict(data)
    run_dir.write_config(path, config)
    made = OnPolicyRunner(None, config, path, mesh=make_mesh(jax.devices()[:1]))
    made.rollout_state = {"steps": jnp.int32(5)}
    for seed, kind in enumerate(kinds):
        made.train_state = make_state(made.algorithm, seed)
        made.progress.iteration = FIRST + seed
        made.save(kind)
    made.close()
    return path
