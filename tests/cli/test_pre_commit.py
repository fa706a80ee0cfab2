"""The hooks, run by the real pre-commit in a real repository, installed by pip."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PACKAGE = ("pyproject.toml", "README.md", "LICENSE", ".pre-commit-hooks.yaml", "lint", "rules", "schemas")  # fmt: skip

CONFIG = """\
base_model: meta-llama/Llama-3.2-3B
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_length: 4096
micro_batch_size: 1
gradient_checkpointing: true
"""

# What pip says when there is no index to reach; any other failure is ours.
UNREACHABLE = ("No matching distribution", "ConnectionError", "NewConnectionError", "Could not find a version")  # fmt: skip


def git(folder, *arguments):
    identity = (
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@example.org",
        "-c",
        "init.defaultBranch=main",
    )
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def hooks(tmp_path_factory):
    """A repository that offers the hooks, from the files as they are now."""
    pytest.importorskip("pre_commit")
    folder = tmp_path_factory.mktemp("hooks")
    for name in PACKAGE:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "hooks")
    return folder


@pytest.fixture(scope="module")
def pre_commit(hooks, tmp_path_factory):
    """Runs one hook on all files of a repository; environments are built once."""
    home = tmp_path_factory.mktemp("pre-commit-home")

    def run(hook, folder):
        (folder / ".pre-commit-config.yaml").write_text(
            f"repos:\n  - repo: {hooks}\n    rev: main\n    hooks:\n      - id: {hook}\n"
        )
        git(folder, "add", "-A")
        done = subprocess.run(
            [sys.executable, "-m", "pre_commit", "run", hook, "--all-files", "--color", "never"],
            cwd=folder,
            env={**os.environ, "PRE_COMMIT_HOME": str(home)},
            capture_output=True,
            text=True,
            check=False,
        )
        if any(word in done.stdout for word in UNREACHABLE):
            pytest.skip("pip cannot install the hook's dependencies here")
        return done

    return run


@pytest.fixture
def project(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "axolotl.yaml").write_text(CONFIG)
    (tmp_path / "other.yaml").write_text("a: [1,\n  2]\n")
    return tmp_path


def test_check_hook_reports_and_changes_nothing(pre_commit, project):
    done = pre_commit("oomlint", project)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "warning OOM801" in done.stdout
    assert "--> axolotl.yaml:5:1" in done.stdout
    assert (project / "axolotl.yaml").read_text() == CONFIG


def test_fix_hook_rewrites_and_then_passes(pre_commit, project):
    done = pre_commit("oomlint-fix", project)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "fixed axolotl.yaml: OOM801 unknown-key-ignored: rename sequence_length" in done.stdout
    assert "sequence_len: 4096\n" in (project / "axolotl.yaml").read_text()
    again = pre_commit("oomlint-fix", project)
    assert again.returncode == 0, again.stdout + again.stderr
