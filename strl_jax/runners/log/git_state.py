"""Code version of a run: commit, branch and uncommitted changes of git repositories."""

import itertools
import os
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import strl_jax

TIMEOUT = 60.0  # seconds for one git command
# Variables of git hooks. With them git would use another repository than the given one.
REDIRECTS = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")

# With the user's own settings of ``git diff``, ``git apply`` may not accept the patch.
PATCH = (
    "--binary",
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--submodule=short",
    "--ignore-submodules=dirty",
)


class _GitError(Exception):
    """git is missing, too slow, or refused; the message is one line."""


def store_code_state(run_dir: Path | str, repositories: Iterable[Path | str], warn: Callable[[str], object]) -> None:
    """Writes the state of each repository to RUN_DIR/git/NAME.diff.

    A file contains commit, branch and ``git status --porcelain`` (only the names of
    untracked files) as comment lines, then ``git diff --binary HEAD``: ``git apply`` restores
    the tracked files on top of that commit. A file is never overwritten. A second repository
    with the same name, or a later resume with other code, writes NAME.2.diff and so on.

    Args:
        run_dir: folder of the run.
        repositories: files or folders inside git repositories; each repository is stored once.
        warn: called with one line for each path whose state cannot be stored.
    """
    stored = set()
    for path in repositories:
        try:
            root = _root(Path(path))
            if root not in stored:
                _store(Path(run_dir) / "git", root.name, _describe(root))
            stored.add(root)
        except (_GitError, OSError) as error:
            warn(f"git state of {path} not stored: {error}")


def own_repository() -> list[Path]:
    """The repository of this package, if it is installed from a clone."""
    source = Path(strl_jax.__file__).parents[1]  # a clone, or the site-packages of an installed wheel
    return [source] if (source / ".git").exists() else []


def _git(folder: Path, *arguments: str) -> bytes:
    """Standard output of one git command in ``folder``."""
    environment = {name: value for name, value in os.environ.items() if name not in REDIRECTS}
    # Without optional locks this does not disturb a commit that the user makes at the same time.
    environment |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            check=False,
            timeout=TIMEOUT,
            env=environment,
            stdin=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C ends this program, not the command in progress
        )
    except FileNotFoundError:
        raise _GitError("there is no git executable") from None
    except subprocess.TimeoutExpired:
        raise _GitError(f"git {arguments[0]} took longer than {TIMEOUT:.0f} s") from None
    if done.returncode != 0:
        message = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit status {done.returncode}"]
        raise _GitError(f"git {arguments[0]}: {message[0]}")
    return done.stdout


def _root(path: Path) -> Path:
    """Top folder of the repository of ``path``."""
    if not path.exists():
        raise _GitError("there is no such file or folder")
    folder = path if path.is_dir() else path.parent
    return Path(os.fsdecode(_git(folder, "rev-parse", "--show-toplevel").removesuffix(b"\n")))


def _describe(root: Path) -> bytes:
    """Content of the stored file."""
    status = _git(root, "status", "--porcelain", "--untracked-files=all").splitlines()
    branch = _git(root, "branch", "--show-current").strip() or b"(detached)"
    try:
        commit = _git(root, "rev-parse", "--verify", "HEAD").strip()
        diff = _git(root, "diff", *PATCH, "HEAD")
    except _GitError:
        commit, diff = b"(none yet)", b""
    header = [b"repository: " + os.fsencode(root), b"commit: " + commit, b"branch: " + branch]
    header += [b"status: " + (b"" if status else b"clean"), *status]
    return b"".join(b"# " + line.rstrip() + b"\n" for line in header) + b"\n" + diff


def _store(folder: Path, name: str, text: bytes) -> None:
    """Writes to the first of NAME.diff, NAME.2.diff ... that does not exist or already contains ``text``."""
    folder.mkdir(parents=True, exist_ok=True)
    names = itertools.chain([f"{name}.diff"], (f"{name}.{number}.diff" for number in itertools.count(2)))
    files = (folder / file_name for file_name in names)
    file = next(file for file in files if not file.exists() or file.read_bytes() == text)
    file.write_bytes(text)
