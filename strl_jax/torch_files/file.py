"""Reader for files of ``torch.save``, which needs no torch and runs no code of the file."""

import math
import pickle
import re
import zipfile
from collections.abc import Callable, Sequence
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
# Bytes that identify the two formats before torch 1.6, legacy pickle and tar, with their offsets in the file.
OLD_FORMATS = {b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19": 0, b"ustar": 257}


class TorchFileError(ValueError):
    """A torch file cannot be read or does not match the policy; one line per fault."""


def all_faults(*imports: Callable[[], Any]) -> list:
    """Runs all imports. Returns their results, or raises one ``TorchFileError`` with the faults of all."""
    results, lines = [], []
    for run in imports:
        try:
            results.append(run())
        except TorchFileError as error:
            lines.append(str(error))
    if lines:
        raise TorchFileError("\n".join(lines))
    return results


def load_torch(path: str | Path) -> dict:
    """Reads the dict in a ``.pt`` file of torch 1.6 or newer.

    As ``torch.load(weights_only=True)``: the file may contain only tensors and plain
    Python values. A file that names any other class or function is rejected, and the
    class or function is not called.

    Returns:
        Nested dicts and lists of numpy arrays, numbers, strings, bools and None;
        tuples become lists. Tensors are copied in C order.

    Raises:
        TorchFileError: the file does not exist, has another format, is damaged, or names a
            class or function that is not allowed; one line.
    """
    path = Path(path)
    try:
        value = _load(path)
    except TorchFileError as error:
        raise TorchFileError(f"{path}: {error}") from None
    except OSError as error:
        raise TorchFileError(f"{path}: cannot be read: {error.strerror or error}") from None
    except Exception as error:  # for a damaged file zipfile and pickle raise exceptions of many types
        text = " ".join(str(error).split())[:200]
        raise TorchFileError(f"{path}: damaged: {text or type(error).__name__}") from error
    if not isinstance(value, dict):
        raise TorchFileError(f"{path}: the file must hold a dict, not {type(value).__name__}")
    return value


def _load(path: Path) -> Any:
    with open(path, "rb") as file:
        head = file.read(512)
        if any(head.startswith(mark, offset) for mark, offset in OLD_FORMATS.items()):
            raise TorchFileError(
                "the format is that of torch before 1.6; load and save the file with torch 1.6 or newer"
            )
        if not head.startswith(b"PK"):
            raise TorchFileError("not a torch checkpoint: the file is not a zip archive")
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            pickles = [name for name in names if re.fullmatch(r"[^/]+/data\.pkl", name)]
            if len(pickles) != 1:
                raise TorchFileError("not a torch checkpoint: the zip archive has no data.pkl")
            folder = pickles[0].removesuffix("data.pkl")
            if folder + "constants.pkl" in names:
                raise TorchFileError("a TorchScript module, not a checkpoint; save its state_dict with torch.save")
            with archive.open(pickles[0]) as stream:
                return _plain(_Unpickler(stream, archive, folder).load())


class _Dict(dict):
    """Used instead of ``OrderedDict``; a file cannot set attributes on it."""

    __slots__ = ()

    def __setstate__(self, state):
        """Ignores the ``_metadata`` of a state dict, which does not change the values."""


class _Unpickler(pickle.Unpickler):
    """Unpickler that creates only tensors and plain values."""

    def __init__(self, stream, archive: zipfile.ZipFile, folder: str):
        super().__init__(stream)
        self._archive, self._folder = archive, folder
        order = folder + "byteorder"
        self._order = ">" if order in archive.namelist() and archive.read(order) == b"big" else "<"
        self._read: dict[str, bytes] = {}

    def find_class(self, module: str, name: str) -> Any:
        """The object for a class or function that the file names.

        Raises:
            TorchFileError: the name is not in ``STORAGES`` or ``ALLOWED``.
        """
        if module == "torch" and name in STORAGES:
            return STORAGES[name]
        if (module, name) == ("torch", "BFloat16Storage"):
            raise TorchFileError("the file holds bfloat16 tensors; save them as float32, with tensor.float()")
        if (module, name) not in ALLOWED:
            raise TorchFileError(f"rejected: the file names {module}.{name}; only tensors and plain values are allowed")
        return ALLOWED[module, name]

    def persistent_load(self, pid: Any) -> np.ndarray:
        """The entries ``[size]`` of the storage ``("storage", type, key, device, size)``.

        Raises:
            TorchFileError: ``pid`` is not a storage.
        """
        kind, code, key, _, size = pid
        if kind != "storage" or code not in STORAGES.values():
            raise TorchFileError(f"rejected: the file refers to {str(kind)[:80]!r}; only storages are allowed")
        if key not in self._read:
            self._read[key] = self._archive.read(f"{self._folder}data/{key}")
        dtype = np.dtype(code).newbyteorder(self._order)
        return np.frombuffer(self._read[key], dtype, size) if size else np.empty(0, dtype)


class _Rebuild:
    """Used instead of ``torch._utils._rebuild_tensor_v2``; a file cannot set attributes on it."""

    __slots__ = ()

    def __call__(
        self, storage: np.ndarray, offset: int, size: Sequence[int], stride: Sequence[int], *rest: Any
    ) -> np.ndarray:
        """A copy of the tensor of shape ``size`` that begins at ``offset`` in ``storage``; strides are in entries.

        Raises:
            ValueError: the tensor does not fit into its storage.
        """
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
    """``value`` with plain dicts and lists.

    Raises:
        TorchFileError: a value of another type.
    """
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, np.ndarray | bool | int | float | str):
        return value
    raise TorchFileError(f"rejected: the file holds {type(value).__name__}; only tensors and plain values are allowed")
