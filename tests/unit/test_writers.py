import json
import math
import struct
import sys
from pathlib import Path

import pytest
from tensorboardX.proto.event_pb2 import Event

from strl_jax.config import ConfigError
from strl_jax.run_folder import atomic
from strl_jax.runners.log.writers import JsonlWriter, TensorBoardWriter, WandbWriter, check_writers, make_writers

SCALARS = {"Loss/value_loss": 0.25, "Perf/collection time": 1.5, "Train/mean_reward": math.nan, "Eval/max": math.inf}


class Recorder:
    """A user's writer."""

    def __init__(self, run_dir, config, start_iteration):
        self.arguments = (run_dir, config, start_iteration)
        self.closed = False

    def write(self, iteration, scalars):
        pass

    def close(self):
        self.closed = True


class Failing(Recorder):
    def __init__(self, run_dir, config, start_iteration):
        raise RuntimeError("no connection")


class Halved:
    def write(self, iteration, scalars):
        pass


class Narrow(Recorder):
    def __init__(self, run_dir):
        pass


def records(run_dir: Path) -> list[dict]:
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def events(file: Path) -> list[Event]:
    """Events of one file: uint64 length, its checksum, the event, its checksum, again and again."""
    data, found = file.read_bytes(), []
    while data:
        [length] = struct.unpack("<Q", data[:8])
        found.append(Event.FromString(data[12 : 12 + length]))
        data = data[12 + length + 4 :]
    return found


def scalars_of(event: Event) -> dict[str, float]:
    return {value.tag: value.simple_value for value in event.summary.value}


def test_jsonl_holds_one_object_a_line_and_null_where_not_finite(tmp_path):
    writer = JsonlWriter(tmp_path, 1)
    writer.write(1, SCALARS)
    # Read before closing: every line is flushed.
    assert records(tmp_path) == [
        {
            "iteration": 1,
            "Loss/value_loss": 0.25,
            "Perf/collection time": 1.5,
            "Train/mean_reward": None,
            "Eval/max": None,
        }
    ]
    writer.close()


def test_jsonl_resume_cuts_later_and_half_written_lines(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"iteration": 1, "a": 1.0}\n{"iteration": 2, "a": 2.0}\n{"iteration": 3, "a": 3.0}\n{"iterat')
    writer = JsonlWriter(tmp_path, 3)
    writer.write(3, {"a": 30.0})
    writer.close()
    assert [(record["iteration"], record["a"]) for record in records(tmp_path)] == [(1, 1.0), (2, 2.0), (3, 30.0)]
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_jsonl_resume_after_a_line_without_its_newline(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"iteration": 1, "a": 1.0}')
    writer = JsonlWriter(tmp_path, 2)
    writer.write(2, {"a": 2.0})
    writer.close()
    assert [record["iteration"] for record in records(tmp_path)] == [1, 2]


def test_a_file_that_is_deleted_in_a_run_is_made_again(tmp_path):
    (tmp_path / "config.yaml").touch()
    writer = JsonlWriter(tmp_path, 1)
    writer.write(1, {})
    (tmp_path / "metrics.jsonl").unlink()
    writer.write(2, {})
    assert records(tmp_path) == [{"iteration": 2}]
    for path in tmp_path.iterdir():
        path.unlink()
    tmp_path.rmdir()
    writer.write(3, {})  # the run folder is not made again
    writer.close()
    assert not tmp_path.exists()


def test_a_link_to_the_metrics_stays_a_link(tmp_path):
    other = tmp_path / "elsewhere.jsonl"
    other.write_text('{"iteration": 1}\n{"iteration": 2}\n')
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").symlink_to(other)
    writer = JsonlWriter(tmp_path / "run", 2)
    writer.write(2, {"a": 1.0})
    writer.close()
    assert [json.loads(line) for line in other.read_text().splitlines()] == [
        {"iteration": 1},
        {"iteration": 2, "a": 1.0},
    ]


def test_jsonl_cut_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"iteration": 1}\n{"iteration": 2}\n')

    def full_disk(descriptor):
        raise OSError(28, "no space left")

    monkeypatch.setattr(atomic.os, "fsync", full_disk)
    with pytest.raises(OSError, match=f"no space left: '{path}'"):
        JsonlWriter(tmp_path, 2)
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.jsonl"]
    assert [record["iteration"] for record in records(tmp_path)] == [1, 2]


def test_tensorboard_keeps_names_and_skips_what_is_not_finite(tmp_path):
    writer = TensorBoardWriter(tmp_path, 1)
    writer.write(1, SCALARS)
    writer.write(2, {"Loss/value_loss": 0.5})
    writer.close()
    [file] = tmp_path.glob("events.out.tfevents.*")
    found = [(event.step, scalars_of(event)) for event in events(file) if event.HasField("summary")]
    # 0.25, 1.5 and 0.5 are exact in float32
    assert found == [(1, {"Loss/value_loss": 0.25, "Perf/collection time": 1.5}), (2, {"Loss/value_loss": 0.5})]


def test_tensorboard_resume_hides_later_steps_in_a_new_file(tmp_path):
    for start in (1, 3):
        writer = TensorBoardWriter(tmp_path, start)
        writer.write(start, {"a": float(start)})
        writer.close()
    files = sorted(tmp_path.glob("events.out.tfevents.*"))
    assert len(files) == 2
    [later] = [file for file in files if any(scalars_of(event) == {"a": 3.0} for event in events(file))]
    starts = [event.step for event in events(later) if event.HasField("session_log")]
    assert starts == [3]


def test_jsonl_and_tensorboard_hold_the_same_numbers(tmp_path):
    made = make_writers("tensorboard", tmp_path / "run", {}, 1)
    for writer in made:
        writer.write(1, SCALARS)
        writer.close()
    [record] = records(tmp_path / "run")
    [file] = (tmp_path / "run").glob("events.out.tfevents.*")
    [board] = [scalars_of(event) for event in events(file) if event.HasField("summary")]
    assert {name: value for name, value in record.items() if name != "iteration" and value is not None} == board


@pytest.mark.parametrize("spec", ["none", [], ["none"]])
def test_json_lines_are_always_written(spec, tmp_path):
    [writer] = make_writers(spec, tmp_path / "run", {}, 1)
    writer.close()
    assert isinstance(writer, JsonlWriter)
    assert (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_users_writer_is_created_with_keywords(tmp_path):
    lines = []
    made = make_writers(["tensorboard", f"{__name__}:Recorder", "tensorboard"], tmp_path, {"seed": 7}, 5, lines.append)
    assert lines == [f"{tmp_path}/metrics.jsonl does not exist: there are no metrics of the iterations before 5"]
    for writer in made:
        writer.close()
    assert [type(writer).__name__ for writer in made] == ["JsonlWriter", "TensorBoardWriter", "Recorder"]
    assert made[2].arguments == (tmp_path, {"seed": 7}, 5)


def test_writers_made_before_a_failing_one_are_closed(tmp_path, monkeypatch):
    closed = []
    monkeypatch.setattr(JsonlWriter, "close", lambda self: closed.append(self))
    place = r"\(.*test_writers\.py:\d+\)$"
    expected = rf"^runner\.logger: writer '{__name__}:Failing' did not start: RuntimeError: no connection {place}"
    with pytest.raises(ConfigError, match=expected):
        make_writers(f"{__name__}:Failing", tmp_path, {}, 1)
    assert len(closed) == 1


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("xyz", "writer 'xyz' .*; it must be tensorboard, wandb, none or package.module:Class$"),
        (["none", "tensorboard"], "writers are 'none', 'tensorboard'; 'none' cannot be combined with another"),
        (
            "no_such_package:Class",
            "'no_such_package:Class' cannot be imported: .*No module named 'no_such_package'",
        ),
        (f"{__name__}:Absent", "cannot be imported: .* has no Absent"),
        (f"{__name__}:SCALARS", "writer .* is {.*; it must be a function or a class$"),
        ("builtins:dict", "has no method write and no close"),
        (":Class", "writer ':Class' cannot be imported: .*; it must be .*package.module:Class$"),
        (f"{__name__}:Halved", "has no method close$"),
        (f"{__name__}:Narrow", "must take run_dir, config and start_iteration: got an unexpected keyword"),
    ],
)
def test_bad_specs_give_one_line_and_write_nothing(spec, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        make_writers(spec, tmp_path / "run", {}, 1)
    assert not (tmp_path / "run").exists()


def test_missing_wandb_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(
        ConfigError,
        match=r"^runner\.logger: writer 'wandb' needs the package wandb .*: pip install 'strl_jax\[wandb\]'",
    ):
        check_writers("wandb")
    with pytest.raises(ConfigError, match=r"pip install 'strl_jax\[wandb\]'"):
        WandbWriter(tmp_path, {})


def test_wandb_offline_run_is_recorded_and_resumed_under_its_id(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    ids = []
    for start in (1, 2):
        made = make_writers("wandb", tmp_path, {"seed": 7, "runner": {"wandb_project": "robots"}}, start)
        made[1].write(start, SCALARS)
        for writer in made:
            writer.close()
        ids.append((tmp_path / "wandb_id.txt").read_text().strip())
    assert ids[0] == ids[1] != ""
    recorded = sorted((tmp_path / "wandb").glob(f"offline-run-*/run-{ids[0]}.wandb"))
    assert recorded
    contents = b"".join(file.read_bytes() for file in recorded)
    assert b"Loss/value_loss" in contents
    assert b"\x06robots" in contents  # the project: 6 letters; in the config the name is in quotes
    assert b"Train/mean_reward" not in contents
