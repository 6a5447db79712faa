"""Kernels for NVIDIA GPUs: CUDA C++ with one environment a thread, called through XLA's own target for PTX."""

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from strl_jax.kernels import nvrtc
from strl_jax.kernels.source import Source

HERE = Path(__file__).parent
TARGET = "__gpu$xla.gpu.ptx"
BLOCK = 32  # threads; small blocks spread a few thousand environments over all multiprocessors


def text_of(source: Source) -> str:
    """The CUDA C++ text of a kernel; the number of environments is read from memory, so one text serves all."""
    pointers = [*source.inputs, ("const int*", "count"), *source.outputs]
    parameters = [f"{type} __restrict__ {name}" for type, name in pointers]
    lines = [(HERE / "cuda.h").read_text()]
    lines.append(f'extern "C" __global__ void __launch_bounds__({BLOCK}) kernel({", ".join(parameters)}) {{')
    lines.append("const int n = *count, t = blockIdx.x * blockDim.x + threadIdx.x;")
    return "\n".join([*lines, "if (t >= n) return;", source.body, "}", ""])


def build(source: Source, results: list, capability: str) -> Callable:
    """The kernel as a function of the batched inputs.

    Args:
        results: shape and dtype of each output of ONE environment.
        capability: compute capability of the GPU, for example ``9.0``.

    Returns:
        ``leaves [B, ...] -> list of outputs [B, ...]``; it can be used under jit.

    Raises:
        nvrtc.CompileError: NVRTC is not installed, or it rejects the text.
    """
    code = _quoted(nvrtc.ptx(text_of(source), capability))

    def call(*leaves):
        batch = leaves[0].shape[0]
        shapes = [jax.ShapeDtypeStruct((batch, *r.shape), r.dtype) for r in results]
        operands = [*leaves, *map(jnp.asarray, source.tables), jnp.asarray(np.array([batch], np.int32))]
        return jax.ffi.ffi_call(
            TARGET,
            shapes,
            custom_call_api_version=1,
            legacy_backend_config=_config(code, batch, len(operands), len(results)),
        )(*operands)

    return call


def _config(code: str, batch: int, operands: int, results: int) -> str:
    """The attributes of XLA's target as MLIR."""
    places = ", ".join(f"{operands + number} : i32" for number in range(results))
    sizes = {"grid_x": -(-batch // BLOCK), "grid_y": 1, "grid_z": 1, "block_x": BLOCK, "block_y": 1, "block_z": 1}
    numbers = "".join(f", {name} = {size} : i32" for name, size in (sizes | {"shared_mem_bytes": 0}).items())
    return f'{{name = "kernel", kernel_type = "ptx", kernel_data = {code}{numbers}, output_indices = [{places}]}}'


def _quoted(text: str) -> str:
    """An MLIR string."""
    for character, escaped in (("\\", "\\5C"), ('"', "\\22"), ("\n", "\\0A"), ("\t", "\\09")):
        text = text.replace(character, escaped)
    return f'"{text}"'
