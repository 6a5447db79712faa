"""PTX from CUDA C++ with NVRTC, the compiler library that ``jax[cuda]`` installs; through ctypes."""

import ctypes
import functools
import importlib.util
from pathlib import Path

from strl_jax.kernels import built


class CompileError(Exception):
    """NVRTC is not installed, or it rejects the text; one line."""


@functools.cache
def library() -> ctypes.CDLL:
    """NVRTC.

    Raises:
        CompileError: it is not installed.
    """
    names = [path for folder in _folders() for path in sorted(folder.glob("libnvrtc.so.*"), reverse=True)]
    for name in [*map(str, names), "libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"]:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise CompileError('NVRTC is not installed: pip install "jax[cuda12]" or "jax[cuda13]" installs it')


def _folders() -> list[Path]:
    """The folders of libraries in NVIDIA's Python packages."""
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(path) for path in (spec.submodule_search_locations or ())] if spec else []
    return [folder for root in roots for folder in sorted(root.glob("*/lib"))]


def version() -> str:
    """NVRTC's version, for example ``12.9``."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return f"{major.value}.{minor.value}"


def ptx(text: str, capability: str) -> str:
    """The PTX of a CUDA C++ text, from the cache if it was compiled before.

    Args:
        capability: compute capability of the GPU, for example ``9.0``.

    Raises:
        CompileError: NVRTC is not installed, or it rejects the text.
    """
    # Exact division and roots are calls: their code is shorter than that of the approximations, and a kernel of
    # 20,000 operations waits for its instructions (H200, quadruped: 6.7 ms, with approximations 11.2 ms).
    options = [f"--gpu-architecture=compute_{capability.replace('.', '')}", "--std=c++17"]
    options += ["--device-as-default-execution-space"]
    name = f"{built.digest(text, *options, version())}.ptx"
    return built.stored(name, lambda path: path.write_text(_compile(text, options))).read_text()


def _compile(text: str, options: list[str]) -> str:
    nvrtc, program = library(), ctypes.c_void_p()
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None))
    try:
        array = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        if nvrtc.nvrtcCompileProgram(program, len(options), array):
            log = _read(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
            lines = [line for line in log.splitlines() if "error" in line] or [log[:200]]
            raise CompileError(f"NVRTC: {lines[0]}")
        return _read(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _read(size_of, read, program) -> str:
    size = ctypes.c_size_t()
    _check(size_of(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(read(program, buffer))
    return buffer.value.decode()


def _check(code: int) -> None:
    if code:
        raise CompileError(f"NVRTC fails with code {code}")
