"""``--resume``: what does not fit, damage, what is lost or held by another process, and runs that are done."""

import json
import re
import shutil

import pytest
from commands import call, contents, settings, write

from strl_jax import train
from strl_jax.config import load
from strl_jax.run_folder import metrics, run_dir
from strl_jax.run_folder.checkpoints import Checkpointer
from strl_jax.runners.log import writers
from strl_jax.runners.on_policy import OnPolicyRunner


@pytest.fixture
def config(tmp_path):
    return write(tmp_path / "config.yaml", settings(tmp_path / "logs"))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A run folder with a checkpoint of the start."""
    folder = tmp_path_factory.mktemp("saved")
    config, _ = load(write(folder / "config.yaml", settings(folder)))
    runner = OnPolicyRunner(None, config)
    runner.open(run_dir.create(folder / "run", config))
    runner.train_state, runner.rollout_state = runner.fresh_states(False)
    runner.save()
    runner.close()
    return runner.log_dir


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        (
            "policy.actor_hidden_dims=[8]",
            [
                r"the last checkpoint of iteration 0 does not fit: train/\S+: saved \S+, wanted \S+; "
                r"changed settings: policy\.actor_hidden_dims: \[4\] in the checkpoint, \[8\] now$"
            ],
        ),
        (
            "env.num_envs=8",
            [
                r"does not fit: rollout/\S*: saved .*\[4\], wanted .*\[8\]; "
                r"changed settings: env\.num_envs: 4 in the checkpoint, 8 now$"
            ],
        ),
        (
            "env.groups.actor=[position]",
            [r"'actor', component 'goal': shape \(1, 2\) in the checkpoint, absent now"],
        ),
        (
            "env.groups={actor: [goal], critic: [goal]}",
            [r"group 'actor', component 'position'", r"group 'critic', component 'position'"],
        ),
    ],
)
def test_resume_with_what_does_not_fit(override, expected, saved, capsys):
    before = sorted(path for path in saved.rglob("*"))
    code, lines = call(capsys, train.main, "--resume", saved, override)
    assert code == 2
    assert len(lines) == len(expected), lines
    for line, pattern in zip(lines, expected, strict=True):
        assert re.search(f"^error: .*{pattern}", line), line
    assert sorted(path for path in saved.rglob("*")) == before


def damage(run, how: str) -> None:
    checkpoints = run / "checkpoints"
    last = checkpoints / "last" / "0"
    if how == "arrays":
        shutil.rmtree(last / "train")
    elif how == "record":
        (last / "record" / "metadata").write_text("null")
    elif how == "last":
        (checkpoints / "last").rename(checkpoints / "best")
    elif how == "last and numbered":
        shutil.copytree(checkpoints / "last", checkpoints / "numbered")
        (last / "record" / "metadata").write_text("null")
    elif how == "file":
        shutil.rmtree(checkpoints)
        checkpoints.write_text("")


DAMAGE = {
    "arrays": "/checkpoints/last/0: damaged: train/manifest.ocdbt is missing",
    "record": "/checkpoints/last/0: damaged: record/metadata: meta or leaves are missing",
    "last": ": no last checkpoint; existing checkpoints: best 0{way_out}",
    "last and numbered": "/checkpoints/last/0: damaged: record/metadata: meta or leaves are missing{way_out}",
    "file": "/checkpoints: damaged: it is not a folder",
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_run_is_not_started_again(how, saved, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(saved, run)
    damage(run, how)
    before = contents(run)
    code, lines = call(capsys, train.main, "--resume", run, "runner.max_iterations=7")
    kind = "best" if how == "last" else "numbered"
    way_out = f"; --config FILE runner.init_from={run} starts a new run with the {kind} weights"
    assert (code, lines) == (2, [f"error: {run}{DAMAGE[how].format(way_out=way_out)}"])
    assert contents(run) == before


def test_a_run_without_a_readable_checkpoint_is_not_started_again(saved, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(saved, run)
    shutil.copytree(run / "checkpoints/last/0", run / "checkpoints/last/1")
    for record in run.glob("checkpoints/last/*/record/metadata"):
        record.write_text("")
    before = contents(run)
    code, lines = call(capsys, train.main, "--resume", run, "runner.max_iterations=7")
    wrong = "damaged: record/metadata: no JSON: Expecting value: line 1 column 1 (char 0)"
    assert (code, lines) == (
        2,
        [
            f"warning: {run}/checkpoints/last/1: {wrong}; skipped",
            f"error: {run}: none of the 2 checkpoints is readable; the last: checkpoints/last/0: {wrong}",
        ],
    )
    assert contents(run) == before


def reached(run, iteration: int, **intervals) -> None:
    """A run folder like that of a run that was killed after so many iterations, its last line cut short."""
    config, _ = load(write(run.with_suffix(".yaml"), settings(run, **intervals)))
    run_dir.create(run, config)
    lines = [json.dumps({"iteration": number}) for number in range(1, iteration + 1)]
    (run / "metrics.jsonl").write_text("\n".join([*lines, f'{{"iteration": {iteration + 1}']))


@pytest.mark.parametrize("how", ["gone", "empty", "empty kinds"])
def test_a_run_that_lost_its_checkpoints_is_not_started_again(how, tmp_path, capsys):
    run = tmp_path / "run"
    reached(run, 301)
    if how != "gone":
        (run / "checkpoints" / ("last" if how == "empty kinds" else "")).mkdir(parents=True)
    before = contents(run)
    code, lines = call(capsys, train.main, "--resume", run, "runner.max_iterations=7", "runner.last_interval=500")
    expected = (
        f"error: {run}/checkpoints: all checkpoints are missing, but metrics.jsonl has iteration 301, "
        f"which is after the first save; no file was changed; --config {run}/config.yaml starts a new run"
    )
    assert (code, lines) == (2, [expected])
    assert contents(run) == before


@pytest.mark.parametrize(
    ("intervals", "second"),
    [((50, 50), 50), ((500, 500), 500), ((50, 500), 100), ((500, 50), 100), ((2, 3), 3), ((1, 1), 1), ((50, 0), 100)],
)
def test_a_run_that_may_have_been_killed_before_its_first_checkpoint(intervals, second, tmp_path):
    """The second save waits for the first; until it has, a kill may leave neither."""
    for iteration in (second, second + 1):
        run = tmp_path / str(iteration)
        reached(run, iteration, last_interval=intervals[0], save_interval=intervals[1])
        assert metrics.last_saved_iteration(run) == (None if iteration == second else iteration)
    (run / "metrics.jsonl").unlink()
    assert metrics.last_saved_iteration(run) is None


def test_a_kill_after_any_line_leaves_what_may_start_again_or_a_checkpoint(config, tmp_path, monkeypatch):
    """Saves take longer than the iterations here."""
    run, found = tmp_path / "run", []

    def write_line(writer, iteration, scalars, write=writers.JsonlWriter.write):
        write(writer, iteration, scalars)
        found.append((iteration, metrics.last_saved_iteration(run), Checkpointer(run).is_fresh()))

    monkeypatch.setattr(writers.JsonlWriter, "write", write_line)
    settings = ["runner.last_interval=3", "runner.max_iterations=8", "runner.eval_interval=0"]
    assert train.main(["--config", str(config), "--log-dir", str(run), *settings]) == 0
    assert [(iteration, reached) for iteration, reached, _ in found] == [
        (iteration, iteration if iteration > 6 else None) for iteration in range(1, 9)
    ]
    assert [fresh for _, reached, fresh in found if reached is not None] == [False, False]


def test_a_run_that_another_process_trains(saved, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(saved, run)
    before = contents(run)
    with run_dir.locked(run):
        code, lines = call(capsys, train.main, "--resume", run, "runner.max_iterations=7")
    assert (code, lines) == (2, [f"error: run folder {run}: another process is training in it"])
    assert contents(run) == before


def test_metrics_that_cannot_be_written(saved, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(saved, run)
    (run / "metrics.jsonl").mkdir()
    code, lines = call(capsys, train.main, "--resume", run)
    assert (code, lines) == (2, [f"error: {run}/metrics.jsonl: Is a directory"])


def test_a_resume_that_trains_nothing_changes_nothing(config, tmp_path, capsys):
    """Not even to write again what is there: a full disk would lose it."""
    folder = tmp_path / "run"
    assert train.main(["--config", str(config), "--log-dir", str(folder), "runner.max_iterations=2"]) == 0

    def times() -> dict:
        return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.name != ".lock"}

    before = times()
    assert train.main(["--resume", str(folder), "seed=9"]) == 0
    assert "nothing was trained: 2 iterations are done, runner.max_iterations is 2" in capsys.readouterr().err
    assert train.main(["--resume", str(folder), "runner.max_iterations=1"]) == 0
    assert times() == before


@pytest.mark.slow
def test_budgets_that_are_spent(saved, tmp_path, capsys):
    path = tmp_path / "run"
    shutil.copytree(saved, path)
    code = train.main(["--resume", str(path), "runner.max_iterations=2", f"runner.max_env_steps={'9' * 400}"])
    assert (code, capsys.readouterr().err) == (0, "")
    before = (path / "config.yaml").read_text()
    code = train.main(["--resume", str(path), "runner.max_iterations=1"])
    note = "note: nothing was trained: 2 iterations are done, runner.max_iterations is 1\n"
    assert (code, capsys.readouterr().err) == (0, note)
    assert (path / "config.yaml").read_text() == before
    # 2 iterations x 4 steps x 4 environments = 32
    code = train.main(["--resume", str(path), "runner.max_iterations=9", "runner.max_env_steps=32"])
    note = "note: nothing was trained: 32 env steps are done, runner.max_env_steps is 32\n"
    assert (code, capsys.readouterr().err) == (0, note)
