"""Repair of JAX's cache of compiled programs.

JAX does not write its entries atomically: a killed process leaves a part of a file. JAX then warns in every later run,
and does not replace the entry.
"""

import contextlib
import glob
import re
from pathlib import Path

import jax

DAMAGED = re.compile("Error reading persistent compilation cache entry for '([^']+)'")  # JAX's warning


def repaired(message: str) -> str:
    """Deletes the entries of the program that a warning of JAX names, so that JAX writes them again.

    Args:
        message: text of any Python warning.

    Returns:
        What to print instead of the warning; ``message`` if it is another warning.
    """
    match, folder = DAMAGED.match(message), jax.config.jax_compilation_cache_dir
    if match is None or folder is None:
        return message
    name, deleted = match[1], False
    for path in Path(folder).glob(f"{glob.escape(name)}-*"):
        with contextlib.suppress(OSError):
            path.unlink()
            deleted = True
    if not deleted:  # another error, such as a folder that cannot be read
        return message
    return f"{folder}: the cached program {name} is damaged, as after a kill; it is deleted and compiled again"
