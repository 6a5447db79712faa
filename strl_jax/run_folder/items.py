"""The parts of one checkpoint on disk: read, compared and checked."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp
import tensorstore

from strl_jax.run_folder.arrays import (
    checksum,
    compare,
    decode,
    describe,
)
from strl_jax.run_folder.errors import CheckpointError, DamagedCheckpointError, UnfitCheckpointError

RECORD = "record"


def check_same(path: Path, saved: Mapping, wanted: Mapping) -> None:
    """Raises ``CheckpointError`` if a wanted part is not there or its leaves differ."""
    for part in wanted:
        if part not in saved:
            raise CheckpointError(f"{path}: holds no {part!r}, only {', '.join(saved)}")
    lines = [
        f"{part}/{line}"
        for part, tree in wanted.items()
        for line in compare(saved[part], {name: describe(leaf) for name, leaf in tree.items()})
    ]
    if lines:
        raise UnfitCheckpointError(path, lines)


def check_readable(path: Path) -> None:
    """Reads every byte of a part once; raises ``DamagedCheckpointError``.

    Orbax would notice too, but with pages of traces from its threads, and with
    several processes it would leave the others waiting at a barrier.
    """
    for name in ["_METADATA", *(f"array_metadatas/{file.name}" for file in (path / "array_metadatas").glob("*"))]:
        found = read_json(path, name)
        if not isinstance(found, dict) or not found:
            raise DamagedCheckpointError(f"{path}: damaged: {name}: not what was written")
    try:
        store = tensorstore.KvStore.open({"driver": "ocdbt", "base": f"file://{path}/"}).result()
        for read in [store.read(key) for key in store.list().result()]:
            read.result()
    except (OSError, ValueError) as error:
        raise DamagedCheckpointError(f"{path}: damaged: {first_line(error, path)}") from error


def read_json(folder: Path, name: str) -> Any:
    """What a JSON file of a checkpoint holds; a ``DamagedCheckpointError`` names the file."""
    try:
        return json.loads((folder / name).read_text())
    except FileNotFoundError as error:
        raise DamagedCheckpointError(f"{folder}: damaged: {name} is missing") from error
    except OSError as error:
        raise DamagedCheckpointError(f"{folder}: damaged: {name}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DamagedCheckpointError(f"{folder}: damaged: {name}: no JSON: {first_line(error)}") from error


def read_items(path: Path, items: Mapping) -> Mapping:
    try:
        with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as reader:
            return reader.restore(path, args=ocp.args.Composite(**items))
    except (MemoryError, jax.errors.JaxRuntimeError):
        raise
    except Exception as error:  # Orbax and TensorStore raise anything, bare Exception included
        raise DamagedCheckpointError(f"{path}: damaged: {first_line(error, path)}") from error


def check_values(path: Path, saved: Mapping, restored: Mapping) -> None:
    """Raises ``DamagedCheckpointError`` if an array is not the one that was written.

    TensorStore notices what it cannot decode, not a bit that flipped in the values.
    """
    for part, arrays in restored.items():
        for name, value in arrays.items():
            written = saved[part][name].get("crc32")  # None: of several processes, or older than the checksums
            if written is not None and checksum(value) not in (written, None):
                raise DamagedCheckpointError(f"{path}: damaged: {part}/{name} is not what was written")


def rebuild(tree: Any, wanted: Mapping, restored: Mapping | None, saved: Mapping) -> Any:
    """``tree`` with its leaves (``wanted``, by path) replaced by what was read."""
    restored = restored or {}
    leaves = [decode(restored.get(path), saved[path], leaf) for path, leaf in wanted.items()]
    return jax.tree.unflatten(jax.tree.structure(tree), leaves)


def first_line(error: BaseException, folder: Path | None = None) -> str:
    """What an error says, cut to a line; files in ``folder`` by their names there, which no long path then cuts off."""
    text = f"{error} is missing in a file" if isinstance(error, KeyError) else str(error)
    text = text if folder is None else text.replace(f"{folder}/", "")
    lines = text.split(" See full TensorStore details")[0].split(" [source locations")[0].splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]
