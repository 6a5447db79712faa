"""Imports point one way, and importing the package starts no backend."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import strl_jax

ROOT = Path(strl_jax.__file__).parent

# From the lowest floor up: a part may import the parts on the floors below its own, and itself.
FLOORS = (
    ("types", "observations", "sharding", "section", "kernels"),
    ("modules", "storage", "envs"),
    ("algorithms",),
    ("config", "torch_files"),
    ("run_folder",),
    ("builders",),
    ("runners",),
    ("viewer", "interop"),
    ("train", "bench", "play"),
)
ALLOWED: dict[str, set[str]] = {
    part: {lower for below in FLOORS[:number] for lower in below}
    for number, floor in enumerate(FLOORS)
    for part in floor
}
ALLOWED |= {
    "__init__": {"runners"},  # OnPolicyRunner, at its first use
    "envs": {"types", "section", "kernels"},  # usable with any learner
    "storage": {"types"},
    "viewer/draw": set(),  # a process of its own that draws, and needs no JAX
}
VERSION = {"runners", "train", "bench", "play"}  # they may import the package itself, for its version and its place
FILES = sorted(ROOT.rglob("*.py"))


def part_of(module: str) -> str:
    """``strl_jax.algorithms.ppo`` to ``algorithms``; the package itself is ``__init__``."""
    return module.split(".")[1] if "." in module else "__init__"


def imported_parts(source: str, package: str) -> set[str]:
    """Parts of strl_jax that the source of a module in ``package`` imports, at any depth of the code."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names = [f"{base}.{alias.name}" for alias in node.names] if base == "strl_jax" else [base]
        else:
            continue
        found |= {part_of(name) for name in names if name.split(".")[0] == "strl_jax"}
    return found


def is_part(name: str) -> bool:
    return (ROOT / name).is_dir() or (ROOT / f"{name}.py").is_file()


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_arrows(path):
    relative = path.relative_to(ROOT)
    part = relative.parts[0].removesuffix(".py")
    assert part in ALLOWED, f"{relative}: say in this test what {part} may import"
    package = ".".join(["strl_jax", *relative.parts[:-1]])
    parts = {name if is_part(name) else "__init__" for name in imported_parts(path.read_text(), package)}
    allowed = ALLOWED.get(relative.with_suffix("").as_posix(), ALLOWED[part])
    wrong = parts - allowed - {part} - ({"__init__"} if part in VERSION else set())
    assert not wrong, f"{relative} imports {', '.join(sorted(wrong))}"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import strl_jax.train", {"train"}),
        ("import strl_jax", {"__init__"}),
        ("from strl_jax import bench, types", {"bench", "types"}),
        ("def f():\n    from strl_jax.runners.loop import Loop", {"runners"}),
        ("from ..runners import loop", {"runners"}),
        ("from . import mlp", {"modules"}),
        ("from .. import train", {"train"}),
        ("import jax\nfrom flax import linen", set()),
    ],
)
def test_imports_are_seen(source, expected):
    assert imported_parts(source, "strl_jax.modules") == expected


def test_importing_starts_no_backend():
    modules = "strl_jax, strl_jax.algorithms.train_step, strl_jax.runners.on_policy"
    count = "print(len(xla_bridge._backends))"
    code = f"import {modules}, jax; from jax._src import xla_bridge; {count}; jax.devices(); {count}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["0", "1"], done.stderr


def test_the_package_imports_the_runner_at_its_first_use():
    code = """
import sys
import strl_jax
assert not [name for name in sys.modules if name.startswith("strl_jax.") or name == "jax"], "import strl_jax"
assert not hasattr(strl_jax, "OnPolicyRuner")
from strl_jax import OnPolicyRunner
from jax._src import xla_bridge
assert OnPolicyRunner is sys.modules["strl_jax.runners.on_policy"].OnPolicyRunner
assert not xla_bridge._backends, "from strl_jax import OnPolicyRunner"
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


SUITE = Path(__file__).parents[1]
TESTS = sorted(SUITE.rglob("*.py"))
LINES, FUNCTION_LINES = 300, 60
EMPTY_NAMES = {  # they do not say what a module holds
    *("arguments", "choice", "failures", "first_save", "leaves", "live", "records", "starts", "watched", "windows"),
}
# What these tests look at has no public name: a simulator and its state behind an adapter, what rich draws.
KNOWN_PRIVATE = {
    "unit/test_brax.py": {"_leaves", "_env"},
    "unit/test_playground.py": {"_leaves", "_env", "_config"},
    "unit/test_console.py": {"_screen"},
}


def private_names(source: str) -> set[str]:
    """Names with a leading underscore that a test takes from strl_jax, or from anything that it has not imported.

    Attributes of ``self`` and of other packages are left out, and those with a public meaning, such as ``_replace``.
    """
    tree, theirs, found = ast.parse(source), {"self", "cls", "super()"}, set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            ours = isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "strl_jax"
            names = {alias.asname or alias.name.split(".")[0] for alias in node.names}
            found |= {name for name in names if ours and name.startswith("_")}
            theirs |= set() if ours else names
    for node in ast.walk(tree):
        hidden = isinstance(node, ast.Attribute) and re.fullmatch("_(?!_|replace|asdict).*", node.attr)
        if hidden and ast.unparse(node.value) not in theirs:
            found.add(node.attr)
    return found


def imported_tests(source: str) -> set[str]:
    """Modules of tests that the source imports, or names in a string such as ``test_play:Walk``."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and ":" in node.value:
            found.add(node.value.split(":")[0])
    return {name for name in found if name.split(".")[-1].startswith("test_") and name.isidentifier()}


@pytest.mark.parametrize("path", TESTS, ids=lambda path: str(path.relative_to(SUITE)))
def test_tests_share_nothing_private(path):
    source, name = path.read_text(), path.relative_to(SUITE).as_posix()
    assert imported_tests(source) <= {path.stem}  # a test may name its own classes in a config
    assert private_names(source) <= KNOWN_PRIVATE.get(name, set())


def test_what_tests_share_is_seen():
    assert imported_tests("from test_a import f\nimport test_b\nname = 'test_c:Walk'\nimport tiny") == {
        "test_a",
        "test_b",
        "test_c",
    }
    source = "import numpy\nfrom strl_jax.envs import _x, brax\nenv._y\nbrax._z\nnumpy._a\nself._b\n(1, 2)._replace()"
    assert private_names(source) == {"_x", "_y", "_z"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_is_small_and_its_name_says_something(path):
    assert path.stem not in EMPTY_NAMES
    source = path.read_text()
    assert source.count("\n") <= LINES
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < FUNCTION_LINES, f"{node.name} in line {node.lineno}"
