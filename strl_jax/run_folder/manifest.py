"""The record of a checkpoint: the caller's meta, what every leaf is, and a checksum of both."""

import json
import zlib
from collections.abc import Mapping
from typing import Any

from strl_jax.run_folder.errors import CheckpointError


def make(meta: Mapping, leaves: Mapping[str, Mapping[str, Mapping]]) -> dict:
    """The record; later changes of ``meta`` do not reach it.

    Args:
        leaves: part -> path -> what ``leaves.describe`` gives.

    Raises:
        CheckpointError: ``meta`` cannot be written as JSON.
    """
    try:
        copy = json.loads(json.dumps({"meta": meta, "leaves": leaves}))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"meta cannot be written as JSON: {error}") from error
    return {**copy, "crc32": _checksum(copy["meta"], copy["leaves"])}


def check(record: Any) -> None:
    """Whether what was read is a record, as it was written.

    Raises:
        ValueError: it has another form, or another checksum.
    """
    if not isinstance(record, dict) or not isinstance(record.get("meta"), dict):
        raise ValueError("the record has no meta")
    leaves = record.get("leaves")
    if not isinstance(leaves, dict) or not leaves or not all(isinstance(part, dict) for part in leaves.values()):
        raise ValueError("the record names no leaves")
    for part, described in leaves.items():
        for path, about in described.items():
            if not _describes(about):
                raise ValueError(f"the record does not describe {part}/{path}")
    if "crc32" in record and record["crc32"] != _checksum(record["meta"], leaves):
        raise ValueError("the record is not what was written")


def _describes(about: Any) -> bool:
    if not isinstance(about, dict) or not isinstance(about.get("dtype"), str):
        return False
    shape = about.get("shape")
    return isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape)


def _checksum(meta: Mapping, leaves: Mapping) -> int:
    return zlib.crc32(json.dumps([meta, leaves], sort_keys=True).encode())
