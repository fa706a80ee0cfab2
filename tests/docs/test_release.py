"""What a release has to agree about, and what people fill in when they report something."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

import oomlint

from .conftest import ROOT

VERSION = oomlint.__version__


def test_the_version_is_the_same_wherever_it_stands() -> None:
    said = {
        "pyproject.toml": r'^version = "(.+)"',
        "CITATION.cff": r"^version: (.+)",
        ".pre-commit-hooks.yaml": None,
        "README.md": r"rev: v(.+)",
        "docs/ci.md": r"(?:rev: |oomlint@|\.git@|/oomlint@)v([\d.]+)",
        "docs/review.md": r"/oomlint@v([\d.]+)",
    }
    for file, pattern in said.items():
        if pattern is not None:
            found = re.findall(pattern, (ROOT / file).read_text("utf-8"), re.MULTILINE)
            assert set(found) <= {VERSION}, file
    package = json.loads((ROOT / "editors/vscode/package.json").read_text("utf-8"))
    assert package["version"] == VERSION
    assert f"\n## {VERSION}" in (ROOT / "docs/changelog.md").read_text("utf-8")


def test_the_script_of_a_release_is_sound_bash() -> None:
    ran = subprocess.run(["bash", "-n", str(ROOT / ".ci/release")], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("name", ["false-alarm", "missed-oom", "other"])
def test_reports_ask_for_what_exists(name: str) -> None:
    yaml = pytest.importorskip("yaml")
    text = (ROOT / f".github/ISSUE_TEMPLATE/{name}.yml").read_text("utf-8")
    form = yaml.safe_load(text)
    assert {"name", "description", "body"} <= form.keys()
    ids = [field["id"] for field in form["body"]]
    assert len(ids) == len(set(ids))
    from oomlint.cli.group import COMMANDS

    named = set(re.findall(r"`oomlint ([a-z]+)", text))
    assert named <= COMMANDS.keys()
