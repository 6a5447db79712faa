"""Reads what ``torch.save`` wrote, without torch and without running what the file asks for."""

import math
import pickle
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

STORAGES = {
    "DoubleStorage": "f8",
    "FloatStorage": "f4",
    "HalfStorage": "f2",
    "LongStorage": "i8",
    "IntStorage": "i4",
    "ShortStorage": "i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "?",
}
OLD = (b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19", b"ustar")  # the two formats before torch 1.6
OLD_AT = (0, 257)


class TorchFileError(ValueError):
    """A torch file that cannot be read or does not fit; a line for each fault."""


def load_torch(path: str | Path) -> dict:
    """The dict in a ``.pt`` file of torch 1.6 or newer.

    Like ``torch.load(weights_only=True)``: only tensors and plain Python values come
    out, and a file that names anything else is refused before it is called.

    Returns:
        Nested dicts and lists of numpy arrays, numbers, strings, bools and None;
        tuples become lists. Tensors are copies in C order.

    Raises:
        TorchFileError: no such file, another format, damaged, or it wants to run
            code; one line.
    """
    path = Path(path)
    try:
        value = _load(path)
    except TorchFileError as error:
        raise TorchFileError(f"{path}: {error}") from None
    except OSError as error:
        raise TorchFileError(f"{path}: cannot be read: {error.strerror or error}") from None
    except Exception as error:  # zipfile and pickle raise anything for a file cut short or with wrong bytes
        text = " ".join(str(error).split())[:200]
        raise TorchFileError(f"{path}: damaged: {text or type(error).__name__}") from error
    if not isinstance(value, dict):
        raise TorchFileError(f"{path}: a checkpoint is a dict; this holds {type(value).__name__}")
    return value


def _load(path: Path) -> Any:
    with open(path, "rb") as file:
        head = file.read(512)
        if any(head.startswith(mark, start) for mark, start in zip(OLD, OLD_AT, strict=True)):
            raise TorchFileError(
                "written in the format of torch before 1.6; load it and save it again with a torch of at least 1.6"
            )
        if not head.startswith(b"PK"):
            raise TorchFileError("no torch checkpoint: it is no zip archive")
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            found = [name for name in names if re.fullmatch(r"[^/]+/data\.pkl", name)]
            if len(found) != 1:
                raise TorchFileError("no torch checkpoint: the zip archive has no data.pkl")
            folder = found[0].removesuffix("data.pkl")
            if folder + "constants.pkl" in names:
                raise TorchFileError("a TorchScript module, not a checkpoint; save its state_dict with torch.save")
            with archive.open(found[0]) as stream:
                return _plain(_Unpickler(stream, archive, folder).load())


class _Dict(dict):
    """Takes the place of ``OrderedDict``; no attribute can be set on it."""

    __slots__ = ()

    def __setstate__(self, state):
        """A state dict's ``_metadata``, which says nothing about the values."""


class _Unpickler(pickle.Unpickler):
    """Makes nothing but tensors and plain values."""

    def __init__(self, stream, archive: zipfile.ZipFile, folder: str):
        super().__init__(stream)
        self._archive, self._folder = archive, folder
        order = folder + "byteorder"
        self._order = ">" if order in archive.namelist() and archive.read(order) == b"big" else "<"
        self._read: dict[str, bytes] = {}

    def find_class(self, module: str, name: str) -> Any:
        """What a name in the file stands for. Raises ``TorchFileError`` for all but a few."""
        if module == "torch" and name in STORAGES:
            return STORAGES[name]
        if (module, name) == ("torch", "BFloat16Storage"):
            raise TorchFileError("it holds bfloat16 tensors; save them as float32, with tensor.float()")
        if (module, name) not in ALLOWED:
            raise TorchFileError(f"refused: it asks for {module}.{name}, which is no tensor and no plain value")
        return ALLOWED[module, name]

    def persistent_load(self, pid: Any) -> np.ndarray:
        """The entries of a storage ``("storage", type, key, device, size)``, one after the other."""
        kind, code, key, _, size = pid
        if kind != "storage" or code not in STORAGES.values():
            raise TorchFileError(f"refused: it asks for {str(kind)[:80]!r}, which is no storage")
        if key not in self._read:
            self._read[key] = self._archive.read(f"{self._folder}data/{key}")
        dtype = np.dtype(code).newbyteorder(self._order)
        return np.frombuffer(self._read[key], dtype, size) if size else np.empty(0, dtype)


class _Rebuild:
    """Stands for torch's function of this purpose; no attribute can be set on it."""

    __slots__ = ()

    def __call__(
        self, storage: np.ndarray, offset: int, size: Sequence[int], stride: Sequence[int], *rest: Any
    ) -> np.ndarray:
        """The tensor of shape ``size`` in ``storage`` from ``offset`` on, with strides in entries."""
        last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
        if min(offset, *size, *stride, 0) < 0 or (0 not in size and last >= len(storage)):
            raise ValueError("a tensor reaches beyond its storage")
        if math.prod(size) > len(storage):
            raise ValueError("a tensor has more entries than its storage")
        steps = [step * storage.itemsize for step in stride]
        view = np.lib.stride_tricks.as_strided(storage[offset:], size, steps, writeable=False)
        return np.array(view, storage.dtype.newbyteorder("="), order="C")


ALLOWED = {
    ("collections", "OrderedDict"): _Dict,
    ("torch", "Size"): tuple,
    ("torch._utils", "_rebuild_tensor_v2"): _Rebuild(),
}


def _plain(value: Any) -> Any:
    """``value`` with plain dicts and lists. Raises ``TorchFileError`` for what is neither that nor a value."""
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, np.ndarray | bool | int | float | str):
        return value
    raise TorchFileError(f"refused: it holds {type(value).__name__}, which is no tensor and no plain value")
