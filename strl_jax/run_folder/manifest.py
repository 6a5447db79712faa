"""Manifest of a checkpoint: the caller's meta, shape and dtype of every array, and a checksum of both."""

import json
import zlib
from collections.abc import Mapping
from pathlib import Path

from strl_jax.run_folder.errors import CheckpointError, DamagedCheckpointError
from strl_jax.run_folder.items import read_json

ITEM = "record"  # name of the manifest among the Orbax items of a checkpoint
FILE = f"{ITEM}/metadata"


def make_manifest(meta: Mapping, leaves: Mapping[str, Mapping[str, Mapping]]) -> dict:
    """The manifest, a copy: later changes of ``meta`` have no effect on it.

    Args:
        leaves: part -> path -> result of ``arrays.describe``.

    Raises:
        CheckpointError: ``meta`` cannot be written as JSON.
    """
    try:
        manifest = json.loads(json.dumps({"meta": meta, "leaves": leaves}))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"meta cannot be written as JSON: {error}") from error
    return {**manifest, "crc32": _checksum(manifest)}


def read_manifest(path: Path) -> dict:
    """The manifest of a checkpoint; raises ``DamagedCheckpointError`` if it, or a file that it implies, is damaged."""
    if not path.is_dir():
        raise DamagedCheckpointError(f"{path}: damaged: it is not a folder")
    manifest = read_json(path, FILE)
    if not isinstance(manifest, dict) or not all(isinstance(manifest.get(key), dict) for key in ("meta", "leaves")):
        raise DamagedCheckpointError(f"{path}: damaged: {FILE}: meta or leaves are missing")
    if manifest.get("crc32") not in (None, _checksum(manifest)):  # None: written by a version without checksums
        raise DamagedCheckpointError(f"{path}: damaged: {FILE}: not what was written")
    parts = [part for part, leaves in manifest["leaves"].items() if not all(0 in v["shape"] for v in leaves.values())]
    for name in ["commit_success.txt", *(f"{part}/manifest.ocdbt" for part in parts)]:
        if not (path / name).is_file():
            raise DamagedCheckpointError(f"{path}: damaged: {name} is missing")
    return manifest


def _checksum(manifest: Mapping) -> int:
    return zlib.crc32(json.dumps([manifest["meta"], manifest["leaves"]], sort_keys=True).encode())
