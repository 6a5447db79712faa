"""What the tests of the keys' effects share: the keys of a config, and what a run with a config is made of."""

import hashlib
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jaxprs import Program, differing
from pydantic import BaseModel

from strl_jax.algorithms import train_step
from strl_jax.algorithms.schedules import Schedule
from strl_jax.builders import checks, environment
from strl_jax.builders.algorithm import assemble
from strl_jax.builders.effects.rules import without_effect
from strl_jax.config import ConfigError, from_dict
from strl_jax.config.policy import MutexFields
from strl_jax.config.values import is_model, items, plain
from strl_jax.run_folder.arrays import encode
from strl_jax.runners.evaluation import make_evaluate
from strl_jax.sharding import make_mesh

ONE = make_mesh(jax.devices()[:1])


def leaves(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """The dotted names of all values in a model and in its sections; a schedule counts as a value."""
    for name, field in model.model_fields.items():
        sections = [kind for kind in items(field.annotation) if is_model(kind) and not issubclass(kind, Schedule)]
        for section in sections:
            yield from leaves(section, f"{prefix}{name}.")
        if not sections:
            yield prefix + name


def changed(data: dict, key: str, value: Any) -> dict:
    """A copy of a config with another value at a dotted key."""
    data = plain(data)
    *sections, name = key.split(".")
    section = data
    for part in sections:
        section = section.setdefault(part, {})
    section[name] = value
    return data


def lines(data: dict) -> list[str]:
    """The warnings for a config."""
    config, ignored = from_dict(data)
    return ignored + without_effect(config)


class Run:
    """What a run with a config is made of; everything is computed at its first use.

    Attributes:
        config: the validated config, or None.
        error: the lines of the error with which a run would end at its start, or None.
    """

    def __init__(self, data: dict):
        self.error, self.config, self._traces = None, None, {}
        try:
            self.config, _ = from_dict(data)
            base = environment.make_env(self.config.env)
            self.env = environment.make_episode_env(self.config, base)
            self.made = assemble(self.config, base)
            if not self.acts_only:
                checks.check_trains(self.config, self.made.algorithm.policy)
        except ConfigError as error:
            self.error = str(error)

    @property
    def acts_only(self) -> bool:
        """Whether the policy is not trained."""
        return isinstance(self.config.policy, MutexFields)

    @cached_property
    def data(self) -> Any:
        """The sources of the data with their digests, and the digest of weights that are read."""
        weights = hashlib.sha256()
        for leaf in jax.tree.leaves(self.made.algorithm.variables):
            weights.update(np.ascontiguousarray(encode(leaf)).tobytes())
        return self.made.references, weights.hexdigest()

    def differs(self, other: "Run") -> str | None:
        """The first part in which two runs differ: error, data, or the name of a program; None if there is none."""
        if self.error or other.error:
            return "error" if self.error != other.error else None
        if self.data != other.data:
            return "data"
        names = ["init"]  # it is the fastest to trace
        names += [] if self.acts_only else ["step"]
        names += ["evaluate"] if self.acts_only or self.config.runner.eval_interval > 0 else []
        index = differing((self.traced(name), other.traced(name)) for name in names)
        return None if index is None else names[index]

    def traced(self, name: str) -> Program:
        """A traced program ``init``, ``step`` or ``evaluate``; it is not compiled."""
        if name not in self._traces:
            algorithm, runner = self.made.algorithm, self.config.runner
            match name:
                case "step":
                    step = train_step.make_train_step(self.env, algorithm, ONE, runner.num_steps_per_env)
                    traced = step.trace(*self._states, self._data_shapes)
                case "init":
                    traced = self._make_init().trace(jax.random.key(0))
                case "evaluate":
                    evaluate = make_evaluate(self.env, algorithm, ONE, runner.num_eval_envs)
                    traced = evaluate.trace(self._states[0], jax.random.key(0))
            self._traces[name] = Program(traced)
        return self._traces[name]

    def _make_init(self):
        options = {"num_steps": self.config.runner.num_steps_per_env, "data": self._data_shapes}
        return train_step.make_init(self.env, self.made.algorithm, ONE, self.config.env.num_envs, **options)

    @cached_property
    def _data_shapes(self) -> dict:
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), np.asarray(x).dtype), self.made.data)

    @property
    def _states(self):
        return self.traced("init").out_info
