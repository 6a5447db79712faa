"""A video of one environment, drawn without a screen."""

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
MOST_FPS = 25


def find_gl() -> str:
    """The OpenGL library to draw with: that in MUJOCO_GL, else the first that works.

    Raises:
        ConfigError: none works; the line says what to install.
    """
    chosen = os.environ.get("MUJOCO_GL")
    faults = {}
    for name in [chosen] if chosen else LIBRARIES:
        done = _run(name)
        if done.returncode == 0:
            return name
        faults[name] = _last_line(done.stderr)
    said = "; ".join(f"{name}: {fault}" for name, fault in faults.items())
    where = f" with MUJOCO_GL={chosen}" if chosen else ""
    packages = " or ".join(LIBRARIES.values())
    raise ConfigError(
        f"--video: OpenGL draws nothing here{where} ({said}); it takes {packages}: apt install libosmesa6"
    )


def stride(dt: float) -> int:
    """Every how many-th step becomes a frame, so that there are at most 25 in a second."""
    return max(1, round(1 / (MOST_FPS * dt)))


def make(path: Path, library: str, model: mujoco.MjModel, trace: Mapping[str, np.ndarray], dt: float) -> None:
    """Draws an episode in real time into ``path``.

    Args:
        library: of ``find_gl``.
        model: of ``scene.of``.
        trace: as in ``Roll``.
        dt: seconds of a step.

    Raises:
        ConfigError: drawing or encoding fails.
        OSError: the disk refuses.
    """
    every = stride(dt)
    shown = {name: trace[name][::every] for name in ("qpos", "command", "velocity") if name in trace}
    fps = Fraction(1 / (dt * every)).limit_denominator(1000)
    with tempfile.TemporaryDirectory(prefix="strl_jax-") as folder:
        mujoco.mj_saveModel(model, str(Path(folder) / "model.mjb"))
        np.savez(Path(folder) / "trace.npz", fps=[fps.numerator, fps.denominator], **shown)
        done = _run(library, folder)
        if done.returncode:
            raise ConfigError(f"--video: it cannot be drawn: {_last_line(done.stderr)}")
        path.write_bytes((Path(folder) / "out").read_bytes())


def _run(library: str, *arguments: str) -> subprocess.CompletedProcess:
    root = str(Path(__file__).parents[2])
    paths = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"MUJOCO_GL": library, "PYTHONPATH": paths}
    command = [sys.executable, "-m", "strl_jax.viewer.draw", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no message"
