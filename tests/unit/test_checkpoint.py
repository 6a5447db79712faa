"""Checkpoints: what comes back, what is kept, what a kill or damage leaves."""

import json
import shutil
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from saved_states import ENVS, assert_same, both, raw, restored, shapes_of, train_state

from strl_jax.run_folder.checkpoints import Checkpointer
from strl_jax.run_folder.errors import CheckpointError, DamagedCheckpointError, MissingCheckpointError
from strl_jax.types import EnvState


def mesh_of(count: int) -> Mesh:
    return Mesh(np.asarray(jax.devices()[:count]), ("env",))


def place(state: dict, mesh: Mesh) -> dict:
    return {
        "train": jax.device_put(state["train"], NamedSharding(mesh, P())),
        "rollout": jax.device_put(state["rollout"], NamedSharding(mesh, P("env"))),
    }


@pytest.fixture
def checkpointer(tmp_path):
    made = Checkpointer(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def saved_run(tmp_path_factory) -> Path:
    """A run with ``last`` 10 and 20; copy it before damaging it."""
    run_dir = tmp_path_factory.mktemp("run")
    made = Checkpointer(run_dir)
    for iteration in (10, 20):
        made.save("last", iteration, both(iteration), {"at": iteration})
    made.close()
    return run_dir


@pytest.fixture
def run_copy(saved_run, tmp_path) -> Path:
    """A path so long that an error which repeats it has no room left for more."""
    path = tmp_path / ("run" * 70)
    shutil.copytree(saved_run, path)
    return path


def test_everything_comes_back_bit_for_bit_with_its_types(checkpointer):
    state = both()
    checkpointer.save("last", 3, state, {})
    restored = checkpointer.restore("last", 3, shapes_of(state))
    assert_same(restored, state)
    assert isinstance(restored["rollout"].env.env, EnvState)
    assert isinstance(restored["train"].opt_state["policy"], tuple)
    draw = jax.random.normal(restored["rollout"].key[1])
    assert draw == jax.random.normal(state["rollout"].key[1])


def test_other_key_implementations_numbers_and_numpy(checkpointer):
    state = {"train": {"key": jax.random.key(3, impl="rbg"), "count": 2**40, "flag": True, "host": np.float64(1) / 3}}
    checkpointer.save("last", 0, state, {})
    restored = checkpointer.restore("last", 0, state)["train"]
    assert restored["count"] == 2**40
    assert restored["flag"] is True
    assert restored["host"].dtype == np.float64
    assert restored["host"] == np.float64(1) / 3
    assert raw(restored["key"]) == raw(state["train"]["key"])
    with pytest.raises(CheckpointError, match=r"train/key: saved key<rbg>\[\], wanted key<fry>\[\]"):
        checkpointer.restore("last", 0, {"train": state["train"] | {"key": jax.random.key(0)}})


def test_a_part_can_be_restored_alone(checkpointer):
    state = both()
    checkpointer.save("last", 1, state, {})
    checkpointer.save("numbered", 1, {"train": state["train"]}, {})
    for kind in ("last", "numbered"):
        assert_same(checkpointer.restore(kind, 1, {"train": shapes_of(state["train"])}), {"train": state["train"]})
    with pytest.raises(CheckpointError, match="holds no 'rollout', only train"):
        checkpointer.restore("numbered", 1, shapes_of(state))


def test_a_part_without_any_entry(checkpointer):
    state = {"train": train_state(), "rollout": {"contact": jnp.zeros((ENVS, 0)), "carry": {}}}
    checkpointer.save("last", 1, state, {})
    assert checkpointer.iterations("last") == []  # still being written, or not
    checkpointer.wait()
    assert checkpointer.iterations("last") == [1]
    assert_same(checkpointer.restore("last", 1, shapes_of(state)), state)


def test_meta_comes_back_exactly(checkpointer):
    meta = {"x": [0.1, 1 / 3, 5e-324, -0.0, 2**70, None, True], "nan": float("nan"), "inf": float("-inf"), "é": "\n"}
    checkpointer.save("best", 2, {"train": train_state()}, meta)
    meta["x"].append("changed after the call")
    checkpointer.wait()
    read = checkpointer.read_meta("best", 2)
    assert np.isnan(read.pop("nan"))
    assert repr(read) == repr({"x": [0.1, 1 / 3, 5e-324, -0.0, 2**70, None, True], "inf": float("-inf"), "é": "\n"})
    with pytest.raises(CheckpointError, match="meta cannot be written as JSON"):
        checkpointer.save("best", 3, {"train": train_state()}, {"x": np.float32(1)})


def test_what_is_kept(checkpointer):
    for iteration in (5, 10, 100, 105):  # not in the order of their names
        for kind in ("last", "numbered", "best"):
            checkpointer.save(kind, iteration, {"train": {"x": jnp.int32(iteration)}}, {})
    checkpointer.wait()
    assert checkpointer.iterations("last") == [100, 105]
    assert checkpointer.iterations("numbered") == [5, 10, 100, 105]
    assert checkpointer.iterations("best") == [105]
    assert [checkpointer.latest(kind) for kind in ("last", "best")] == [105, 105]


def test_saving_the_same_iteration_again_changes_nothing(run_copy):
    run = Checkpointer(run_copy)
    run.restore("last", 20, {"train": train_state()})
    run.save("last", 20, both(99), {"at": "again"})
    run.save("last", 30, both(30), {"at": 30})
    run.save("last", 30, both(99), {"at": "again"})
    run.close()
    assert [run.read_meta("last", i)["at"] for i in run.iterations("last")] == [20, 30]


def test_a_run_that_went_back_leaves_the_later_ones_behind(run_copy):
    run = Checkpointer(run_copy)
    run.restore("last", 10, {"train": train_state()})
    run.save("last", 15, both(15), {"at": 15})
    run.wait()
    assert run.iterations("last") == [10, 15]  # not 20: it is no longer the future of this run
    run.save("last", 20, both(21), {"at": "second time"})
    run.close()
    assert run.iterations("last") == [15, 20]
    assert run.read_meta("last", 20) == {"at": "second time"}


def test_an_iteration_of_an_earlier_run_is_replaced(run_copy):
    run = Checkpointer(run_copy)
    run.restore("last", 10, {"train": train_state()})
    run.save("last", 20, both(21), {"at": "second time"})
    run.close()
    assert run.iterations("last") == [10, 20]
    assert run.read_meta("last", 20) == {"at": "second time"}
    assert run.restore("last", 20, both())["train"].iteration == 21


def test_donation_after_the_call_does_not_reach_the_file(checkpointer):
    update = jax.jit(lambda tree: jax.tree.map(lambda x: x + 1, tree), donate_argnums=0)
    state = {"w": jnp.zeros((512, 512)), "i": jnp.int32(0)}
    other = jax.tree.map(jnp.copy, state)
    update(other)
    assert other["w"].is_deleted()  # the program does take over its argument, and is compiled now
    checkpointer.save("last", 0, {"train": state}, {})
    for _ in range(20):
        state = update(state)
    assert float(state["w"][0, 0]) == 20.0
    restored = checkpointer.restore("last", 0, {"train": shapes_of(state)})["train"]
    assert float(jnp.abs(restored["w"]).max()) == 0.0
    assert int(restored["i"]) == 0


@pytest.mark.parametrize(("before", "after"), [(2, 2), (2, 1), (1, 2), (2, 4)])
def test_arrays_take_the_shardings_of_the_target(checkpointer, before, after):
    checkpointer.save("last", 0, place(both(), mesh_of(before)), {})
    target = place(both(5), mesh_of(after))
    restored = checkpointer.restore("last", 0, shapes_of(target))
    assert_same(restored, both())
    for got, wanted in zip(jax.tree.leaves(restored), jax.tree.leaves(target), strict=True):
        assert got.sharding == wanted.sharding
    assert len(restored["rollout"].key.sharding.device_set) == after


def test_a_target_of_another_shape_is_named(run_copy):
    run = Checkpointer(run_copy)
    with pytest.raises(CheckpointError) as caught:
        run.restore("last", 20, {"train": train_state(width=4)})
    message = str(caught.value)
    assert "train/params/policy/params/kernel: saved float32[2,3], wanted float32[2,4]" in message
    assert "train/params/policy/params/log_std: saved float32[3], wanted float32[4]" in message
    assert "\n" not in message
    other = train_state().replace(learning_rate={"rnd": jnp.float32(0)}, iteration=jnp.float32(0))
    with pytest.raises(CheckpointError) as caught:
        restored(run, {"train": other})  # another tree is no damage: nothing is passed over
    assert "train/iteration: saved int32[], wanted float32[]" in str(caught.value)
    assert "train/learning_rate/policy: saved float32[], wanted nothing" in str(caught.value)
    assert "train/learning_rate/rnd: saved nothing, wanted float32[]" in str(caught.value)


def test_an_error_names_five_leaves_at_most(run_copy):
    with pytest.raises(CheckpointError, match=r"train/b4: .*; and \d+ more$"):
        Checkpointer(run_copy).restore("last", 20, {"train": {f"b{i}": jnp.zeros(1) for i in range(9)}})


def test_what_is_not_there(checkpointer, run_copy):
    assert checkpointer.iterations("last") == []
    assert checkpointer.latest("best") is None
    with pytest.raises(CheckpointError, match=r"no last checkpoint; existing checkpoints: none$"):
        checkpointer.candidates(("last",))
    with pytest.raises(CheckpointError, match="no such checkpoint; there are: 10, 20"):
        Checkpointer(run_copy).restore("last", 15, {"train": train_state()})
    with pytest.raises(CheckpointError, match="unknown kind of checkpoint 'newest'; known: best, last, numbered"):
        checkpointer.latest("newest")


def test_which_checkpoints_are_meant(tmp_path):
    for folder in ("best/3", "best/7", "last/8", "last/9", "numbered/5"):
        (tmp_path / "checkpoints" / folder).mkdir(parents=True)
    run = Checkpointer(tmp_path)
    assert run.candidates() == [("best", 7), ("best", 3), ("last", 9), ("last", 8), ("numbered", 5)]
    assert run.candidates(("numbered", "last")) == [("numbered", 5), ("last", 9), ("last", 8)]
    assert run.candidates(iteration=8) == [("last", 8)]
    there = "existing checkpoints: best 3, 7; last 8, 9; numbered 5$"
    with pytest.raises(CheckpointError, match=f"{tmp_path}: no best checkpoint of iteration 5; {there}"):
        run.candidates(("best",), 5)
    with pytest.raises(CheckpointError, match=f"no checkpoint of iteration 6; {there}"):
        run.candidates(iteration=6)
    with pytest.raises(CheckpointError, match=f"{tmp_path}/absent: there is no such folder$"):
        Checkpointer(tmp_path / "absent").candidates()


def damage_files(step: Path) -> list[Path]:
    """Files without which the training state cannot be read."""
    data = max((step / "train").rglob("d/*"), key=lambda file: file.stat().st_size)
    return [step / "record/metadata", step / "train/manifest.ocdbt", step / "train/_METADATA", data]


@pytest.mark.parametrize("how", ["missing", "short", "empty"])
@pytest.mark.parametrize("which", range(4))
def test_a_damaged_checkpoint_is_passed_over(run_copy, which, how):
    step = run_copy / "checkpoints/last/20"
    file = damage_files(step)[which]
    content = file.read_bytes()
    file.unlink()
    if how != "missing":
        file.write_bytes(content[: len(content) // 2 if how == "short" else 0])
    run = Checkpointer(run_copy)
    with pytest.raises(DamagedCheckpointError, match=r"last/20.*damaged") as caught:
        run.restore("last", 20, both())
    assert file.name in str(caught.value)
    with pytest.warns(UserWarning, match=r"last/20.*skipped"):
        iteration, state, meta = restored(run, shapes_of(both()))
    assert (iteration, meta) == (10, {"at": 10})
    assert_same(state, both(10))
    run.save("last", 15, both(15), {"at": 15})
    run.save("last", 20, both(20), {"at": "whole again"})
    run.close()
    assert run.iterations("last") == [15, 20]
    assert restored(run, both())[2] == {"at": "whole again"}


@pytest.mark.parametrize("text", ["", "{", "null", "{}"])
@pytest.mark.parametrize("name", ["_METADATA", "array_metadatas/process_0"])
def test_what_orbax_cannot_use_is_named(run_copy, name, text):
    step = run_copy / "checkpoints/last/20"
    (step / "train" / name).write_text(text)
    what = "not what was written" if text in ("null", "{}") else r"no JSON: .*line 1 column"
    with pytest.raises(DamagedCheckpointError, match=f"^{step}/train: damaged: {name}: {what}"):
        Checkpointer(run_copy).restore("last", 20, both())


def test_a_flipped_bit_is_damage(tmp_path):
    """In any byte: either it is refused, or nothing that comes back differs."""
    state = {"train": {"w": jax.random.normal(jax.random.key(0), (300,))}}
    run = Checkpointer(tmp_path)
    run.save("last", 1, state, {})
    run.close()
    data = max((tmp_path / "checkpoints/last/1/train").rglob("d/*"), key=lambda file: file.stat().st_size)
    content = data.read_bytes()
    refused = []
    for place in range(0, len(content), len(content) // 40):
        data.write_bytes(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])
        try:
            assert_same(run.restore("last", 1, state), state)
        except DamagedCheckpointError as error:
            refused.append(str(error))
    # 1200 bytes of values in a file of about 2000: every other flip hits them, and no code of TensorStore's notices.
    assert sum("train/w is not what was written" in line for line in refused) > 10


def spoil(record: dict, how: str):
    """A record of another form than the one written."""
    if how in ("null", "[]", '"text"', "3"):
        return json.loads(how)
    if how in ("meta", "leaves"):
        return record | {how: {}}
    if how == "no leaves":
        return {"meta": record["meta"]}
    if how == "other meta":
        return record | {"meta": {"at": 7}}
    part = dict(record["leaves"]["train"])
    wrong = {"about": [1], "shape": {"shape": "three", "dtype": "float32"}, "dtype": {"shape": []}}
    part[next(iter(part))] = wrong[how]
    return record | {"leaves": record["leaves"] | {"train": part}}


FORMS = ["null", "[]", '"text"', "3", "meta", "leaves", "no leaves", "other meta", "about", "shape", "dtype"]


@pytest.mark.parametrize("how", FORMS)
def test_a_record_of_another_form_is_damage(run_copy, how):
    file = run_copy / "checkpoints/last/20/record/metadata"
    file.write_text(json.dumps(spoil(json.loads(file.read_text()), how)))
    run = Checkpointer(run_copy)
    with pytest.raises(DamagedCheckpointError, match=r"last/20: damaged: record/metadata: (meta or leaves|not what)"):
        run.read_meta("last", 20)
    assert run.latest("last") == 10


def test_a_record_without_a_checksum_is_read(run_copy):
    """Those of the first versions have none."""
    file = run_copy / "checkpoints/last/20/record/metadata"
    record = json.loads(file.read_text())
    del record["crc32"]
    file.write_text(json.dumps(record))
    assert Checkpointer(run_copy).read_meta("last", 20) == {"at": 20}


def test_fresh_is_where_nothing_was_ever_saved(run_copy, tmp_path):
    assert Checkpointer(tmp_path / "nothing").is_fresh()
    checkpoints = run_copy / "checkpoints"
    for file in checkpoints.glob("last/*/record/metadata"):
        file.unlink()  # all damaged
    assert not Checkpointer(run_copy).is_fresh()
    (checkpoints / "last").rename(checkpoints / "best")
    assert not Checkpointer(run_copy).is_fresh()
    shutil.rmtree(checkpoints / "best")
    (checkpoints / "last" / "10.orbax-checkpoint-tmp").mkdir(parents=True)  # killed while it saved for the first time
    assert Checkpointer(run_copy).is_fresh()
    for path in (checkpoints / "numbered", checkpoints):
        if path.exists():
            shutil.rmtree(path)
        path.write_text("")
        with pytest.raises(CheckpointError, match=f"{path}: damaged: it is not a folder"):
            Checkpointer(run_copy).is_fresh()


def test_all_damaged(run_copy):
    for file in (run_copy / "checkpoints/last").glob("*/record/metadata"):
        file.unlink()
    run = Checkpointer(run_copy)
    assert run.iterations("last") == []
    wrong = "damaged: record/metadata is missing"
    expected = f"^{run_copy}: none of the 2 checkpoints is readable; the last: checkpoints/last/10: {wrong}$"
    with (
        pytest.warns(UserWarning, match=f"^{run_copy}/checkpoints/last/20: {wrong}; skipped$"),
        pytest.raises(DamagedCheckpointError, match=expected),
    ):
        restored(run, both())
    with pytest.raises(DamagedCheckpointError, match=f"^{run_copy}/checkpoints/last/10: {wrong}$"):
        run.read_first_intact([("last", 10)], run.read_meta)


def test_a_checkpoint_that_a_training_has_deleted_meanwhile(run_copy):
    """The next one is taken, in silence; if none is left it is one line."""
    run = Checkpointer(run_copy)
    chosen = run.candidates(("last",))
    assert chosen == [("last", 20), ("last", 10)]
    shutil.rmtree(run_copy / "checkpoints/last/20")
    assert run.read_first_intact(chosen, run.read_meta)[:2] == ("last", 10)
    shutil.rmtree(run_copy / "checkpoints/last/10")
    with pytest.raises(MissingCheckpointError, match=r"last/10: no such checkpoint; there are: none$"):
        run.read_first_intact(chosen, run.read_meta)


def test_a_file_in_a_checkpoints_place_is_damage(run_copy):
    place = run_copy / "checkpoints/last/20"
    shutil.rmtree(place)
    place.write_text("")
    run = Checkpointer(run_copy)
    assert run.iterations("last") == [10]
    with pytest.warns(UserWarning, match=r"last/20: damaged: it is not a folder; skipped"):
        assert restored(run, both())[0] == 10
    with pytest.raises(CheckpointError, match="no such checkpoint; there are: 10, 20"):
        run.read_meta("last", 15)


def test_what_a_kill_leaves_is_not_offered_and_goes_with_the_next_save(run_copy):
    last = run_copy / "checkpoints/last"
    leftover = last / "30.orbax-checkpoint-tmp"
    shutil.copytree(last / "20", leftover)
    (leftover / "commit_success.txt").unlink()
    shutil.copytree(last / "20", last / "5")  # its deletion was cut short
    (last / "5/commit_success.txt").unlink()
    run = Checkpointer(run_copy)
    assert run.iterations("last") == [10, 20]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert restored(run, both())[0] == 20
    assert leftover.exists()  # reading changes nothing: the writer may still be alive
    run.save("last", 30, both(30), {})
    run.close()
    assert run.iterations("last") == [20, 30]
    assert not leftover.exists()


def test_a_disk_that_refuses_gives_one_line_and_may_recover(run_copy):
    run = Checkpointer(run_copy)
    run.save("last", 30, both(30), {})
    run.wait()
    folder = run_copy / "checkpoints/last"
    folder.rename(run_copy / "aside")
    folder.write_text("a file in the way")
    with pytest.raises(CheckpointError, match="last: saving failed: ") as caught:
        run.save("last", 40, both(40), {})
    assert "\n" not in str(caught.value)
    folder.unlink()
    (run_copy / "aside").rename(folder)
    run.save("last", 40, both(40), {})
    run.close()
    assert run.iterations("last") == [30, 40]
