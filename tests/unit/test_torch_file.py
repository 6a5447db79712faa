"""The reader of torch files: formats, dtypes and views; damaged files, and files with code, are refused."""

import os
import pickle
import re
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
from commands import call, settings, write
from torch_checkpoints import STD, checkpoint
from torch_writer import STORAGES, archive, plain, save, tensor

from strl_jax.interop import torch_checkpoint
from strl_jax.torch_files.file import TorchFileError, load_torch


@pytest.fixture
def config(tmp_path):
    return write(tmp_path / "config.yaml", settings(tmp_path / "logs"))


class Evil:
    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


def test_code_is_refused_and_not_run(config, tmp_path, capsys):
    file = archive(tmp_path / "model_1.pt", pickle.dumps({"model_state_dict": Evil(tmp_path / "ran")}, 2))
    code, lines = call(capsys, torch_checkpoint.main, file, "--config", config, "--out", tmp_path / "out")
    assert code == 2
    assert len(lines) == 1
    assert re.search(r"^error: .*model_1\.pt: rejected: the file names (posix|nt)\.system;", lines[0])
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "out").exists()


def cut(path: Path) -> None:
    path.write_bytes(save(path, checkpoint()).read_bytes()[:-200])


def flip(path: Path) -> None:
    content = bytearray(save(path, checkpoint()).read_bytes())
    content[content.find(STD.tobytes())] ^= 1
    path.write_bytes(content)


FILES = {
    "cut off": (cut, "damaged: File is not a zip file"),
    "one bit wrong": (flip, "damaged: Bad CRC-32 for file 'model/data/0'"),
    "text": (lambda path: path.write_text("weights"), "not a torch checkpoint: the file is not a zip archive"),
    "empty": (lambda path: path.touch(), "not a torch checkpoint: the file is not a zip archive"),
    "before torch 1.6": (
        lambda path: path.write_bytes(pickle.dumps(0x1950A86A20F9469CFC6C, 2)),
        "the format is that of torch before 1.6; load and save the file with torch 1.6 or newer",
    ),
    "another zip": (
        lambda path: zipfile.ZipFile(path, "w").writestr("a.txt", "a"),
        "not a torch checkpoint: the zip archive has no data.pkl",
    ),
    "a list": (lambda path: save(path, [1]), "the file must hold a dict, not list"),
    "no pickle": (lambda path: archive(path, b"\x80\x02}"), "damaged: "),
    "itself in itself": (lambda path: archive(path, b"\x80\x02}q\x00(X\x01\x00\x00\x00ah\x00u."), "damaged: "),
    "attributes": (
        lambda path: archive(path, b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nN}X\x01\x00\x00\x00aK\x01s\x86b."),
        "damaged: ",
    ),
    "bfloat16": (
        lambda path: archive(path, b"\x80\x02" + tensor("BFloat16", 0, 1, 0, [1], [1]) + b".", [b"ab"]),
        "the file holds bfloat16 tensors; save them as float32, with tensor.float()",
    ),
    "beyond its storage": (
        lambda path: archive(path, b"\x80\x02" + tensor("Byte", 0, 2, 1, [2], [1]) + b".", [b"ab"]),
        "damaged: a tensor reaches beyond its storage",
    ),
    "more than its storage": (
        lambda path: archive(path, b"\x80\x02" + tensor("Byte", 0, 2, 0, [2**40], [0]) + b".", [b"ab"]),
        "damaged: a tensor has more entries than its storage",
    ),
    "no file": (lambda path: None, "cannot be read: No such file or directory"),
}


@pytest.mark.parametrize("fault", FILES)
def test_file_that_is_not_read(fault, tmp_path):
    make, expected = FILES[fault]
    make(tmp_path / "model_1.pt")
    with pytest.raises(TorchFileError) as caught:
        load_torch(tmp_path / "model_1.pt")
    assert str(caught.value).startswith(f"{tmp_path}/model_1.pt: {expected}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("order", ["little", "big"])
def test_plain_values_and_dtypes(order, tmp_path):
    value = {"a": [1, 2.5, None, True, "text"], 7: OrderedDict(b={"c": -1})}
    arrays = {kind: np.asarray([[1, 0], [3, 1]]).astype(kind) for kind in STORAGES}
    swapped = {kind: array.astype(array.dtype.newbyteorder(">")) for kind, array in arrays.items()}
    found = load_torch(save(tmp_path / "a.pt", value | {"x": arrays if order == "little" else swapped}, order))
    read = found.pop("x")
    assert found == {"a": [1, 2.5, None, True, "text"], 7: {"b": {"c": -1}}}
    assert type(found[7]) is dict
    for kind, array in arrays.items():
        assert read[kind].dtype == kind
        np.testing.assert_array_equal(read[kind], array)


def test_views_of_one_storage(tmp_path):
    # entries 0 to 5; from the second on, with strides 1 and 2: rows [1, 3], [2, 4]
    parts = plain("a") + tensor("Byte", 0, 6, 1, [2, 2], [1, 2]) + plain("b") + tensor("Byte", 0, 6, 5, [], [])
    parts += plain("c") + tensor("Byte", 0, 6, 0, [0, 3], [3, 1])
    found = load_torch(archive(tmp_path / "a.pt", b"\x80\x02}(" + parts + b"u.", [bytes(range(6))]))
    assert found["a"].tolist() == [[1, 3], [2, 4]]
    assert (found["b"].tolist(), found["b"].shape) == (5, ())
    assert found["c"].shape == (0, 3)
