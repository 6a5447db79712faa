"""The README keeps its word: examples run, commands parse, files exist, the config table is the config's.

Run as a script, this prints the README's config reference.
"""

import ast
import inspect
import math
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml

from strl_jax import bench, config, play, train
from strl_jax.algorithms.appo import AmpFields
from strl_jax.algorithms.estimator import EstimatorFields
from strl_jax.algorithms.lr_schedulers import SCHEDULERS
from strl_jax.algorithms.optimizers import OPTIMIZERS
from strl_jax.algorithms.rnd_config import RNDConfig, WeightSchedule
from strl_jax.algorithms.schedules import SCHEDULES
from strl_jax.algorithms.tppo import TeacherFields
from strl_jax.config import schema
from strl_jax.config.policy import FIELDS, DiscriminatorConfig, EncoderKwargs, MlpKwargs
from strl_jax.config.sections import ALGORITHMS
from strl_jax.interop import export, torch_checkpoint

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
TABLE = re.compile(r"(<!-- config reference: .*? -->\n)(.*?)(<!-- end of config reference -->)", re.DOTALL)
COMMANDS = {
    "strl_jax.train": train.parse,
    "strl_jax.bench": bench.parse,
    "strl_jax.play": play.parse,
    "strl_jax.interop.torch_checkpoint": torch_checkpoint.parse,
    "strl_jax.interop.export": export.parse,
}


def blocks(language: str) -> list[str]:
    """The README's code blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)


def commands() -> list[list[str]]:
    """Every command of the README's bash blocks, as words."""
    lines = [line for block in blocks("bash") for line in block.replace("\\\n", " ").splitlines()]
    return [shlex.split(part, comments=True) for line in lines for part in line.split("&&") if part.strip()]


def own_commands() -> list[list[str]]:
    """Those that run this package: the module, then its arguments."""
    return [words[words.index("-m") + 1 :] for words in commands() if any(name in words for name in COMMANDS)]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A working folder with the files that the README shows, and experiments/ beside them."""
    for block in blocks("python") + blocks("yaml"):
        name = re.match(r"# (\S+\.(?:py|yaml))\n", block)
        if name:
            file = tmp_path / name[1]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block)
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.split(".")[0] == "my_package"]:
        del sys.modules[name]


def python_example(start: str) -> str:
    """The one Python block that begins with ``start``."""
    (found,) = [block for block in blocks("python") if block.startswith(start)]
    return found


def test_own_environment_and_own_writer_train(project, capsys):
    small = ["env.num_envs=16", "runner.num_steps_per_env=4", "env.episode_length=3", "runner.num_eval_envs=4"]
    short = ["runner.max_iterations=2", "runner.eval_interval=2", "runner.logger=my_package.my_writer:CsvWriter"]
    assert train.main(["--config", "cart.yaml", "--log-dir", "run", *small, *short]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("compiling\nit 1/2 |")
    assert "2 iterations, 128 env steps" in printed  # 2 x 16 x 4
    # Episodes of 3 steps, the first at random ages: two or three of 8 steps, fewer than 100 of 16 environments.
    assert 32 <= int(re.search(r"\nlast (\d+) episodes: mean return", printed)[1]) <= 48
    assert "\ntime in the loop:\nsection " in printed
    assert [line.split(",")[0] for line in Path("run/reward_from_1.csv").read_text().splitlines()] == ["1", "2"]
    assert "Episode_Reward/reward_tracking" in Path("run/metrics.jsonl").read_text()
    assert {path.name for path in Path("run").iterdir()} >= {
        "config.yaml",
        "config.json",
        "checkpoints",
        "metrics.jsonl",
    }
    assert {path.name for path in Path("run/checkpoints").iterdir()} == {"last", "numbered", "best"}


def test_runner_example_runs(project, capsys):
    example = python_example("from my_package.my_module import")
    short = example.replace('"env": {', '"env": {"episode_length": 3, ')
    assert short != example
    names = {}
    exec(compile(short, "README", "exec"), names)
    mean_return = float(capsys.readouterr().out.strip().splitlines()[-1])
    assert 0.0 < mean_return <= 3.0  # three steps of a reward in (0, 1]
    assert Path("logs/cart_from_python/checkpoints/last/2").is_dir()
    obs = {name: jax.numpy.zeros((5, 1)) for name in ("velocity", "command")}
    assert names["policy"](obs).shape == (5, 1)


def test_callback_example_runs(project, capsys):
    exec(compile(python_example("from strl_jax.runners.callbacks import"), "README", "exec"), {})
    assert capsys.readouterr().out.splitlines()[-1] in ("None", "terminate_early")


KERNEL = "import jax\nimport jax.numpy as jnp\n\nfrom strl_jax.kernels"


def test_kernel_example_runs():
    names = {}
    exec(compile(python_example(KERNEL), "README", "exec"), names)
    arguments = (jnp.zeros(4096), jnp.zeros(4096), jnp.ones(4096))
    for wanted, got in zip(jax.vmap(names["pendulum"])(*arguments), (names["angle"], names["velocity"]), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_update_example_runs(capsys):
    names = {}
    exec(compile(python_example("import functools"), "README", "exec"), names)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert all(re.fullmatch(r"value loss \d+\.\d{3}, KL \d\.\d{4}", line) for line in lines)
    assert int(names["train_state"].iteration) == 3
    before, after = names["algorithm"].init(jax.random.key(0)).params, names["train_state"].params
    moved = jax.tree.map(lambda a, b: bool((a != b).any()), before, after)
    assert all(jax.tree.leaves(moved))


def test_loops_of_the_other_algorithms_run(capsys):
    exec(compile(python_example("import jax\nimport numpy"), "README", "exec"), {})
    logged = [ast.literal_eval(line) for line in capsys.readouterr().out.splitlines()]
    assert len(logged) == 6  # three iterations of each
    assert all("distillation_loss" in line for line in logged[:3])
    assert all("discriminator_expert_loss" in line for line in logged[3:])
    assert all(math.isfinite(value) for line in logged for value in line.values())
    assert logged[0]["kl"] < 1e-4  # one update of one epoch: the ratio is 1


def test_the_folder_above_the_clone_is_a_place_to_work_in(tmp_path):
    """There the clone itself looks like a package without code."""
    (tmp_path / "strl_jax").symlink_to(ROOT)
    command = [sys.executable, "-c", "import strl_jax; print(strl_jax.__file__)"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()
    assert Path(found).name == "__init__.py"


def test_every_python_block_runs_in_a_test():
    own = ("# my_package/my_module.py", "from my_package.my_module")
    mutex = "from strl_jax.runners.on_policy import OnPolicyRunner\n\nwalk"  # in test_legged_mutex
    callback = "from strl_jax.runners.callbacks import"
    loops = ("import functools", "import jax\nimport numpy")
    starts = ("# my_package/my_writer.py", mutex, *own, callback, *loops, KERNEL)
    assert [next((s for s in starts if block.startswith(s)), block) for block in blocks("python")] == list(starts)


@pytest.mark.parametrize("words", own_commands(), ids=" ".join)
def test_command_parses_and_its_config_is_valid(words, project):
    arguments = COMMANDS[words[0]](words[1:])
    if getattr(arguments, "config", None) is not None:
        _, warnings = config.load(arguments.config, arguments.overrides)
        assert warnings == []


def test_readme_has_the_two_commands_that_set_everything_up():
    assert ["strl_jax.train", "--config", "experiments/quickstart.yaml"] in own_commands()
    assert ["bash", ".ci/run"] in commands()
    subprocess.run(["bash", "-n", ROOT / ".ci" / "run"], check=True)


def test_files_named_in_the_readme_exist():
    text = README.read_text()
    links = re.findall(r"\]\((?!https?:|#)([^)]+)\)", text)
    named = re.findall(r"(?:experiments|docs|tests|\.ci)/[\w./-]*\w|requirements[\w-]*\.txt", text)
    assert [name for name in links + named if not (ROOT / name).exists()] == []
    assert {"LICENSE", "docs/decisions.md", "experiments/ant_mjx.yaml", ".ci/run"} <= {*links, *named}


def test_extras_named_in_the_readme_exist():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    text = README.read_text()
    assert set(re.findall(r"'\.\[(\w+)\]'", text)) - {"NAME"} <= set(extras)
    (section,) = re.findall(r"^## Extras\n(.*?)^## ", text, re.DOTALL | re.MULTILINE)
    assert [name for name in extras if f"`{name}`" not in section] == []


def test_differences_are_those_that_compat_switches():
    (section,) = re.findall(r"^## Differences from st_rl\n(.*?)^## ", README.read_text(), re.DOTALL | re.MULTILINE)
    keys = re.findall(r"\| `(\w+)` \|$", section, re.MULTILINE)
    assert keys == list(config.json_schema()["$defs"]["Compat"]["properties"])


def test_schedules_named_in_the_readme_are_those_there_are():
    (names,) = re.findall(r"available schedules are ((?:`\w+`[,.]\s)+)", README.read_text())
    assert re.findall(r"`(\w+)`", names) == list(SCHEDULES)


def test_config_reference_is_the_schema():
    found = TABLE.search(README.read_text())
    assert found[2] == config_reference(), "print it anew with: python tests/unit/test_readme.py"


def config_reference() -> str:
    """A table of each section: key, type, default, meaning."""
    schema = config.json_schema()
    top = {"properties": {k: v for k, v in schema["properties"].items() if model_of(v) is None or "anyOf" in v}}
    tables = ["### Top level\n\n" + table(top)]
    sections = {"env": "EnvConfig", "env.groups": "GroupsConfig", "policy": "PolicyConfig", "algorithm": "PPOConfig"}
    for key, model in (sections | {"runner": "RunnerConfig", "compat": "Compat"}).items():
        tables.append(f"### `{key}`\n\n" + table(schema["$defs"][model]))
        tables += class_tables() if key == "policy" else []
        tables += algorithm_tables() if key == "algorithm" else []
    return "\n" + "\n".join(tables) + "\n"


def algorithm_tables() -> list[str]:
    """What single algorithms take besides, a table for each set of keywords."""
    tables = [f"### optimizer_kwargs\n\n{arguments(OPTIMIZERS)}"]
    for key, model in {"rnd_cfg": RNDConfig, "weight_schedule": WeightSchedule}.items():
        tables.append(f"### {key}\n\n{table(schema.json_schema(model))}")
    for fields in (EstimatorFields, TeacherFields, AmpFields):
        names = [name for name, kind in ALGORITHMS.items() if issubclass(kind, fields)]
        own = table(schema.json_schema(fields))
        tables.append(f"### `algorithm` of {', '.join(names)}\n\nWhat they take besides.\n\n{own}")
    return [*tables, f"### lr_scheduler\n\n{arguments(SCHEDULERS)}"]


def arguments(classes: dict) -> str:
    """One row for every class of torch: its arguments, with their defaults."""
    rows = ["| class | arguments |", "|---|---|"]
    for name, kind in classes.items():
        fields = {key: "" if each.is_required() else f" {each.default!r}" for key, each in kind.model_fields.items()}
        rows.append(f"| `{name}` | {', '.join(f'`{key}`{default}' for key, default in fields.items())} |")
    return "\n".join(rows) + "\n"


def class_tables() -> list[str]:
    """What single policy classes take besides, a table for each set of keywords."""
    owners: dict[type, list[str]] = {}
    for name, groups in FIELDS.items():
        for group in groups:
            owners.setdefault(group, []).append(name)
    tables = []
    for group, names in owners.items():
        title = f"### `policy` of {', '.join(names)}\n\n{inspect.getdoc(group).splitlines()[0]}\n\n"
        tables.append(title + table(schema.json_schema(group)))
    parts = {"estimator_kwargs, adaptor_kwargs": MlpKwargs, "encoder_kwargs, visual_kwargs": EncoderKwargs}
    parts["amp_discriminator"] = DiscriminatorConfig
    for name, model in parts.items():
        tables.append(f"### {name}\n\n" + table(schema.json_schema(model)))
    return tables


def table(model: dict) -> str:
    """One row for every property of a model's schema."""
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    required = model.get("required", [])
    for name, entry in model["properties"].items():
        default = "required" if name in required else default_of(entry)
        meaning = entry["description"].replace("|", "\\|")
        rows.append(f"| `{name}` | {type_of(entry)} | {default} | {meaning} |")
    return "\n".join(rows) + "\n"


def default_of(entry: dict) -> str:
    """The default in YAML."""
    if model_of(entry) is not None and "anyOf" not in entry:
        return ""
    text = yaml.safe_dump(entry.get("default", {}), default_flow_style=True, width=1000).removesuffix("...\n").strip()
    return f"`{text}`"


def type_of(entry: dict) -> str:
    """A property's type in words, with its bounds."""
    if "anyOf" in entry:
        return " or ".join(dict.fromkeys(map(type_of, entry["anyOf"])))
    if "enum" in entry or "const" in entry:
        return ", ".join(f"`{value}`" for value in entry.get("enum", [entry.get("const")]))
    if model_of(entry) is not None:
        return "mapping, see below"
    if "oneOf" in entry:  # the schedules
        return "mapping"
    if entry["type"] == "array":
        if "prefixItems" in entry:
            return f"list of {len(entry['prefixItems'])} {type_of(entry['prefixItems'][0])}"
        return f"list of {type_of(entry['items'])}"
    if entry["type"] == "object":
        return "mapping"
    signs = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    bounds = [f"{sign} {entry[bound]}" for bound, sign in signs.items() if bound in entry]
    return " ".join([entry["type"], *bounds[:1], *(f"and {bound}" for bound in bounds[1:])])


def model_of(entry: dict) -> str | None:
    """Name of the model that a property refers to, also as one of several types."""
    names = [kind["$ref"].rsplit("/", 1)[1] for kind in (entry, *entry.get("anyOf", ())) if "$ref" in kind]
    return names[0] if names else None


if __name__ == "__main__":
    print(config_reference(), end="")
