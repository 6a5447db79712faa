"""``metrics.jsonl`` with damaged lines: they are reported, and no valid record is lost."""

import json
from pathlib import Path

import pytest

from strl_jax.run_folder import metrics
from strl_jax.runners.log.writers import JsonlWriter


def records(run_dir: Path) -> list[dict]:
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


DEEP = '{"iteration": 2, "a": ' + "[" * 100_000
DAMAGED = {
    "two joined": ('{"iteration": 2, "a": 2.0}{"iteration": 3, "a": 3.0}', [2, 3], "line 2 (2 records kept)"),
    "half and whole": ('{"iteration": 2, "a"{"iteration": 3, "a": 3.0}', [3], "line 2 (1 record kept)"),
    "infinite value": ('{"iteration": 2, "a": Infinity}', [2], "line 2 (1 record kept)"),
    "infinite iteration": ('{"iteration": Infinity}', [], "line 2 (removed)"),
    "huge iteration": ('{"iteration": ' + "9" * 5000 + "}", [], "line 2 (removed)"),
    "deep": (DEEP, [], "line 2 (removed)"),
    "no number": ('{"iteration": "2"}', [], "line 2 (removed)"),
    "truth": ('{"iteration": true}', [], "line 2 (removed)"),
    "list": ("[2]", [], "line 2 (removed)"),
    "empty": ("", [], "line 2 (removed)"),
    "zeros": ("\0\0\0" + '{"iteration": 2}', [2], "line 2 (1 record kept)"),
    "bytes": ('{"iteration": 2, "\udcff": 1.0}', [], "line 2 (removed)"),
}


@pytest.mark.parametrize("how", DAMAGED)
def test_damaged_lines_are_reported_and_valid_ones_kept(how, tmp_path):
    """As if line 2 of 4 was damaged; the run is continued from iteration 6."""
    damaged, kept, report = DAMAGED[how]
    path, lines = tmp_path / "metrics.jsonl", []
    text = "\n".join(['{"iteration": 1, "a": 1.0}', damaged, '{"iteration": 5, "a": 5.0}', '{"iteration": 6}', '{"it'])
    path.write_bytes(text.encode(errors="surrogateescape"))
    JsonlWriter(tmp_path, 6, lines.append).close()
    assert [record["iteration"] for record in records(tmp_path)] == [1, *kept, 5]
    assert lines == [f"{path}: damaged: {report}"]
    assert metrics.cut(path, 6) == []  # nothing is left to report


def test_records_of_a_damaged_line_are_cut_too(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"iteration": 1}{"iteration": 2}\n')
    JsonlWriter(tmp_path, 2, lambda line: None).close()
    assert records(tmp_path) == [{"iteration": 1}]


def test_infinity_in_a_line_becomes_null(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"iteration": 1, "a": -Infinity, "b": NaN, "c": 1e999, "d": 2.5}\n')
    JsonlWriter(tmp_path, 2, lambda line: None).close()
    assert records(tmp_path) == [{"iteration": 1, "a": None, "b": None, "c": None, "d": 2.5}]


def test_a_missing_file_is_reported_if_the_run_had_iterations(tmp_path):
    lines = []
    (tmp_path / "new").mkdir()
    JsonlWriter(tmp_path / "new", 1, lines.append).close()
    assert lines == []
    JsonlWriter(tmp_path, 8, lines.append).close()
    assert lines == [f"{tmp_path}/metrics.jsonl does not exist: there are no metrics of the iterations before 8"]
