"""Environment of the test processes, set before jax is imported, which reads it once.

Every process has four CPU devices. Nearly all of the suite's time is compilation, so programs are compiled with
XLA's lowest optimisation level, and all processes share one cache of compiled programs, which is kept between runs.
``JAX_COMPILATION_CACHE_DIR`` names another cache folder.
"""

import gc
import importlib.metadata
import os
import signal
from pathlib import Path

FLAGS = ["--xla_force_host_platform_device_count=4", "--xla_backend_optimization_level=0"]
JAXLIB = tuple(map(int, importlib.metadata.version("jaxlib").split(".")[:2]))
if JAXLIB < (0, 11):  # newer ones do not know the flag, and stop
    FLAGS.append("--xla_cpu_use_fusion_emitters=false")  # a third less time to compile
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "strl_jax" / "tests-xla"
CACHE_BYTES = 2**30

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it, and child processes inherit that

os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *FLAGS]).strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")


def pytest_configure(config):
    """Removes the least recently used programs from the default cache, once per session.

    ``jax_compilation_cache_max_size`` does the same, but reads the whole folder whenever it adds a program.
    """
    if hasattr(config, "workerinput") or not CACHE.is_dir():
        return
    kept = 0
    for _, size, path in sorted(((x.st_atime, x.st_size, path) for path, x in _stats(CACHE)), reverse=True):
        kept += size
        if kept > CACHE_BYTES:
            path.unlink(missing_ok=True)


def pytest_collection_finish(session):
    """Makes garbage collection rarer: tracing makes many objects that live, and all modules are imported now."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def pytest_warning_recorded(warning_message):
    """Deletes what a killed process left in the cache; otherwise JAX warns of it in every later session."""
    if "compilation cache" in str(warning_message.message):
        from strl_jax.runners.compilation_cache import repaired  # not before: it imports JAX

        repaired(str(warning_message.message))


def _stats(folder: Path):
    for path in folder.iterdir():
        if path.is_file():
            yield path, path.stat()
