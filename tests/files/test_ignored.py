"""What ``.gitignore`` files leave out of a check of a folder."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from oomlint.config.settings import load
from oomlint.errors import UsageError
from oomlint.files.ignored import Ignored, is_costly
from oomlint.session.jobs import make_jobs
from oomlint.session.request import CheckRequest

FILES = {
    ".gitignore": "/scratch/\n*.local.yaml\n!keep.local.yaml\n\\\n",
    "configs/.gitignore": "tried/*\n!tried/best.yaml\n",
    "train.yaml": "",
    "a.local.yaml": "",
    "keep.local.yaml": "",
    "scratch/a.yaml": "",
    "deep/scratch/a.yaml": "",
    "configs/tried/best.yaml": "",
    "configs/tried/other.yaml": "",
}
SEEN = {"train.yaml", "keep.local.yaml", "deep/scratch/a.yaml", "configs/tried/best.yaml"}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / ".git").mkdir()
    return tmp_path


def names(folder: Path, *paths: str) -> set[str]:
    jobs = make_jobs(CheckRequest(), paths or (".",), cwd=folder)
    return {name for job in jobs for name in job.names}


def test_a_walk_sees_what_git_sees(repository: Path) -> None:
    assert names(repository) == SEEN


def test_git_says_the_same(repository: Path) -> None:
    (repository / ".git").rmdir()
    subprocess.run(["git", "init", "-q"], cwd=repository, check=True)
    command = ["git", "ls-files", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=repository, check=True, capture_output=True, text=True)
    found = {name for name in listed.stdout.split() if name.endswith(".yaml")}
    assert names(repository) == found == SEEN


@pytest.mark.parametrize("version", ["2", "4"])
def test_what_git_tracks_is_left_out_by_no_pattern(repository: Path, version: str) -> None:
    (repository / ".git").rmdir()
    for command in (
        ["init", "-q"],
        ["config", "index.version", version],
        ["add", "-f", "scratch/a.yaml", "a.local.yaml", "train.yaml"],
    ):
        subprocess.run(["git", *command], cwd=repository, check=True)
    (repository / "scratch" / "b.yaml").write_text("")
    assert names(repository) == SEEN | {"scratch/a.yaml", "a.local.yaml"}


@pytest.mark.parametrize(
    "index", [b"", b"DIRC\0\0\0\x02\0\0\0\x09", b"DIRC\0\0\0\x07\0\0\0\x01", b"x" * 200]
)
def test_an_index_that_is_none_tells_nothing(repository: Path, index: bytes) -> None:
    (repository / ".git" / "index").write_bytes(index)
    assert names(repository) == SEEN


def test_a_worktree_has_its_index_elsewhere(
    repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (repository / ".git").rmdir()
    place = tmp_path_factory.mktemp("kept")
    for command in (
        ["init", "-q", "--separate-git-dir", str(place / "git")],
        ["add", "-f", "scratch/a.yaml"],
    ):
        subprocess.run(["git", *command], cwd=repository, check=True)
    assert (repository / ".git").is_file()
    assert names(repository) == SEEN | {"scratch/a.yaml"}


def test_what_is_named_is_checked(repository: Path) -> None:
    assert names(repository, "a.local.yaml") == {"a.local.yaml"}
    assert names(repository, "scratch") == {"scratch/a.yaml"}


def test_outside_of_a_repository_nothing_is_left_out(repository: Path) -> None:
    (repository / ".git").rmdir()
    assert len(names(repository)) == len(FILES) - 2


def test_settings_turn_it_off(repository: Path) -> None:
    (repository / "oomlint.toml").write_text("respect-gitignore = false\n")
    assert {"a.local.yaml", "scratch/a.yaml"} <= names(repository)


def test_a_pattern_that_never_ends_is_passed_over(repository: Path) -> None:
    stars = "*a" * 40
    (repository / ".gitignore").write_text(f"{stars}b\n{'**/' * 20}x\ntrain.yaml\n")
    long = repository / f"{'a' * 60}.yaml"
    long.write_text("")
    assert names(repository) >= {long.name}
    assert "train.yaml" not in names(repository)
    assert not Ignored().covers(str(long), is_folder=False)


@pytest.mark.parametrize("pattern", ["*a*b*c*", "**/a/**/b/**/c/**", "a" * 5000])
def test_settings_refuse_such_a_pattern(pattern: str, tmp_path: Path) -> None:
    assert is_costly(pattern)
    (tmp_path / "oomlint.toml").write_text(f"exclude = [{json.dumps(pattern)}]\n")
    with pytest.raises(UsageError, match=r"oomlint\.toml:1: .*(more stars|longer than any)"):
        load(tmp_path / "oomlint.toml")
