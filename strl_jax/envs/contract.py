"""Checks that an environment follows the protocol of ``envs.base.Env``, from shapes and dtypes alone."""

import math
import numbers
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from strl_jax.envs.base import Env, carried
from strl_jax.types import EnvState

BATCH = 3  # environments; messages show this size of a first axis as B
OPTIONAL = ("at_iteration", "resets_alone")
NAMES = dict.fromkeys((*(name for name in vars(Env) if not name.startswith("_")), *Env.__annotations__))
PROTOCOL = tuple(name for name in NAMES if name not in OPTIONAL)


class ContractError(ValueError):
    """An environment does not follow the protocol; the message is one line."""


def check(env: Env) -> None:
    """Traces ``reset``, ``step``, ``merge`` and ``finite``. Nothing is computed or compiled.

    Raises:
        ContractError: names the value, what it is and what it must be. Exceptions of
            the environment's own functions are not converted.
    """
    _check_attributes(env)
    key = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), BATCH))
    fresh = jax.eval_shape(env.reset, key)
    _check_state("reset", fresh)
    start = jax.eval_shape(carried, fresh)
    _check_observation("reset", env, start)
    _check_first_axis("reset: physics", start.physics)

    after = jax.eval_shape(env.step, start, jax.ShapeDtypeStruct((BATCH, env.action_size), jnp.float32))
    _check_state("step", after)
    _check_observation("step", env, after)
    _check_step(after)
    _check_equal_structure("step: physics", start.physics, after.physics, "reset gives")
    _check_equal_structure("step: obs", start.obs, after.obs, "reset gives")

    done = jax.ShapeDtypeStruct((BATCH,), jnp.bool_)
    merged = jax.eval_shape(env.merge, done, start, jax.eval_shape(carried, after))
    _check_equal_structure("merge: state", start, merged, "its input was")
    _check_shape("finite: the result", jax.eval_shape(env.finite, after), (BATCH,), (jnp.bool_,), "bool")
    _check_iterations(env, key, fresh, after)


def _check_attributes(env: Env) -> None:
    missing = [name for name in PROTOCOL if not hasattr(env, name)]
    if missing:
        raise ContractError(f"it has no {', '.join(missing)}; it must be a strl_jax.envs.base.Env")
    for name in ("action_size", "episode_length"):
        value = getattr(env, name)
        if isinstance(value, bool) or not hasattr(value, "__index__") or value < 1:
            raise ContractError(f"{name} is {value!r}; it must be an integer >= 1")
    if isinstance(env.dt, bool) or not isinstance(env.dt, numbers.Real) or not 0 < env.dt < math.inf:
        raise ContractError(f"dt is {env.dt!r}; it must be a number of seconds above 0")
    shapes = env.observation_shapes
    if not isinstance(shapes, Mapping) or not shapes:
        raise ContractError(f"observation_shapes is {shapes!r}; it must map the names of components to their shapes")
    for name, shape in shapes.items():
        sizes = shape if isinstance(shape, tuple | list) else [None]
        if not all(type(size) is int and size > 0 for size in sizes):
            raise ContractError(f"observation_shapes[{name!r}] is {shape!r}; it must be a tuple of integers >= 1")


def _check_iterations(env: Env, key: Any, fresh: Any, after: Any) -> None:
    """The environments of an iteration must give what the environments themselves give."""
    if getattr(type(env), "at_iteration", Env.at_iteration) is Env.at_iteration:
        return

    def run(iteration, key, action):
        now = env.at_iteration(iteration)
        state = now.reset(key)
        return state, now.step(carried(state), action)

    iteration, action = jax.ShapeDtypeStruct((), jnp.int32), jax.ShapeDtypeStruct((BATCH, env.action_size), jnp.float32)
    for function, before, now in zip(
        ("reset", "step"), (fresh, after), jax.eval_shape(run, iteration, key, action), strict=True
    ):
        _check_equal_structure(f"at_iteration: {function}: state", before, now, f"{function} without it gives")


def _check_state(function: str, state: Any) -> None:
    if not isinstance(state, EnvState):
        raise ContractError(f"{function}: the result is {_text(state)}; it must be a strl_jax.types.EnvState")
    for field in ("obs", "metrics", "extras"):
        value = getattr(state, field)
        if not isinstance(value, dict) and not (function == "reset" and field != "obs"):
            raise ContractError(f"{function}: {field} is {_text(value)}; it must be a dict")


def _check_observation(function: str, env: Env, state: EnvState) -> None:
    for name, shape in env.observation_shapes.items():
        if name not in state.obs:
            names = ", ".join(map(str, state.obs)) or "nothing"
            raise ContractError(f"{function}: obs has no {name!r}, which is in observation_shapes; it has {names}")
        _check_shape(f"{function}: obs[{name!r}]", state.obs[name], (BATCH, *shape), _NUMBERS, "number")


def _check_step(state: EnvState) -> None:
    _check_shape("step: reward", state.reward, (BATCH,), (jnp.floating,), "float")
    for name in ("terminated", "timeout"):
        _check_shape(f"step: {name}", getattr(state, name), (BATCH,), _NUMBERS, "bool or number")
    for name, value in state.metrics.items():
        _check_shape(f"step: metrics[{name!r}]", value, (BATCH,), _NUMBERS, "number")
    _check_first_axis("step: extras", state.extras)


_NUMBERS = (jnp.floating, jnp.integer, jnp.bool_)


def _check_shape(what: str, value: Any, shape: tuple, kinds: tuple, kind: str) -> None:
    fits = getattr(value, "shape", None) == shape and any(jnp.issubdtype(value.dtype, k) for k in kinds)
    if not fits:
        raise ContractError(f"{what} is {_text(value)}; it must be {kind}{_sizes(shape)}")


def _check_first_axis(what: str, tree: Any) -> None:
    for path, leaf in _paths(tree):
        if leaf.shape[:1] != (BATCH,):
            raise ContractError(f"{what}{path} is {_text(leaf)}; its first axis must be the environments, [B, ...]")


def _check_equal_structure(what: str, before: Any, after: Any, reference: str) -> None:
    """The loop over the steps carries the tree, so its structure, shapes and dtypes must not change."""
    first, second = _paths(before), _paths(after)
    now, then = jax.tree.structure(after), jax.tree.structure(before)
    if now != then:
        path = min(dict(first).keys() ^ dict(second).keys(), default="")
        if path:
            now, then = ("absent", "present") if path in dict(first) else ("present", "absent")
        raise ContractError(f"{what}{path} is {now}; {reference} {then}; they must be equal")
    for (path, old), (_, new) in zip(first, second, strict=True):
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            raise ContractError(f"{what}{path} is {_text(new)}; {reference} {_text(old)}; they must be equal")


def _paths(tree: Any) -> list[tuple[str, Any]]:
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]


def _text(value: Any) -> str:
    return f"{value.dtype}{_sizes(value.shape)}" if hasattr(value, "dtype") else type(value).__name__


def _sizes(shape: tuple) -> str:
    """The shape as text, with the number of environments as B."""
    return f"[{', '.join(['B' if size == BATCH and not index else str(size) for index, size in enumerate(shape)])}]"
