"""``fuse``: a function of one environment becomes one kernel over all environments."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from strl_jax.kernels import cpu, cuda, nvrtc, source
from strl_jax.kernels.graph import Unsupported
from strl_jax.kernels.trace import Traced, as_given, as_words, trace


class KernelError(Exception):
    """There is no kernel for a function here; the message says why, in one line."""


def fuse(function: Callable, *, required: bool = False) -> Callable:
    """One kernel over all environments from a function of ONE environment.

    On a GPU the kernel is CUDA, on a CPU it is C++ with one environment in each lane of a vector. The kernel is built
    when the result is traced for the first time, for the default backend. Arithmetic is that of float32, int32,
    uint32 and bool; ``x * 0`` is 0 also if x is not finite. Where there is no kernel, the result is
    ``jax.vmap(function)``, and a warning gives the reason, once.

    Args:
        function: of trees of arrays with fixed shapes, to a tree of arrays; typed PRNG keys are allowed.
        required: raise an error where there is no kernel.

    Returns:
        The function of the same trees with leaves ``[B, ...]``, like ``jax.vmap(function)``. It works under jit, scan
        and shard_map. It cannot be differentiated.

    Raises:
        KernelError: at the first call, with ``required``.
    """
    known: dict = {}

    def batched(*arguments) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        single = [jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype) for leaf in leaves]
        key = (structure, *[(leaf.shape, leaf.dtype) for leaf in single])
        if key not in known:
            known[key] = _built(function, structure.unflatten(single), required)
        if known[key] is None:
            return jax.vmap(function)(*arguments)
        traced, call = known[key]
        words = [as_words(leaf) for leaf in leaves]
        computed = iter(_constant(call)(*words) if traced.outputs else ())
        results = [_leaf(origin, words, computed) for origin in traced.origins]
        return traced.tree.unflatten([as_given(x, like) for x, like in zip(results, traced.made, strict=True)])

    return batched


def fuse_batch(function: Callable, *, required: bool = False) -> Callable:
    """``fuse`` for a function of batches ``[B, ...]`` that treats every environment alike and by itself."""

    def single(*arguments):
        results = function(*jax.tree.map(lambda x: x[None], arguments))
        return jax.tree.map(lambda x: x[0], results)

    return fuse(single, required=required)


def _leaf(origin, words: list, computed: Iterator):
    """A leaf of the result: an input, a constant, or the next output of the kernel."""
    if origin is None:
        return next(computed)
    if isinstance(origin, int):
        return words[origin]
    return jnp.broadcast_to(origin, (words[0].shape[0], *origin.shape))


def _built(function: Callable, arguments, required: bool) -> tuple[Traced, Callable] | None:
    """The graph and the kernel; None: there is none."""
    try:
        return _build(function, arguments)
    except (Unsupported, cpu.CannotBuild, nvrtc.CompileError) as error:
        text = f"unsupported {error}" if isinstance(error, Unsupported) else str(error)
        if required:
            raise KernelError(text) from None
        warnings.warn(f"no kernel, XLA compiles the function: {text}", stacklevel=4)
        return None


def _build(function: Callable, arguments) -> tuple[Traced, Callable]:
    backend = jax.default_backend()
    if backend not in ("cpu", "gpu"):
        raise Unsupported(f"backend {backend}")
    traced = trace(function, arguments)
    text = source.write(traced)
    if backend == "gpu":
        return traced, cuda.build(text, traced.outputs, jax.devices()[0].compute_capability)
    return traced, cpu.build(text, traced.outputs)


def _constant(call: Callable) -> Callable:
    """``call``, whose derivative is a clear error."""
    wrapped = jax.custom_jvp(call)

    @wrapped.defjvp
    def refuse(primals, tangents):
        raise KernelError("a fused function cannot be differentiated; differentiate jax.vmap(function)")

    return wrapped
