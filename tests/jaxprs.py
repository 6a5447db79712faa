"""Comparison of traced programs."""

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal


class Program:
    """A traced program, ``jax.jit(...).trace(...)``.

    Attributes:
        jaxpr: its operations.
        out_info: shapes and types of its results.
    """

    def __init__(self, traced):
        self._traced, self.jaxpr, self.out_info = traced, traced.jaxpr, traced.out_info

    @cached_property
    def text(self) -> str:
        """The lowered text, which shows everything; lowering takes as long as tracing."""
        return self._traced.lower().as_text()


def differing(pairs: Iterable[tuple[Program, Program]]) -> int | None:
    """Index of a pair of programs that differ, or None.

    The pairs are taken one by one until two jaxprs differ, so the programs of later pairs need not be traced.
    Only if all jaxprs are the same, texts are compared.
    """
    compared = []
    for index, (one, other) in enumerate(pairs):
        if not same(one.jaxpr, other.jaxpr):
            return index
        compared.append((one, other))
    return next((index for index, (one, other) in enumerate(compared) if one.text != other.text), None)


def same(one: Any, other: Any) -> bool:
    """Whether two jaxprs, or two parameters of their operations, are equal, without functions.

    It ends at the first difference, and is much faster than a comparison of the jaxprs' texts.
    """
    if one is other:
        return True
    if isinstance(one, ClosedJaxpr) and isinstance(other, ClosedJaxpr):
        return _same_jaxprs(one.jaxpr, other.jaxpr) and same(one.consts, other.consts)
    if isinstance(one, Jaxpr) and isinstance(other, Jaxpr):
        return _same_jaxprs(one, other)
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, np.ndarray | jax.Array) and isinstance(other, np.ndarray | jax.Array):
        return one.shape == other.shape and one.dtype == other.dtype and _bytes(one) == _bytes(other)
    return (callable(one) and callable(other)) or str(one) == str(other)


def _bytes(array) -> bytes:
    is_key = jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(array) if is_key else array).tobytes()


def _same_jaxprs(one: Jaxpr, other: Jaxpr) -> bool:
    numbers: tuple[dict, dict] = ({}, {})

    def equal(left, right) -> bool:
        """Variables are equal if they were defined at the same place."""
        if len(left) != len(right):
            return False
        return all(_name(numbers[0], x) == _name(numbers[1], y) for x, y in zip(left, right, strict=True))

    if len(one.eqns) != len(other.eqns) or not equal(one.constvars + one.invars, other.constvars + other.invars):
        return False
    for a, b in zip(one.eqns, other.eqns, strict=True):
        if a.primitive.name != b.primitive.name or not equal(a.invars, b.invars) or not equal(a.outvars, b.outvars):
            return False
        if not same(a.params, b.params):
            return False
    return equal(one.outvars, other.outvars)


def _name(numbers: dict, variable) -> tuple:
    if isinstance(variable, Literal):
        value = variable.val
        return str(variable.aval), _bytes(value) if isinstance(value, np.ndarray | jax.Array) else repr(value)
    return variable.aval, numbers.setdefault(variable, len(numbers))
