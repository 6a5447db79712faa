import subprocess
from pathlib import Path

import pytest

from strl_jax.runners.log.git_state import store_code_state


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
    done = subprocess.run(["git", "-C", folder, *identity, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def make_repository(folder: Path) -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=work")
    (folder / "code.py").write_text("speed = 1\n")
    git(folder, "add", "code.py")
    git(folder, "commit", "--quiet", "--message=first")
    return folder


def stored(run: Path, repositories) -> list[Path]:
    """The files in RUN/git after storing the repositories without a warning, oldest name first."""
    store_code_state(run, repositories, warn=pytest.fail)
    return sorted((run / "git").iterdir(), key=lambda file: (len(file.name), file.name))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "robot")


def test_commit_branch_status_and_diff_are_stored(repository, tmp_path):
    (repository / "code.py").write_text("speed = 2\n")
    (repository / "notes").mkdir()
    (repository / "notes" / "new.txt").write_text("secret contents")
    [file] = stored(tmp_path / "run", [repository])
    assert file == tmp_path / "run" / "git" / "robot.diff"
    text = file.read_text()
    assert f"# repository: {repository}\n" in text
    assert f"# commit: {git(repository, 'rev-parse', 'HEAD')}\n" in text
    assert "# branch: work\n" in text
    assert "#  M code.py\n" in text
    assert "# ?? notes/new.txt\n" in text
    assert "-speed = 1\n+speed = 2\n" in text
    assert "secret contents" not in text


def test_the_file_is_a_patch_that_restores_the_work(repository, tmp_path):
    (repository / "code.py").write_text("speed = 2\n")
    [file] = stored(tmp_path / "run", [repository])
    git(repository, "checkout", "--", "code.py")
    git(repository, "apply", str(file))
    assert (repository / "code.py").read_text() == "speed = 2\n"


def test_the_patch_restores_binary_files(repository, tmp_path):
    picture, before, after = repository / "map.png", bytes(range(256)), bytes(range(255, -1, -1)) * 3
    picture.write_bytes(before)
    git(repository, "add", "map.png")
    git(repository, "commit", "--quiet", "--message=second")
    picture.write_bytes(after)
    (repository / "new.npy").write_bytes(b"\x00\xff\x00")
    git(repository, "add", "new.npy")
    [file] = stored(tmp_path / "run", [repository])
    git(repository, "reset", "--quiet", "--hard")
    assert picture.read_bytes() == before
    git(repository, "apply", str(file))
    assert picture.read_bytes() == after
    assert (repository / "new.npy").read_bytes() == b"\x00\xff\x00"


@pytest.mark.parametrize(
    "setting", ["diff.noprefix=true", "diff.mnemonicPrefix=true", "diff.submodule=log", "color.diff=always"]
)
def test_settings_of_the_user_do_not_change_the_patch(setting, repository, tmp_path):
    git(repository, "config", *setting.split("="))
    (repository / "code.py").write_text("speed = 2\n")
    [file] = stored(tmp_path / "run", [repository])
    git(repository, "checkout", "--", "code.py")
    git(repository, "apply", str(file))
    assert (repository / "code.py").read_text() == "speed = 2\n"


def test_staged_changes_are_in_the_diff(repository, tmp_path):
    (repository / "code.py").write_text("speed = 3\n")
    git(repository, "add", "code.py")
    [file] = stored(tmp_path / "run", [repository])
    assert "+speed = 3\n" in file.read_text()


def test_a_file_inside_stands_for_its_repository_which_is_stored_once(repository, tmp_path):
    files = stored(tmp_path / "run", [repository / "code.py", str(repository)])
    assert [file.name for file in files] == ["robot.diff"]
    assert "# status: clean\n" in files[0].read_text()


def test_repositories_of_one_name_get_two_files(repository, tmp_path):
    other = make_repository(tmp_path / "elsewhere" / "robot")
    files = stored(tmp_path / "run", [repository, other])
    assert [file.name for file in files] == ["robot.diff", "robot.2.diff"]
    assert f"# repository: {repository}\n" in files[0].read_text()
    assert f"# repository: {other}\n" in files[1].read_text()


def test_a_resume_with_other_code_keeps_the_first_file(repository, tmp_path):
    run = tmp_path / "run"
    [first] = stored(run, [repository])
    assert stored(run, [repository]) == [first]
    before = first.read_text()
    (repository / "code.py").write_text("speed = 2\n")
    [_, second] = stored(run, [repository])
    assert second.name == "robot.2.diff"
    assert first.read_text() == before


def test_a_repository_without_commits_is_stored(tmp_path):
    folder = tmp_path / "young"
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "code.py").write_text("")
    [file] = stored(tmp_path / "run", [folder])
    assert "# commit: (none yet)\n" in file.read_text()
    assert "# ?? code.py\n" in file.read_text()


def test_paths_that_cannot_be_stored_give_one_line_each(repository, tmp_path):
    plain = tmp_path / "plain"
    plain.mkdir()
    lines = []
    store_code_state(tmp_path / "run", [plain, tmp_path / "gone", repository], warn=lines.append)
    assert [file.name for file in (tmp_path / "run" / "git").iterdir()] == ["robot.diff"]
    assert lines[0].startswith(f"git state of {plain} not stored: git rev-parse: fatal: not a git repository")
    assert lines[1] == f"git state of {tmp_path / 'gone'} not stored: there is no such file or folder"
    assert len(lines) == 2
    assert "\n" not in lines[0]


def test_without_git_there_is_one_warning(repository, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    lines = []
    store_code_state(tmp_path / "run", [repository], warn=lines.append)
    assert lines == [f"git state of {repository} not stored: there is no git executable"]
    assert not (tmp_path / "run").exists()


def test_variables_of_a_git_hook_do_not_mislead(repository, tmp_path, monkeypatch):
    commit = git(repository, "rev-parse", "HEAD")
    other = make_repository(tmp_path / "other")
    git(other, "commit", "--quiet", "--allow-empty", "--message=second")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    [file] = stored(tmp_path / "run", [repository])
    assert f"# commit: {commit}\n" in file.read_text()
