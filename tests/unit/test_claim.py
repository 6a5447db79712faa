"""The Python API and run folders: one writer at a time, deleted folders, kills between two saves."""

import shutil

import jax
import pytest
from commands import Walk, contents, settings

from strl_jax.config import ConfigError, from_dict
from strl_jax.run_folder import run_dir
from strl_jax.run_folder.checkpoints import Checkpointer
from strl_jax.run_folder.errors import CheckpointError
from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.runners.progress import FORMAT, Progress
from strl_jax.sharding import make_mesh

ONE = make_mesh(jax.devices()[:1])


def runner(log_dir, **changed) -> OnPolicyRunner:
    return OnPolicyRunner(Walk(), from_dict(settings("unused", eval_interval=0, **changed))[0], log_dir, mesh=ONE)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of two iterations."""
    made = runner(tmp_path_factory.mktemp("trained") / "run", last_interval=1, save_interval=1)
    made.learn(2)
    made.close()
    return made.log_dir


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def test_a_second_writer_is_refused_and_changes_nothing(run):
    first, second = runner(run), runner(run)
    first.load(run)
    first.learn(1)
    before = contents(run)
    second.load(run)  # reading needs no lock
    with pytest.raises(ConfigError, match=f"^run folder {run}: another process is training in it"):
        second.learn(1)
    with pytest.raises(ConfigError, match="another process is training in it"):
        second.save()
    with pytest.raises(ConfigError, match="another process is training in it"):
        second.open(run)
    assert contents(run) == before
    first.close()
    second.open(run)
    second.load(run)
    second.learn(1)
    assert second.progress.iteration == 4
    second.close()
    with run_dir.locked(run):  # close has unlocked it
        pass


def test_a_run_that_another_program_continued_is_not_overwritten(run):
    """The lock is free again, but the states in memory are old."""
    early = runner(run)
    early.load(run)
    with run_dir.locked(run):
        assert early.evaluation()
    other = runner(run)
    other.load(run)
    other.learn(1)
    other.close()
    before = contents(run)
    with pytest.raises(ConfigError, match=r"up to iteration 3 .*load it to continue"):
        early.learn(1)
    assert contents(run) == before
    early.load(run)
    early.learn(1)
    assert early.progress.iteration == 4
    early.close()


def test_a_new_folder_is_locked_by_learn(tmp_path):
    first, second = runner(tmp_path / "a" / "run"), runner(tmp_path / "a" / "run")
    assert not (tmp_path / "a").exists()
    first.learn(1)
    with pytest.raises(ConfigError, match="another process is training in it"):
        second.learn(1)
    first.close()


@pytest.mark.parametrize("how", ["deleted", "moved", "emptied"])
def test_a_folder_that_is_gone_is_not_made_again(how, run, tmp_path):
    made = runner(run)
    made.load(run)
    made.learn(1)
    if how == "moved":
        run.rename(tmp_path / "moved")
    else:
        shutil.rmtree(run)
    if how == "emptied":
        run.mkdir()
    with pytest.raises(CheckpointError, match=f"{run}: it was deleted or moved"):
        made.learn(1)
    assert not (run / "checkpoints").exists()
    made.close()


def test_a_kill_between_two_saves_loses_no_numbered_checkpoint(run, monkeypatch):
    """The run is killed when the first save after iteration 3 is complete, and is resumed up to iteration 4."""
    saves = []

    def save(checkpointer, kind, iteration, *rest, original=Checkpointer.save, **options):
        saves.append(iteration)
        if saves.count(3) == 2:
            checkpointer.wait()
            raise KeyboardInterrupt
        original(checkpointer, kind, iteration, *rest, **options)

    monkeypatch.setattr(Checkpointer, "save", save)
    made = runner(run, last_interval=1, save_interval=1)
    made.load(run)
    with pytest.raises(KeyboardInterrupt):
        made.learn(2)
    made.close()
    monkeypatch.undo()
    made = runner(run, last_interval=1, save_interval=1)
    made.load(run)
    made.learn(4 - made.progress.iteration)
    made.close()
    assert Checkpointer(run).iterations("numbered") == [1, 2, 3, 4]


def test_progress_of_another_format_is_one_line(run):
    state = Progress(iteration=7, env_steps=9).state()
    assert state["format"] == FORMAT == 1
    without = {name: value for name, value in state.items() if name != "format"}  # as in older checkpoints
    assert Progress.from_state(state).state() == Progress.from_state(without).state() == state
    for changed in ({"format": 2}, {"format": 2, "moons": 3}, {"moons": 3}):
        with pytest.raises(CheckpointError, match=rf"format {changed.get('format', 1)}.* reads format 1") as error:
            Progress.from_state(state | changed)
        assert "moons" in str(error.value) or "moons" not in changed


def test_a_checkpoint_of_another_format_is_named(run, monkeypatch):
    made = runner(run)
    made.load(run)
    newer = made.progress.state() | {"format": 5}
    monkeypatch.setattr(Progress, "state", lambda self: newer)
    made.checkpointer.save("last", 9, {"train": made.train_state, "rollout": made.rollout_state}, _meta(made, newer))
    made.checkpointer.wait()
    made.close()
    again = runner(None)
    with pytest.raises(CheckpointError, match=f"^{run}: the last checkpoint of iteration 9: .*format 5"):
        again.load(run)
    assert again.train_state is None
    again.close()


def _meta(made: OnPolicyRunner, progress: dict) -> dict:
    kind, iteration = made.checkpointer.candidates(("last",))[0]
    return made.checkpointer.read_meta(kind, iteration) | {"progress": progress}
