"""Callbacks: the user's code at fixed points of a training session."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from strl_jax.config.errors import ConfigError, raised
from strl_jax.config.import_path import import_callable

if TYPE_CHECKING:
    from strl_jax.runners.on_policy import OnPolicyRunner

KEY = "runner.callbacks"


class Callback:
    """Base class. Override the methods that you need; every method gets the runner.

    The order in ``learn``: ``on_fit_start``; for each iteration ``before_play_steps``, then the compiled step
    (rollout and update), then ``after_train``, then evaluation and saving if they are due; at the end the last
    save, and ``on_fit_end``. If the training stops early (a stop signal, ``runner.terminate_early()``, a writer
    that failed, Optuna's pruner), ``on_training_stop`` is called before the last save, and ``on_fit_end`` is not
    called. After an exception, no further method is called.

    ``runner.train_state`` and ``runner.rollout_state`` are the newest states. The next iteration reuses their
    buffers, so keep copies only. A method may replace them by states of the same shapes. With a
    ``before_play_steps`` or ``after_train``, every iteration is complete before the next one starts. Without
    them, the next iteration is started earlier, which is faster.

    An exception in a method ends ``learn``; nothing is saved. With several processes, every process calls the
    methods.
    """

    def on_fit_start(self, runner: "OnPolicyRunner") -> None:
        """Before the first iteration; the states exist, and the programs are compiled."""

    def before_play_steps(self, runner: "OnPolicyRunner") -> None:
        """Before each iteration; ``runner.progress.iteration`` iterations are done."""

    def after_train(self, runner: "OnPolicyRunner", scalars: Mapping[str, float]) -> None:
        """After each iteration, with its scalars by their names in the log."""

    def on_eval_start(self, runner: "OnPolicyRunner") -> None:
        """Before each evaluation, also those of ``runner.evaluation()``."""

    def on_eval_end(self, runner: "OnPolicyRunner", scalars: Mapping[str, float]) -> None:
        """After each evaluation, with its ``Eval/*`` scalars."""

    def on_save_checkpoint_start(self, runner: "OnPolicyRunner", kind: str) -> None:
        """Before a checkpoint is saved; ``kind`` is ``last``, ``numbered`` or ``best``."""

    def on_save_checkpoint_end(self, runner: "OnPolicyRunner", kind: str) -> None:
        """After the start of a save. The files are complete after ``runner.checkpointer.wait()``."""

    def on_load_checkpoint_start(self, runner: "OnPolicyRunner", path: Path) -> None:
        """Before ``runner.load`` reads a run folder."""

    def on_load_checkpoint_end(self, runner: "OnPolicyRunner", path: Path) -> None:
        """After ``runner.load``."""

    def on_training_stop(self, runner: "OnPolicyRunner") -> None:
        """The training stopped early; ``runner.stopped_by`` is the reason. The run is not yet saved."""

    def on_fit_end(self, runner: "OnPolicyRunner") -> None:
        """All iterations are done, and the run is saved."""


class Callbacks:
    """Calls the methods of several callbacks, in the order of the callbacks."""

    def __init__(self, runner: "OnPolicyRunner", callbacks: Sequence[Callback]):
        self._runner, self._callbacks = runner, tuple(callbacks)

    def __call__(self, method: str, *arguments) -> None:
        """Calls ``method(runner, *arguments)`` of every callback."""
        for callback in self._callbacks:
            getattr(callback, method)(self._runner, *arguments)

    @property
    def needs_each_iteration(self) -> bool:
        """Whether a callback does something between two iterations."""
        methods = ("before_play_steps", "after_train")
        return any(
            getattr(type(callback), method) is not getattr(Callback, method)
            for callback in self._callbacks
            for method in methods
        )


def make_callbacks(paths: Sequence[str]) -> list[Callback]:
    """An object of each class that the config names.

    Raises:
        ConfigError: a class cannot be imported or created without arguments, or is not a ``Callback``.
    """
    callbacks = []
    for path in paths:
        make = import_callable(path, f"{KEY}:", "pkg.mod:Class")
        try:
            callback = make()
        except Exception as error:  # the user's code may raise anything
            raise ConfigError(f"{KEY}: {path} cannot be created without arguments: {raised(error)}") from error
        callbacks.append(checked(callback, f"{KEY}: {path} gives"))
    return callbacks


def checked(callback: Callback, what: str = "callbacks:") -> Callback:
    """The callback; raises ``ConfigError`` if it is not an object of a subclass of ``Callback``."""
    if not isinstance(callback, Callback):
        kind = f"the class {callback.__name__}" if isinstance(callback, type) else type(callback).__name__
        raise ConfigError(f"{what} {kind}; it must be an object of a subclass of strl_jax.runners.callbacks.Callback")
    return callback
