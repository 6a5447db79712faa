"""The precision of matrix products in simulators."""

import functools
from collections.abc import Callable

import jax


def exact(function: Callable) -> Callable:
    """``function`` with matrix products in full float32 precision.

    On a GPU, JAX rounds the factors of a matrix product to ten bits of mantissa (TF32) by default. This is
    enough for networks, but the errors of a simulator add up over thousands of steps: with TF32, more robots fell.
    """

    @functools.wraps(function)
    def with_float32_products(*args, **kwargs):
        with jax.default_matmul_precision("float32"):
            return function(*args, **kwargs)

    return with_float32_products
