"""The best checkpoint by any result of the evaluations, evaluation after a load, and hours of training."""

import jax
import pytest
from commands import log, settings, untimed, write

from strl_jax import train
from strl_jax.config import from_dict
from strl_jax.runners.duties.evaluation import IntervalEvaluation
from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.runners.progress import Progress
from strl_jax.sharding import make_mesh

ERROR = "Eval/metric/tracking_error"


def make_runner(folder, mesh=None, **runner):
    config = settings(folder, **({"eval_interval": 1, "last_interval": 1} | runner))
    return OnPolicyRunner(None, from_dict(config)[0], folder, mesh=mesh or make_mesh(jax.devices()[:1]))


def best_iteration(rows, name, direction):
    sign = 1 if direction == "max" else -1
    return max((sign * row[name], -row["iteration"]) for row in rows)[1] * -1


@pytest.mark.parametrize(("name", "direction"), [(ERROR, "min"), (ERROR, "max"), ("Eval/mean_return", "min")])
def test_the_best_checkpoint_by_another_result(tmp_path, name, direction):
    runner = make_runner(tmp_path, best_metric=name, best_direction=direction)
    runner.learn(4)
    rows = log(tmp_path)
    best = best_iteration(rows, name, direction)
    assert runner.checkpointer.iterations("best") == [best]
    assert runner.progress.best_score == rows[best - 1][name]
    runner.close()


def test_a_resume_with_another_metric_starts_its_comparison_anew():
    """The stored score of a record without a metric is the mean return, as in older runs."""
    state = Progress(iteration=4, best_score=7.0).state()
    del state["best_by"]
    progress, saved = Progress.from_state(state), []

    def duty(progress, **options):
        return IntervalEvaluation(
            lambda _: {"Eval/mean_return": 1.0, ERROR: 9.0}, progress, 2, 9, saved.append, **options
        )

    duty(progress).run("a")
    assert (saved, progress.best_score) == ([], 7.0)
    duty(progress, best_metric=ERROR, best_direction="min").run("b")
    assert (saved, progress.best_score) == (["b"], 9.0)
    again = Progress.from_state(progress.state())
    duty(again, best_metric=ERROR, best_direction="min").run("c")
    assert (saved, again.best_score) == (["b"], 9.0)


def test_a_result_that_no_evaluation_has_is_an_error_before_the_training(tmp_path, capsys):
    config = write(tmp_path / "c.yaml", settings(tmp_path, eval_interval=1, best_metric="Eval/metric/tracking_eror"))
    assert train.main(["--config", str(config), "--log-dir", str(tmp_path / "run")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: runner.best_metric: ")
    assert "nearest is Eval/metric/tracking_error" in line
    assert not (tmp_path / "run").exists()


def test_evaluation_after_a_load(tmp_path, capsys):
    """Of the loaded policy, in the row of the first iteration; a row with its own evaluation keeps that one."""
    first = make_runner(tmp_path / "run", eval_interval=2)
    first.learn(2)
    first.close()
    rows = log(tmp_path / "run")
    loaded = {name: value for name, value in rows[1].items() if name.startswith("Eval/")}
    capsys.readouterr()

    again = make_runner(tmp_path / "run", eval_interval=4, eval_after_load=True, log_interval=4)
    again.load(tmp_path / "run")
    again.learn(2)
    again.close()
    after = log(tmp_path / "run")[2:]
    assert [row["iteration"] for row in after] == [3, 4]
    assert loaded.items() <= after[0].items()  # the same policy and key: equal results
    assert after[1]["Eval/mean_return"] != loaded["Eval/mean_return"]
    assert "evaluation of the loaded policy: return" in capsys.readouterr().out

    # A new run that starts with that policy: its key is that of iteration 0.
    new = make_runner(tmp_path / "new", eval_interval=0, eval_after_load=True, init_from=str(tmp_path / "run"))
    new.learn(2)
    assert [any(name.startswith("Eval/") for name in row) for row in log(tmp_path / "new")] == [True, False]
    assert new.checkpointer.iterations("best") == [0]
    new.learn(1)  # the policy is not a loaded one any more
    assert not any(name.startswith("Eval/") for name in log(tmp_path / "new")[-1])
    new.close()


def test_an_evaluation_after_a_load_changes_no_number_of_the_training(tmp_path):
    first = make_runner(tmp_path / "run", eval_interval=0)
    first.learn(1)
    first.close()
    rows = []
    for name, after_load in (("plain", False), ("evaluated", True)):
        runner = make_runner(tmp_path / name, eval_interval=0, eval_after_load=after_load)
        runner.load(tmp_path / "run")
        runner.learn(2)
        runner.close()
        lines = untimed(log(tmp_path / name))
        rows.append([{key: value for key, value in line.items() if not key.startswith("Eval/")} for line in lines])
    assert rows[0] == rows[1]


def test_no_evaluation_without_a_load(tmp_path):
    runner = make_runner(tmp_path, eval_interval=0, eval_after_load=True)
    runner.learn(1)
    runner.close()
    assert not any(name.startswith("Eval/") for name in log(tmp_path)[0])


def test_hours_of_training_are_those_of_all_sessions(tmp_path):
    first = make_runner(tmp_path, eval_interval=0)
    first.learn(2)
    first.close()
    again = make_runner(tmp_path, eval_interval=0)
    again.load(tmp_path)
    assert again.progress.seconds == log(tmp_path)[1]["Train/wall_clock"]
    again.progress.seconds = 7200.0  # as if it had taken two hours
    again.learn(1)
    again.close()
    hours = [row["Perf/training_hours"] for row in log(tmp_path)]
    assert 0 < hours[0] < hours[1] < 0.5
    assert 2 < hours[2] < 2.5
    assert hours[2] == log(tmp_path)[2]["Train/wall_clock"] / 3600
