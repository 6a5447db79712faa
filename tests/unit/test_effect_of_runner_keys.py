"""Every key of the runner has an effect on the files of the run, its numbers, its programs or its printed lines.

All runs share their compiled programs.
"""

import contextlib
import io
import json
import subprocess
import sys
from unittest.mock import MagicMock

import pytest
import yaml
from commands import settings
from effects import leaves
from effects_keys import RUNNER

from strl_jax import train
from strl_jax.config import from_dict
from strl_jax.config.sections import RunnerConfig
from strl_jax.run_folder.checkpoints import Checkpointer
from strl_jax.runners import on_policy
from strl_jax.runners.callbacks import Callback
from strl_jax.runners.programs import Programs

EVALUATES = {"eval_interval": 2, "num_eval_envs": 4}
FROM = {"init_from": "SOURCE"}
WANDB = {"logger": "wandb"}
# Key -> another value, and other keys of the runner that both runs have.
CASES: dict[str, tuple[object, dict]] = {
    "max_iterations": (4, {}),
    "max_env_steps": (40, {}),
    "save_interval": (2, {}),
    "last_interval": (2, {}),
    "log_interval": (2, {}),
    "eval_interval": (2, {}),
    "eval_after_load": (True, FROM | EVALUATES),
    "best_metric": ("Eval/metric/tracking_error", EVALUATES),
    "best_direction": ("min", EVALUATES),
    "callbacks": (["test_effect_of_runner_keys:StopsAtOnce"], {}),
    "init_at_random_ep_len": (False, {}),
    "init_from": ("SOURCE", {}),
    "ckpt_manipulator": ("test_effect_of_runner_keys:halved", FROM),
    "log_root": ("OTHER", {}),
    "experiment_name": ("other", {}),
    "run_name": ("other", {}),
    "logger": ("tensorboard", {}),
    "wandb_project": ("other", WANDB),
    "git_repos": (["REPOSITORY"], {}),
    "time_split": (True, {}),
}
# Their effect is on the program: see tests/effects_keys.py for the keys of each class.
CLASSES = {
    "policy_class_name": {"runner": {"policy_class_name": "ActorCriticRecurrent"}},
    "algorithm_class_name": {"runner": {"algorithm_class_name": "TPPO"}},
}


def halved(variables, stats, meta):
    """A manipulator that halves one weight."""
    layer = variables["params"]["actor"]["layer_0"]
    layer["kernel"] = layer["kernel"] / 2
    return variables, stats


class StopsAtOnce(Callback):
    """Ends the training after the first iteration."""

    def after_train(self, runner, scalars):
        runner.terminate_early()


class Shared:
    """The programs of all runs with the same shapes; records which ones a run requests."""

    cache: dict = {}  # noqa: RUF012 (read and written by the fixture)

    def __init__(self, env, algorithm, mesh, config, data):
        shapes = (config.runner.num_steps_per_env, config.runner.num_eval_envs)
        if shapes not in self.cache:
            self.cache[shapes] = Programs(env, algorithm, mesh, config, data)
        self.programs, self.requested = self.cache[shapes], set()

    def __getattr__(self, name):
        return getattr(self.programs, name)

    def request(self, name, **options):
        self.requested.add(name)
        self.programs.request(name, **options)

    def get(self, name, **options):
        self.requested.add(name)
        return self.programs.get(name, **options)

    def close(self):
        """The next run uses them."""


def save_folder(self, kind, iteration, state, meta, *, again=False):
    """Makes the folder of a checkpoint only: to write it takes most of the time of a tiny run."""
    (self.root / kind / str(iteration)).mkdir(parents=True, exist_ok=True)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Names in the values -> paths: another log folder, a repository and a run."""
    folder = tmp_path_factory.mktemp("places")
    subprocess.run(["git", "init", "-q", folder / "robot"], check=True)
    places = {"OTHER": folder / "logs", "REPOSITORY": folder / "robot"}
    places["SOURCE"] = folder / "source"
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(settings(folder) | {"seed": 9}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(on_policy, "Programs", Shared)
        _train("--config", path, "runner.max_iterations=1", "--log-dir", places["SOURCE"])
    return places


def _train(*arguments) -> str:
    """Stdout and stderr of the command."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        assert train.main([*map(str, arguments)]) == 0, printed.getvalue()
    return printed.getvalue()


@pytest.fixture
def observe(tmp_path, monkeypatch, places):
    """A function from the keys of a runner to everything that shows their effect."""
    made = []

    def make(*arguments):
        made.append(Shared(*arguments))
        return made[-1]

    wandb = MagicMock()
    wandb.init.return_value.id, wandb.init.return_value.step = "id", 0
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setattr(on_policy, "Programs", make)
    monkeypatch.setattr(Checkpointer, "save", save_folder)

    def run(name: str, runner: dict) -> dict:
        data = settings(tmp_path / name, **{key: runner[key] for key in runner if key == "eval_interval"})
        data["runner"] |= runner
        text = yaml.safe_dump(data)
        for place, path in places.items():
            text = text.replace(place, str(path))
        file = tmp_path / f"{name}.yaml"
        file.write_text(text)
        printed = _train("--config", file)
        log = next(path for root in (tmp_path / name, places["OTHER"]) for path in root.glob("*/*/metrics.jsonl"))
        rows = [json.loads(line) for line in log.read_text().splitlines()]
        files = {"/".join(path.relative_to(log.parent).parts[:3]) for path in log.parent.rglob("*")}
        return {
            "folder": (log.parents[2].name.replace(name, ""), log.parents[1].name, log.parent.name[19:]),
            "files": sorted(path.split("tfevents")[0] for path in files),
            "rows": [{key: value for key, value in row.items() if not key.startswith(TIMES)} for row in rows],
            "programs": made[-1].requested,
            "projects": [call.kwargs["project"] for call in wandb.init.call_args_list[-1:]],
            "summary": [line for line in printed.splitlines() if line.startswith("last evaluation: ")],
            "notes": [line for line in printed.splitlines() if line.startswith(("note: ", "warning: "))],
        }

    return run


@pytest.fixture(scope="module")
def observed():
    """The base runs that were observed already."""
    return {}


TIMES = ("Perf/", "Train/wall_clock")


def test_every_key_has_a_case():
    keys, in_programs = set(leaves(RunnerConfig)), {key.removeprefix("runner.") for key in RUNNER}
    known = {*CASES, *CLASSES, *in_programs, "runner_class_name"}
    assert keys == known, f"give this file a case in which these keys have an effect: {sorted(keys ^ known)}"
    assert len(RunnerConfig.model_fields["runner_class_name"].annotation.__args__) == 1  # there is no other value


@pytest.mark.parametrize("key", CASES)
def test_another_value_has_an_effect(key, observe, observed):
    value, both = CASES[key]
    if str(both) not in observed:
        observed[str(both)] = observe("base", both)
    base, other = observed[str(both)], observe("other", both | {key: value})
    assert not [line for line in other["notes"] if f"runner.{key}: no effect" in line]
    differing = [part for part in base if base[part] != other[part]]
    assert differing, f"runner.{key}: {value} changes nothing"


def test_the_same_keys_give_the_same_run(observe):
    assert observe("base", EVALUATES) == observe("other", EVALUATES)


@pytest.mark.parametrize("key", CLASSES)
def test_classes_have_their_own_keys(key):
    base, other = (from_dict({"env": {"name": "probe:action"}, **changes})[0] for changes in ({}, CLASSES[key]))
    section = key.split("_")[0]
    assert set(type(getattr(base, section)).model_fields) < set(type(getattr(other, section)).model_fields)
