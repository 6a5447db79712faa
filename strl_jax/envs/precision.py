"""The precision in which simulators multiply."""

import functools
from collections.abc import Callable

import jax


def exact(function: Callable) -> Callable:
    """``function`` with its matrix products in whole float32.

    On a GPU jax rounds their factors to ten bits (TF32) unless told otherwise: good enough for networks, but a
    simulator's errors add up over thousands of steps, and more robots were seen to fall.
    """

    @functools.wraps(function)
    def inner(*args, **kwargs):
        with jax.default_matmul_precision("float32"):
            return function(*args, **kwargs)

    return inner
