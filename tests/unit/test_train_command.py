"""``python -m strl_jax.train``: bad input is one clear line each, exit code 2, and nothing is written."""

import json
import re
import subprocess
import sys

import pytest
import yaml
from commands import call, log, run, settings, write

from strl_jax import train
from strl_jax.config import load, to_dict
from strl_jax.run_folder.checkpoints import Checkpointer

# 4 devices are there, see conftest.py.
FAULTS = {
    "unknown key": (["algorithm.gama=0.9"], r"algorithm\.gama: unknown key; nearest is gamma"),
    "wrong type": (["env.num_envs=many"], r"env\.num_envs: 'many' .*must be an integer"),
    "out of range": (["algorithm.gamma=1.5"], r"algorithm\.gamma: 1\.5 .*<= 1"),
    "minibatches": (
        ["algorithm.num_mini_batches=3"],
        r"num_mini_batches: 3 is .* divide .*: 1, 2, 4, 8, 16",
    ),
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
    "no writer and another": (["runner.logger=[none, tensorboard]"], r"runner\.logger: .*'none' cannot be combined"),
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


@pytest.fixture
def config(tmp_path):
    return write(tmp_path / "config.yaml", settings(tmp_path / "logs"))


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_one_line(fault, config, tmp_path, capsys):
    arguments, expected = FAULTS[fault]
    code, lines = call(capsys, train.main, "--config", config, *arguments)
    assert code == 2
    assert len(lines) == 1, lines
    assert re.match(r"error: \S", lines[0])
    assert re.search(expected, lines[0]), lines[0]
    assert not (tmp_path / "logs").exists()


def test_each_fault_has_its_line(config, tmp_path, capsys):
    code, lines = call(capsys, train.main, "--config", config, "algorithm.gama=0.9", "env.num_envs=0", "sed=1")
    assert code == 2
    assert len(lines) == 3
    assert all(line.startswith("error: override ") for line in lines)
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("env: [\n", r"config\.yaml, line 2: not valid YAML"),
        ("", r"config\.yaml: a config is a mapping .*this is empty"),
        ("seed: 1\nseed: 2\n", r"config\.yaml, line 2: .*key 'seed' is given twice"),
        ("seed: 1\n", r"env\.name: it is missing and has no default"),
    ],
)
def test_broken_file(text, expected, config, capsys):
    config.write_text(text)
    code, lines = call(capsys, train.main, "--config", config)
    assert (code, len(lines)) == (2, 1)
    assert re.search(f"^error: .*{expected}", lines[0]), lines[0]


def test_missing_file_and_missing_choice(config, tmp_path, capsys):
    code, lines = call(capsys, train.main, "--config", tmp_path / "confg.yaml")
    assert (code, lines) == (2, [f"error: {tmp_path}/confg.yaml: no such file; nearest is config.yaml"])
    for arguments in ([], ["--config", config, "--resume", tmp_path]):
        code, lines = call(capsys, train.main, *arguments)
        assert (code, lines) == (2, ["error: exactly one of --config FILE and --resume RUN_DIR is needed"])
    code, lines = call(capsys, train.main, "--resume", tmp_path, "--log-dir", tmp_path)
    assert (code, lines) == (2, ["error: --log-dir: a resumed run stays in its folder"])
    code, lines = call(capsys, train.main, "--resume", tmp_path)  # it has a config.yaml
    assert (code, lines) == (2, [f"error: --resume: {tmp_path} is not a run folder: it has no config.json"])
    code, lines = call(capsys, train.main, "--resume", tmp_path / "none")
    assert (code, lines) == (2, [f"error: --resume: {tmp_path}/none is not a run folder: it has no config.yaml"])


def test_wandb_that_is_not_installed(config, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)  # what Python does for a package that cannot be imported
    code, lines = call(capsys, train.main, "--config", config, "runner.logger=wandb")
    assert (code, len(lines)) == (2, 1)
    assert re.search(r"^error: runner\.logger: .*needs the package wandb .*pip install 'strl_jax\[wandb\]'$", lines[0])
    assert not (tmp_path / "logs").exists()


def test_run_folder_that_cannot_be_made(config, tmp_path, capsys):
    (tmp_path / "logs").write_text("a file")
    for arguments in ([], ["--log-dir", tmp_path / "logs" / "run"]):
        code, lines = call(capsys, train.main, "--config", config, *arguments)
        assert (code, len(lines)) == (2, 1)
        assert re.search(r"^error: run folder .*/logs/.*: cannot be created: .*--log-dir", lines[0])


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
            r"env\.kwargs\.control\.delay: \[0\.0, 1\.0\] is not allowed; it must be within \[0, 0\.02\], one control",
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
    code, lines = call(capsys, train.main, "--config", config, "--print-config", *overrides)
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
    inner += [node for name in ("anyOf", "allOf", "oneOf", "prefixItems") for node in schema.get(name, [])]
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
    code, lines = call(
        capsys, train.main, "--config", config, "--log-dir", tmp_path / "run", "runner.logger=my_writers:Closed"
    )
    expected = "error: runner.logger: writer 'my_writers:Closed' did not start: RuntimeError: no connection"
    assert (code, lines) == (2, [f"{expected} ({tmp_path}/my_writers.py:4)"])
    assert not (tmp_path / "run").exists()
    code, lines = call(capsys, train.main, "--config", config, "runner.logger=unfinished:Writer")
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


BROKEN = ["env.name=commands:Broken", "runner.eval_interval=3"]


def test_steps_that_were_cut_are_told_once(config, tmp_path, capsys):
    assert train.main(["--config", str(config), "--log-dir", str(tmp_path / "run"), *BROKEN]) == 0
    cut = [line["Train/invalid_steps"] for line in log(tmp_path / "run")]
    out, err = capsys.readouterr()
    assert re.search(r"^last evaluation: every episode was invalid", out, re.MULTILINE)
    assert len(cut) > 1
    assert set(cut) == {16.0}  # 4 environments x 4 steps
    told = [line for line in (out + err).splitlines() if line.startswith("warning: iteration")]
    origin, cut_steps = told
    assert "env 0 of 4: reward is not finite" in origin
    assert re.search(r"iteration 1: 16 of 16 steps .*nothing was learned.*Train/invalid_steps", cut_steps)


def test_real_command(config, tmp_path):
    code, out, err = run("--config", config, "algorithm.gama=0.9")
    assert (code, out) == (2, "")
    assert err == "error: override 'algorithm.gama=0.9': algorithm.gama: unknown key; nearest is gamma\n"
    assert not (tmp_path / "logs").exists()
