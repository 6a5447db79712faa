"""Video of one episode, rendered without a display."""

import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import mujoco
import numpy as np

from strl_jax.config import ConfigError

LIBRARIES = {"egl": "libegl1 and a driver (libgl1-mesa-dri or NVIDIA's)", "osmesa": "libosmesa6"}
MAX_FPS = 25


def find_gl() -> str:
    """The OpenGL library for rendering: ``MUJOCO_GL`` if it is set, otherwise the first of ``LIBRARIES`` that works.

    Raises:
        ConfigError: no library works; the message says what to install.
    """
    chosen = os.environ.get("MUJOCO_GL")
    faults = {}
    for name in [chosen] if chosen else LIBRARIES:
        result = _run(name)
        if result.returncode == 0:
            return name
        faults[name] = _last_line(result.stderr)
    reasons = "; ".join(f"{name}: {fault}" for name, fault in faults.items())
    where = f" with MUJOCO_GL={chosen}" if chosen else ""
    packages = " or ".join(LIBRARIES.values())
    raise ConfigError(
        f"--video: OpenGL does not work here{where} ({reasons}); it needs {packages}: apt install libosmesa6"
    )


def stride(dt: float) -> int:
    """Smallest number of steps per frame with which a video has at most ``MAX_FPS`` frames per second."""
    return max(1, math.ceil(1 / (MAX_FPS * dt) - 1e-6))  # 1e-6: rounding errors of the division


def make(path: Path, library: str, model: mujoco.MjModel, trace: Mapping[str, np.ndarray], dt: float) -> None:
    """Renders an episode and writes it as an MP4 that plays in real time.

    Args:
        path: file of the video.
        library: result of ``find_gl``.
        model: result of ``scene.of``.
        trace: see ``Roll.trace``.
        dt: duration of a step, s.

    Raises:
        ConfigError: rendering or encoding fails.
        OSError: writing fails.
    """
    every = stride(dt)
    shown = {name: trace[name][::every] for name in ("qpos", "command", "velocity") if name in trace}
    fps = Fraction(1 / (dt * every)).limit_denominator(1000)
    with tempfile.TemporaryDirectory(prefix="strl_jax-") as folder:
        mujoco.mj_saveModel(model, str(Path(folder) / "model.mjb"))
        np.savez(Path(folder) / "trace.npz", fps=[fps.numerator, fps.denominator], **shown)
        result = _run(library, folder)
        if result.returncode:
            raise ConfigError(f"--video: rendering failed: {_last_line(result.stderr)}")
        path.write_bytes((Path(folder) / "out").read_bytes())


def _run(library: str, *arguments: str) -> subprocess.CompletedProcess:
    """Runs ``viewer.draw`` in a new process with the given OpenGL library."""
    root = str(Path(__file__).parents[2])
    paths = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"MUJOCO_GL": library, "PYTHONPATH": paths}
    command = [sys.executable, "-m", "strl_jax.viewer.draw", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no message"
