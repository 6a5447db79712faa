"""``python -m strl_jax.train``: bad input is one clear line each, exit code 2, and nothing is written."""

import json
import re
import shutil
import subprocess
import sys

import pytest
import yaml
from commands import cached_in, log, run, settings, write

from strl_jax import train
from strl_jax.config import load, to_dict
from strl_jax.runners import first_save, run_dir, writers
from strl_jax.runners.checkpoint import Checkpointer
from strl_jax.runners.on_policy import OnPolicyRunner

# 4 devices are there, see conftest.py.
FAULTS = {
    "unknown key": (["algorithm.gama=0.9"], r"algorithm\.gama: unknown key; nearest is gamma"),
    "wrong type": (["env.num_envs=many"], r"env\.num_envs: 'many' .*must be an integer"),
    "out of range": (["algorithm.gamma=1.5"], r"algorithm\.gamma: 1\.5 .*<= 1"),
    "minibatches": (["algorithm.num_mini_batches=3"], r"num_mini_batches: 3 does not divide .*: 1, 2, 4, 8, 16"),
    "minibatches of a shard": (["algorithm.num_mini_batches=8"], r"algorithm\.num_mini_batches: 8 .*4 samples"),
    "devices": (["env.num_envs=6"], r"env\.num_envs: 6 does not divide over 4 devices; nearest is 4 or 8"),
    "unknown environment": (["env.name=probe:state_acton"], r"env\.name: .*nearest is state_action"),
    "environment without a kind": (["env.name=ant"], r"env\.name: 'ant' is not allowed; it must be brax:NAME:BACKEND"),
    "environment's options": (
        ["env.kwargs={target: 1}", "env.name=probe:constant"],
        r"env\.kwargs: .*no option 'target'",
    ),
    "unknown component": (["env.groups.actor=[gaol]"], r"env\.groups\.actor: 'gaol' .*nearest is goal"),
    "unknown class": (["runner.algorithm_class_name=PPPO"], r"runner\.algorithm_class_name: 'PPPO' .*nearest is PPO"),
    "unknown writer": (["runner.logger=tensorbord"], r"runner\.logger: 'tensorbord' .*nearest is tensorboard"),
    "writer that is not there": (["runner.logger=no_such_module:Writer"], r"runner\.logger: .*cannot be imported"),
    "no writer and another": (["runner.logger=[none, tensorboard]"], r"runner\.logger: .*'none' can only stand alone"),
    "folder outside": (["runner.experiment_name=../x"], r"runner\.experiment_name: .*a name without a / that does not"),
    "no override": (["seed"], r"override 'seed': it must be section\.key=VALUE"),
    "unknown option": (["--sed", "7"], r"unrecognized arguments: --sed"),
    "abbreviated option": (["--log", "there"], r"unrecognized arguments: --log"),
    "number expected": (["--process-id", "first"], r"--process-id: invalid int value: 'first'"),
    "half of the flags": (["--process-id", "0"], r"--coordinator, --num-processes: missing; .* go together"),
    "process number": (
        ["--coordinator", "localhost:1", "--num-processes", "2", "--process-id", "2"],
        r"--process-id: 2 is not allowed; it must be in 0\.\.1",
    ),
}


@pytest.fixture(autouse=True)
def cache_of_its_own(tmp_path):
    """The command would turn on the user's cache for all later tests."""
    with cached_in(tmp_path / "cache"):
        yield


@pytest.fixture
def config(tmp_path):
    return write(tmp_path / "config.yaml", settings(tmp_path / "logs"))


def call(capsys, *arguments) -> tuple[int, list[str]]:
    """Exit code of the command and the lines on stderr; stdout must be empty."""
    try:
        code = train.main([str(argument) for argument in arguments])
    except SystemExit as stop:  # argparse
        code = stop.code
    captured = capsys.readouterr()
    assert captured.out == ""
    return code, captured.err.splitlines()


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_one_line(fault, config, tmp_path, capsys):
    arguments, expected = FAULTS[fault]
    code, lines = call(capsys, "--config", config, *arguments)
    assert code == 2
    assert len(lines) == 1, lines
    assert re.match(r"error: \S", lines[0])
    assert re.search(expected, lines[0]), lines[0]
    assert not (tmp_path / "logs").exists()


def test_each_fault_has_its_line(config, tmp_path, capsys):
    code, lines = call(capsys, "--config", config, "algorithm.gama=0.9", "env.num_envs=0", "sed=1")
    assert code == 2
    assert len(lines) == 3
    assert all(line.startswith("error: override ") for line in lines)
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("env: [\n", r"config\.yaml, line 2: not valid YAML"),
        ("", r"config\.yaml: a config is a mapping .*this is empty"),
        ("seed: 1\nseed: 2\n", r"config\.yaml, line 2: .*key 'seed' stands twice"),
        ("seed: 1\n", r"env\.name: it is missing and has no default"),
    ],
)
def test_broken_file(text, expected, config, capsys):
    config.write_text(text)
    code, lines = call(capsys, "--config", config)
    assert (code, len(lines)) == (2, 1)
    assert re.search(f"^error: .*{expected}", lines[0]), lines[0]


def test_missing_file_and_missing_choice(config, tmp_path, capsys):
    code, lines = call(capsys, "--config", tmp_path / "confg.yaml")
    assert (code, lines) == (2, [f"error: {tmp_path}/confg.yaml: no such file; nearest is config.yaml"])
    for arguments in ([], ["--config", config, "--resume", tmp_path]):
        code, lines = call(capsys, *arguments)
        assert (code, lines) == (2, ["error: one of --config FILE and --resume RUN_DIR is needed, and not both"])
    code, lines = call(capsys, "--resume", tmp_path, "--log-dir", tmp_path)
    assert (code, lines) == (2, ["error: --log-dir: a resumed run stays in its folder"])
    code, lines = call(capsys, "--resume", tmp_path)  # it has a config.yaml
    assert (code, lines) == (2, [f"error: --resume: {tmp_path} is no run folder: it has no config.json"])
    code, lines = call(capsys, "--resume", tmp_path / "none")
    assert (code, lines) == (2, [f"error: --resume: {tmp_path}/none is no run folder: it has no config.yaml"])


def test_wandb_that_is_not_installed(config, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)  # what Python does for a package that cannot be imported
    code, lines = call(capsys, "--config", config, "runner.logger=wandb")
    assert (code, len(lines)) == (2, 1)
    assert re.search(r"^error: runner\.logger: .*needs the package wandb .*pip install 'strl_jax\[wandb\]'$", lines[0])
    assert not (tmp_path / "logs").exists()


def test_run_folder_that_cannot_be_made(config, tmp_path, capsys):
    (tmp_path / "logs").write_text("a file")
    for arguments in ([], ["--log-dir", tmp_path / "logs" / "run"]):
        code, lines = call(capsys, "--config", config, *arguments)
        assert (code, len(lines)) == (2, 1)
        assert re.search(r"^error: run folder .*/logs/.*: cannot be made: .*--log-dir names another place$", lines[0])


def test_overrides_and_options_in_any_order(config, capsys):
    assert (
        train.main(["seed=7", "--config", str(config), "env.num_envs=8", "--print-config", "policy.activation=relu"])
        == 0
    )
    printed = yaml.safe_load(capsys.readouterr().out)
    assert (printed["seed"], printed["env"]["num_envs"], printed["policy"]["activation"]) == (7, 8, "relu")


def test_printed_config_is_a_config(config, tmp_path, capsys):
    assert train.main(["--config", str(config), "--print-config", "algorithm.clip_min_std=[0.1]"]) == 0
    text = capsys.readouterr().out
    again = tmp_path / "again.yaml"
    again.write_text(text)
    assert train.main(["--config", str(again), "--print-config"]) == 0
    assert capsys.readouterr().out == text
    assert to_dict(load(again)[0]) == yaml.safe_load(text)
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (
            ["env.name=legged:flat", "env.kwargs.rewards.sigma=1"],
            r"env\.kwargs\.rewards\.sigma: unknown key; known are",
        ),
        (
            ["env.name=legged:flat", "env.kwargs.sim.dt=1"],
            r"env\.kwargs\.sim\.dt: 1 is not allowed; it must be <= 0\.02",
        ),
        (
            ["env.name=legged:rough", "env.kwargs.terrain.terrain_length=8.1"],
            r"env\.kwargs\.terrain\.terrain_length: 8\.1 is not allowed; it must be a multiple of 0\.2",
        ),
        (
            ["env.name=legged:flat", "env.kwargs.control.delay=[0, 1]"],
            r"env\.kwargs\.control\.delay: \[0\.0, 1\.0\] is not allowed; it must lie in \[0, 0\.02\], one control",
        ),
        (["env.name=legged:falt"], r"env\.name: 'legged:falt' is not allowed; .* nearest is flat"),
        (
            ["env.name=probe:action", "env.kwargs.goal=1"],
            r"env\.kwargs: \{'goal': 1\} is not allowed; probe environment 'action' has no option 'goal'",
        ),
        (["env.name=ant"], r"env\.name: 'ant' is not allowed; it must be brax:NAME:BACKEND"),
        (["env.name=math:sin", "env.kwargs.x=1"], r"env\.kwargs: \{'x': 1\} does not fit math:sin"),
    ],
)
def test_a_printed_config_has_an_environment_that_takes_it(overrides, expected, config, capsys):
    code, lines = call(capsys, "--config", config, "--print-config", *overrides)
    assert (code, len(lines)) == (2, 1)
    assert re.match(f"error: {expected}", lines[0]), lines[0]


def test_printing_a_config_builds_no_simulator(tmp_path):
    """Nor does it start a backend, or import what simulates."""
    write(
        tmp_path / "config.yaml", {"env": {"name": "legged:rough", "kwargs": {"robot": {"path": "no_such_file.xml"}}}}
    )
    code = (
        "import sys; from strl_jax import train; from jax._src import xla_bridge\n"
        "train.main(['--config', 'config.yaml', '--print-config'])\n"
        "train.main(['--config', 'config.yaml', '--print-config', 'env.name=probe:action', 'env.kwargs={}'])\n"
        "print(sorted({'brax', 'mujoco'} & set(sys.modules)), len(xla_bridge._backends))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.count("no_such_file.xml") == 1
    assert done.stdout.endswith("\n[] 0\n")


def test_schema_knows_the_keys_of_a_config(config, capsys):
    assert train.main(["--print-schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    given = yaml.safe_load(config.read_text())
    assert given.keys() <= schema["properties"].keys()
    nodes = list(_nodes(schema))
    runner = next(node for node in nodes if "last_interval" in node.get("properties", {}))
    assert given["runner"].keys() <= runner["properties"].keys()
    assert runner["additionalProperties"] is False


def test_schema_is_a_json_schema(capsys):
    train.main(["--print-schema"])
    schema = json.loads(capsys.readouterr().out)
    types = {"object", "array", "string", "number", "integer", "boolean", "null"}
    nodes = list(_nodes(schema))
    assert schema["type"] == "object"
    assert {node["type"] for node in nodes if isinstance(node.get("type"), str)} == types
    references = {node["$ref"] for node in nodes if "$ref" in node}
    assert {f"#/$defs/{name}" for name in schema["$defs"]} == references
    for node in nodes:
        assert set(node.get("required", [])) <= node.get("properties", {}).keys()


def _nodes(schema):
    """The schema and all schemas inside it."""
    inner = list(schema.get("$defs", {}).values()) + list(schema.get("properties", {}).values())
    inner += schema.get("anyOf", []) + schema.get("allOf", []) + schema.get("prefixItems", [])
    inner += [schema[name] for name in ("items", "additionalProperties") if isinstance(schema.get(name), dict)]
    yield schema
    for node in inner:
        yield from _nodes(node)


def test_keys_without_meaning_warn_once(config, capsys):
    data = yaml.safe_load(config.read_text())
    data["runner"] |= {"load_run": -1, "resume": False}
    data["device"] = "cuda:0"
    assert train.main(["--config", str(write(config, data)), "--print-config", "algorithm.device=cpu"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert sorted(line.split(": ignored; ")[0] for line in lines) == [
        "warning: algorithm.device",
        "warning: device",
        "warning: runner.load_run",
        "warning: runner.resume",
    ]


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
                r"changed since: policy\.actor_hidden_dims: \[4\] in the checkpoint, \[8\] now$"
            ],
        ),
        (
            "env.num_envs=8",
            [
                r"does not fit: rollout/\S*: saved .*\[4\], wanted .*\[8\]; "
                r"changed since: env\.num_envs: 4 in the checkpoint, 8 now$"
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
    code, lines = call(capsys, "--resume", saved, override)
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
    elif how == "file":
        shutil.rmtree(checkpoints)
        checkpoints.write_text("")


def contents(folder) -> dict:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


DAMAGE = {
    "arrays": "/checkpoints/last/0: damaged: train/manifest.ocdbt is missing",
    "record": "/checkpoints/last/0: damaged: record/metadata: the record has no meta",
    "last": ": no last checkpoint; there is best 0",
    "file": "/checkpoints: damaged: it is no folder",
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_run_is_not_started_again(how, saved, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(saved, run)
    damage(run, how)
    before = contents(run)
    code, lines = call(capsys, "--resume", run, "runner.max_iterations=7")
    assert (code, lines) == (2, [f"error: {run}{DAMAGE[how]}"])
    assert contents(run) == before


def test_a_run_without_a_readable_checkpoint_is_not_started_again(saved, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(saved, run)
    shutil.copytree(run / "checkpoints/last/0", run / "checkpoints/last/1")
    for record in run.glob("checkpoints/last/*/record/metadata"):
        record.write_text("")
    before = contents(run)
    code, lines = call(capsys, "--resume", run, "runner.max_iterations=7")
    wrong = "damaged: record/metadata: no JSON: Expecting value: line 1 column 1 (char 0)"
    assert (code, lines) == (
        2,
        [
            f"warning: {run}/checkpoints/last/1: {wrong}; passed over",
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
    code, lines = call(capsys, "--resume", run, "runner.max_iterations=7", "runner.last_interval=500")
    expected = (
        f"error: {run}/checkpoints: no checkpoint is left of the run, which got to iteration 301 (metrics.jsonl) and "
        f"had saved; nothing was changed; --config {run}/config.yaml starts a new run"
    )
    assert (code, lines) == (2, [expected])
    assert contents(run) == before


@pytest.mark.parametrize(
    ("intervals", "second"),
    [((50, 50), 50), ((500, 500), 500), ((50, 500), 100), ((500, 50), 100), ((2, 3), 3), ((1, 1), 1)],
)
def test_a_run_that_may_have_been_killed_before_its_first_checkpoint(intervals, second, tmp_path):
    """The second save waits for the first; until it has, a kill may leave neither."""
    for iteration in (second, second + 1):
        run = tmp_path / str(iteration)
        reached(run, iteration, last_interval=intervals[0], save_interval=intervals[1])
        assert first_save.passed(run) == (None if iteration == second else iteration)
    (run / "metrics.jsonl").unlink()
    assert first_save.passed(run) is None


def test_a_kill_after_any_line_leaves_what_may_start_again_or_a_checkpoint(config, tmp_path, monkeypatch):
    """Saves take longer than the iterations here."""
    run, found = tmp_path / "run", []

    def write_line(writer, iteration, scalars, write=writers.JsonlWriter.write):
        write(writer, iteration, scalars)
        found.append((iteration, first_save.passed(run), Checkpointer(run).is_fresh()))

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
        code, lines = call(capsys, "--resume", run, "runner.max_iterations=7")
    assert (code, lines) == (2, [f"error: run folder {run}: another process is training in it"])
    assert contents(run) == before


def test_metrics_that_cannot_be_written(saved, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(saved, run)
    (run / "metrics.jsonl").mkdir()
    code, lines = call(capsys, "--resume", run)
    assert (code, lines) == (2, [f"error: {run}/metrics.jsonl: Is a directory"])


WRITERS = """
class Closed:
    def __init__(self, run_dir, config, start_iteration):
        raise RuntimeError("no connection")
    def write(self, iteration, scalars): pass
    def close(self): pass

class Breaking(Closed):
    def __init__(self, run_dir, config, start_iteration): pass
    def write(self, iteration, scalars):
        if iteration == 2:
            raise KeyError("tag")
"""


@pytest.fixture
def my_writers(tmp_path, monkeypatch):
    (tmp_path / "my_writers.py").write_text(WRITERS)
    (tmp_path / "unfinished.py").write_text("class Writer(:")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("my_writers", None)


def test_a_writer_that_does_not_start(my_writers, config, tmp_path, capsys):
    code, lines = call(capsys, "--config", config, "--log-dir", tmp_path / "run", "runner.logger=my_writers:Closed")
    expected = "error: runner.logger: writer 'my_writers:Closed' did not start: RuntimeError: no connection"
    assert (code, lines) == (2, [f"{expected} ({tmp_path}/my_writers.py:4)"])
    assert not (tmp_path / "run").exists()
    code, lines = call(capsys, "--config", config, "runner.logger=unfinished:Writer")
    assert (code, len(lines)) == (2, 1)
    assert re.search("^error: runner.logger: writer 'unfinished:Writer' cannot be imported: SyntaxError: ", lines[0])


def test_a_writer_that_fails_ends_the_run_with_a_save(my_writers, config, tmp_path, capsys):
    run = tmp_path / "run"
    code = train.main(
        ["--config", str(config), "--log-dir", str(run), "runner.logger=my_writers:Breaking", "runner.eval_interval=0"]
    )
    lines = capsys.readouterr().err.splitlines()
    expected = f"error: runner.logger: Breaking failed: KeyError: 'tag' ({tmp_path}/my_writers.py:12)"
    assert (code, lines) == (2, [expected])
    # Iteration 3 was under way when the failure was seen.
    assert Checkpointer(run).iterations("last") == [3]
    assert [line["iteration"] for line in log(run)] == [1, 2, 3]


@pytest.mark.slow
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


BROKEN = ["env.name=commands:Broken", "runner.eval_interval=3"]


def test_steps_that_were_cut_are_told_once(config, tmp_path, capsys):
    assert train.main(["--config", str(config), "--log-dir", str(tmp_path / "run"), *BROKEN]) == 0
    cut = [line["Train/invalid_steps"] for line in log(tmp_path / "run")]
    out, err = capsys.readouterr()
    assert "last evaluation: every episode was cut for NaN, infinity or 1e9 and more" in out.splitlines()
    assert len(cut) > 1
    assert set(cut) == {16.0}  # 4 environments x 4 steps
    told = [line for line in (out + err).splitlines() if line.startswith("warning: iteration")]
    assert told == [
        "warning: iteration 1: 16 of 16 steps had NaN, infinity or 1e9 and more and were cut, so nothing was learnt; "
        "others are in Train/invalid_steps"
    ]


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


def test_real_command(config, tmp_path):
    code, out, err = run("--config", config, "algorithm.gama=0.9", cache=tmp_path / "cache")
    assert (code, out) == (2, "")
    assert err == "error: override 'algorithm.gama=0.9': algorithm.gama: unknown key; nearest is gamma\n"
    assert not (tmp_path / "logs").exists()
