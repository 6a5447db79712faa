"""Torch's zip format, written without torch."""

import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np

STORAGES = {"f4": "Float", "f8": "Double", "f2": "Half", "i8": "Long", "i4": "Int", "u1": "Byte", "b1": "Bool"}


def save(path: Path, value, byteorder: str = "little") -> Path:
    """``value`` in torch's zip format."""
    storages = []
    data = b"\x80\x02" + opcodes(value, storages) + b"."
    return archive(path, data, storages, byteorder)


def archive(path: Path, data: bytes, storages=(), byteorder: str = "little") -> Path:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("model/data.pkl", data)
        file.writestr("model/byteorder", byteorder)
        for number, content in enumerate(storages):
            file.writestr(f"model/data/{number}", content)
    return path


def opcodes(value, storages: list[bytes]) -> bytes:
    """Pickle code that leaves ``value`` on the stack; the entries of arrays go to ``storages``."""
    if isinstance(value, np.ndarray):
        storages.append(value.tobytes())
        kind = STORAGES[value.dtype.str[1:]]
        strides = [step // value.itemsize for step in np.empty(value.shape, value.dtype).strides]
        return tensor(kind, len(storages) - 1, value.size, 0, value.shape, strides)
    if isinstance(value, dict):
        start = b"ccollections\nOrderedDict\n)R" if isinstance(value, OrderedDict) else b"}"
        items = b"".join(opcodes(part, storages) for item in value.items() for part in item)
        # a state dict has its modules' versions as an attribute
        end = b"}(" + plain("_metadata") + b"}ub" if isinstance(value, OrderedDict) else b""
        return start + b"(" + items + b"u" + end
    if isinstance(value, list):
        return b"](" + b"".join(opcodes(item, storages) for item in value) + b"e"
    return plain(value)


def tensor(kind: str, key: int, entries: int, offset: int, shape, strides) -> bytes:
    storage = plain("storage") + f"ctorch\n{kind}Storage\n".encode() + plain(str(key)) + plain("cpu") + plain(entries)
    sizes = b"".join(b"(" + b"".join(map(plain, numbers)) + b"t" for numbers in (shape, strides))
    hooks = b"\x89ccollections\nOrderedDict\n)R"
    return b"ctorch._utils\n_rebuild_tensor_v2\n((" + storage + b"tQ" + plain(offset) + sizes + hooks + b"tR"


def plain(value) -> bytes:
    return pickle.dumps(value, 2)[2:-1]
