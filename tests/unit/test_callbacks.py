"""Callbacks: their order in a session that ends, is stopped or fails, and what they can read and change."""

import os
import signal
import time

import jax
import jax.numpy as jnp
import pytest
from commands import Walk, fails, log, same, settings, write

from strl_jax import train
from strl_jax.config import ConfigError
from strl_jax.runners.callbacks import Callback
from strl_jax.runners.on_policy import OnPolicyRunner
from strl_jax.sharding import make_mesh

ONE = make_mesh(jax.devices()[:1])
METHODS = [name for name in vars(Callback) if not name.startswith("_")]


class Recorder(Callback):
    """Records (method, iterations that are done, other arguments); ``actions`` are called at some of the pairs."""

    def __init__(self, actions=None):
        self.calls, self.actions = [], actions or {}

    def record(self, method, runner, *arguments):
        self.calls.append((method, runner.progress.iteration, *arguments))
        self.actions.get((method, runner.progress.iteration), lambda runner: None)(runner)

    def names(self):
        """The names with the iterations, and kinds of checkpoints, without scalars."""
        return [" ".join(map(str, (part for part in call if not isinstance(part, dict)))) for call in self.calls]


def _recording(method):
    return lambda self, runner, *arguments: self.record(method, runner, *arguments)


for name in METHODS:
    setattr(Recorder, name, _recording(name))


class Printing(Callback):
    """For a config: prints at the ends of a session."""

    def on_fit_start(self, runner):
        print(f"starts at {runner.progress.iteration}")

    def on_fit_end(self, runner):
        print(f"ends at {runner.progress.iteration}")


class Late(Callback):
    def on_fit_end(self, runner):
        pass


class Needy(Callback):
    def __init__(self, folder):
        pass


def make_runner(folder, *callbacks, **runner):
    config = settings(folder, **({"eval_interval": 2, "last_interval": 2, "save_interval": 100} | runner))
    return OnPolicyRunner(Walk(), config | {"env": {"num_envs": 4}}, folder / "run", mesh=ONE, callbacks=callbacks)


def learn(runner, *arguments):
    try:
        runner.learn(*arguments)
    finally:
        runner.close()


STEP_1 = ["before_play_steps 0", "after_train 1"]
STEP_2 = ["before_play_steps 1", "after_train 2", "on_eval_start 2", "on_eval_end 2"]
BEST_2 = ["on_save_checkpoint_start 2 best", "on_save_checkpoint_end 2 best"]


def saves(iteration, *kinds):
    return [f"on_save_checkpoint_{end} {iteration} {kind}" for kind in kinds for end in ("start", "end")]


def test_order_of_a_session(tmp_path):
    recorder, quiet = Recorder(), Callback()
    runner = make_runner(tmp_path, quiet, recorder)
    learn(runner, 3)
    third = ["before_play_steps 2", "after_train 3", "on_eval_start 3", "on_eval_end 3"]
    names = [name for name in recorder.names() if name not in saves(3, "best")]
    assert names == [
        "on_fit_start 0",
        *STEP_1,
        *STEP_2,
        *BEST_2,
        *saves(2, "last"),
        *third,
        *saves(3, "numbered", "last"),
        "on_fit_end 3",
    ]
    rows = log(tmp_path / "run")
    scalars = [arguments[0] for method, _, *arguments in recorder.calls if method == "after_train"]
    assert [row["Loss/value_loss"] for row in rows] == [values["Loss/value_loss"] for values in scalars]
    (first, _) = [arguments[0] for method, _, *arguments in recorder.calls if method == "on_eval_end"]
    assert first.items() <= rows[1].items()


@pytest.mark.parametrize("how", ["method", "SIGINT", "SIGTERM"])
def test_an_early_stop_is_reported_before_the_run_is_saved(tmp_path, how):
    def stop(runner):
        if how == "method":
            runner.terminate_early()
            return
        os.kill(os.getpid(), getattr(signal, how))
        time.sleep(0.3)  # a thread reads the signal

    recorder = Recorder({("after_train", 1): stop})
    runner = make_runner(tmp_path, recorder)
    learn(runner, 5)
    assert recorder.names() == [
        "on_fit_start 0",
        *STEP_1,
        "on_training_stop 1",
        *saves(1, "numbered", "last"),
    ]
    assert runner.stopped_by == ("terminate_early" if how == "method" else how)
    assert runner.checkpointer.iterations("last") == [1]


def test_a_session_after_an_early_stop_goes_on(tmp_path):
    recorder = Recorder({("on_fit_start", 0): lambda runner: runner.terminate_early()})
    runner = make_runner(tmp_path, recorder, eval_interval=0, last_interval=100)
    runner.learn(2)
    assert recorder.names() == ["on_fit_start 0", "on_training_stop 0", *saves(0, "numbered", "last")]
    recorder.calls.clear()
    runner.load(tmp_path / "run")
    recorder.actions = {("before_play_steps", 0): lambda runner: runner.terminate_early()}
    learn(runner, 2)
    path = tmp_path / "run"
    assert recorder.names() == [
        f"on_load_checkpoint_start 0 {path}",
        f"on_load_checkpoint_end 0 {path}",
        "on_fit_start 0",
        *STEP_1,  # the iteration that has begun is completed
        "on_training_stop 1",
        *saves(1, "numbered", "last"),
    ]
    assert runner.progress.iteration == 1


@pytest.mark.parametrize("error", [KeyError("mine"), KeyboardInterrupt()])
def test_after_an_exception_nothing_more_is_called(tmp_path, error):
    def fail(runner):
        raise error

    recorder, later = Recorder({("after_train", 1): fail}), Recorder()
    runner = make_runner(tmp_path, recorder, later)
    with pytest.raises(type(error)) as raised:
        learn(runner, 5)
    assert raised.value is error
    assert recorder.names() == ["on_fit_start 0", *STEP_1]
    assert later.names() == ["on_fit_start 0", "before_play_steps 0"]
    assert int(runner.train_state.iteration) == 1  # the newest states


def test_states_are_those_of_the_iteration_and_can_be_replaced(tmp_path):
    seen = []

    def look(runner):
        seen.append((int(runner.train_state.iteration), runner.progress.iteration))

    def freeze(runner):
        weights = jax.tree.map(jnp.zeros_like, runner.train_state.params)
        runner.train_state = runner.train_state.replace(params=weights)

    def check(runner):
        look(runner)
        runner.zeros = all(not leaf.any() for leaf in jax.tree.leaves(runner.train_state.params["policy"]))

    actions = {("before_play_steps", i): look for i in range(2)}
    actions |= {("before_play_steps", 2): freeze, ("after_train", 1): look, ("after_train", 3): check}
    runner = make_runner(tmp_path, Recorder(actions), eval_interval=0)
    learn(runner, 3)
    assert seen == [(0, 0), (1, 1), (1, 1), (3, 3)]
    kernel = runner.train_state.params["policy"]["params"]["actor"]
    assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(kernel)) < 0.01  # one step from zero
    assert not runner.zeros


def test_callbacks_change_no_number_of_a_run(tmp_path):
    """Also when every iteration waits for them."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    alone, watched = make_runner(tmp_path / "a"), make_runner(tmp_path / "b", Recorder())
    learn(alone, 3)
    learn(watched, 3)
    assert same((alone.train_state, alone.rollout_state), (watched.train_state, watched.rollout_state))


def test_only_callbacks_within_iterations_make_them_wait(tmp_path):
    assert not make_runner(tmp_path, Late(), Callback()).callbacks.needs_each_iteration
    assert make_runner(tmp_path, Late(), Recorder()).callbacks.needs_each_iteration


def test_callbacks_of_a_config(tmp_path, capsys):
    path = "test_callbacks:Printing"
    config = settings(tmp_path, callbacks=[path], max_iterations=1)
    assert train.main(["--config", str(write(tmp_path / "c.yaml", config)), "--log-dir", str(tmp_path / "run")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines.index("starts at 0") < lines.index("ends at 1")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("test_callbacks:Nothing", ("runner.callbacks", "no Nothing")),
        ("test_callbacks:Needy", ("runner.callbacks", "Needy", "folder")),
        ("test_callbacks:make_runner", ("runner.callbacks", "make_runner")),
        ("collections:Counter", ("runner.callbacks", "Counter", "Callback")),
        ("test_callbacks", ("runner.callbacks", "pkg.mod:Class")),
    ],
)
def test_a_callback_that_cannot_be_used_is_one_line(tmp_path, capsys, path, words):
    config = write(tmp_path / "c.yaml", settings(tmp_path, callbacks=[path]))
    line = fails(capsys, train.main, "--config", config, "--log-dir", tmp_path / "run")
    assert all(word in line for word in words), line
    assert not (tmp_path / "run").exists()


def test_a_callback_must_be_an_object_of_a_callback(tmp_path):
    for wrong, words in ((Recorder, "the class Recorder"), (print, "builtin_function")):
        with pytest.raises(ConfigError, match=f"callbacks: {words}.*subclass"):
            make_runner(tmp_path, wrong)
