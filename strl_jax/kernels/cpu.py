"""Kernels for CPUs: C++ with one environment in each lane of a vector, compiled by the system's compiler."""

import ctypes
import functools
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from strl_jax.kernels import built
from strl_jax.kernels.source import Source

HERE = Path(__file__).parent
TARGET = "strl_jax_cpu_kernel"
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared", "-w", "-fwrapv", "-fno-math-errno", "-fno-trapping-math")
LANES = {"avx512f": 16, "avx2": 8}  # feature of the processor -> float32 numbers of a vector
MISSING = "there is no C++ compiler: install one (g++ or clang++), or `pip install ziglang`"


class CannotBuild(Exception):
    """No kernel can be built here; the message says why, and what to install."""


@functools.cache
def compiler() -> tuple[str, ...]:
    """The command of the compiler: ``$CXX``, that of the system, or Zig's.

    Raises:
        CannotBuild: there is none.
    """
    if os.environ.get("CXX"):
        return tuple(os.environ["CXX"].split())
    for name in ("g++", "clang++", "c++"):
        if shutil.which(name):
            return (name,)
    if importlib.util.find_spec("ziglang"):
        return (sys.executable, "-m", "ziglang", "c++")
    raise CannotBuild(MISSING)


@functools.cache
def processor() -> tuple[str, int]:
    """A name for the processor's features, and the number of lanes of its vectors."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features"))), [])
    lanes = next((count for feature, count in LANES.items() if feature in flags), 4)
    return " ".join([platform.machine(), *sorted(flags)]), lanes


@functools.cache
def _version() -> str:
    return _run([*compiler(), "--version"])


def _run(command: list[str]) -> str:
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise CannotBuild(f"the C++ compiler does not start: {command[0]}: {error.strerror}") from None
    if result.returncode:
        message = next(
            (line for line in result.stderr.splitlines() if "error" in line), f"exit code {result.returncode}"
        )
        raise CannotBuild(f"the C++ compiler {command[0]} fails: {message}")
    return result.stdout


def _compile(text: str, *flags: str) -> Path:
    """The shared library of a C++ text."""
    command = [*compiler(), *FLAGS, *flags]

    def build(path: Path) -> None:
        source = path.with_suffix(".cc")
        source.write_text(text)
        try:
            _run([*command, "-o", str(path), str(source)])
        finally:
            source.unlink()

    return built.stored(f"{built.digest(text, ' '.join(command), _version(), processor()[0])}.so", build)


@functools.cache
def _handler() -> ctypes.CDLL:
    """The library of the FFI handler, which is registered with XLA."""
    include = jax.ffi.include_dir()
    text = f"// jaxlib {jax.lib.__version__}\n{(HERE / 'cpu_handler.cc').read_text()}"
    library = ctypes.CDLL(str(_compile(text, f"-I{include}")))
    library.add_kernel.argtypes = (ctypes.c_int64, ctypes.c_void_p, ctypes.c_int)
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(library.handler), platform="cpu")
    return library


def text_of(source: Source) -> str:
    """The C++ text of a kernel."""
    lines = [f"#define W {processor()[1]}", (HERE / "simd.h").read_text()]
    lines.append('extern "C" void kernel(const void* const* in, void* const* out, int first, int last, int n) {')
    for array, pointers in (("in", source.inputs), ("out", source.outputs)):
        lines += [
            f"{type} __restrict__ {name} = ({type}){array}[{number}];" for number, (type, name) in enumerate(pointers)
        ]
    return "\n".join([*lines, "for (int t = first; t < last; t += W) {", source.body, "}", "}", ""])


def build(source: Source, results: list) -> Callable:
    """The kernel as a function of the batched inputs.

    Args:
        results: shape and dtype of each output of ONE environment.

    Returns:
        ``leaves [B, ...] -> list of outputs [B, ...]``; it can be used under jit.

    Raises:
        CannotBuild: there is no compiler, or it fails.
    """
    library, text = _handler(), text_of(source)
    native = "-mcpu=native" if "ziglang" in compiler() else "-march=native"
    path = _compile(text, native, "-ffp-contract=fast")
    id = int(path.stem[:15], 16)
    kernel = ctypes.CDLL(str(path)).kernel
    library.add_kernel(id, ctypes.cast(kernel, ctypes.c_void_p), processor()[1])

    def call(*leaves):
        batch = leaves[0].shape[0]
        shapes = [jax.ShapeDtypeStruct((batch, *r.shape), r.dtype) for r in results]
        tables = [jnp.asarray(table) for table in source.tables]
        return jax.ffi.ffi_call(TARGET, shapes)(*leaves, *tables, id=np.int64(id))

    return call
