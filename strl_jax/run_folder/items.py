"""Items of a checkpoint on disk: reading, comparison with a target, checksums."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp
import tensorstore

from strl_jax.run_folder.arrays import checksum, decode, describe, show
from strl_jax.run_folder.errors import CheckpointError, DamagedCheckpointError, UnfitCheckpointError, compare


def check_fits(path: Path, saved: Mapping, target: Mapping) -> None:
    """Compares the parts of a target with a checkpoint.

    Args:
        saved: part -> path -> result of ``arrays.describe``.
        target: part -> path -> array or ``jax.ShapeDtypeStruct``.

    Raises:
        CheckpointError: the checkpoint does not have one of the parts.
        UnfitCheckpointError: paths, shapes or dtypes of a part differ.
    """
    for part in target:
        if part not in saved:
            raise CheckpointError(f"{path}: holds no {part!r}, only {', '.join(saved)}")
    before = {f"{part}/{name}": show(saved[part][name]) for part in target for name in saved[part]}
    wanted = {f"{part}/{name}": show(describe(leaf)) for part, tree in target.items() for name, leaf in tree.items()}
    lines = sorted(compare(before, wanted, "nothing", "saved {}, wanted {}"))
    if lines:
        raise UnfitCheckpointError(path, lines)


def check_readable(path: Path) -> None:
    """Reads every byte of a part once; raises ``DamagedCheckpointError`` if that fails.

    Orbax reports damage too, but with pages of traces from its threads; and with several
    processes, the processes without an error then wait at a barrier.
    """
    for name in ["_METADATA", *(f"array_metadatas/{file.name}" for file in (path / "array_metadatas").glob("*"))]:
        content = read_json(path, name)
        if not isinstance(content, dict) or not content:
            raise DamagedCheckpointError(f"{path}: damaged: {name}: not what was written")
    try:
        store = tensorstore.KvStore.open({"driver": "ocdbt", "base": f"file://{path}/"}).result()
        for read in [store.read(key) for key in store.list().result()]:
            read.result()
    except (OSError, ValueError) as error:
        raise DamagedCheckpointError(f"{path}: damaged: {first_line(error, path)}") from error


def read_json(folder: Path, name: str) -> Any:
    """Content of a JSON file of a checkpoint; a ``DamagedCheckpointError`` names the file."""
    try:
        return json.loads((folder / name).read_text())
    except FileNotFoundError as error:
        raise DamagedCheckpointError(f"{folder}: damaged: {name} is missing") from error
    except OSError as error:
        raise DamagedCheckpointError(f"{folder}: damaged: {name}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DamagedCheckpointError(f"{folder}: damaged: {name}: no JSON: {first_line(error)}") from error


def read_items(path: Path, items: Mapping) -> Mapping:
    """Restores Orbax items; raises ``DamagedCheckpointError`` if that fails."""
    try:
        with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as reader:
            return reader.restore(path, args=ocp.args.Composite(**items))
    except (MemoryError, jax.errors.JaxRuntimeError):
        raise
    except Exception as error:  # Orbax and TensorStore raise all types, bare Exception included
        raise DamagedCheckpointError(f"{path}: damaged: {first_line(error, path)}") from error


def check_values(path: Path, saved: Mapping, restored: Mapping) -> None:
    """Raises ``DamagedCheckpointError`` if the checksum of an array is not the saved one.

    TensorStore reports what it cannot decode, but not a flipped bit in the values.
    """
    for part, arrays in restored.items():
        for name, value in arrays.items():
            saved_checksum = saved[part][name].get("crc32")  # None: see arrays.checksum, or an older version
            if saved_checksum is not None and checksum(value) not in (saved_checksum, None):
                raise DamagedCheckpointError(f"{path}: damaged: {part}/{name} is not what was written")


def rebuild(tree: Any, target: Mapping, restored: Mapping | None, saved: Mapping) -> Any:
    """``tree`` with the restored values. ``target`` is path -> leaf of ``tree``, in its order."""
    restored = restored or {}
    leaves = [decode(restored.get(path), saved[path], leaf) for path, leaf in target.items()]
    return jax.tree.unflatten(jax.tree.structure(tree), leaves)


def first_line(error: BaseException, folder: Path | None = None) -> str:
    """First line of an error's message, at most 200 characters; paths below ``folder`` become relative."""
    text = f"{error} is missing in a file" if isinstance(error, KeyError) else str(error)
    text = text if folder is None else text.replace(f"{folder}/", "")
    lines = text.split(" See full TensorStore details")[0].split(" [source locations")[0].splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]
