"""A command line to call, and a small project for it to look at."""

from pathlib import Path

import pytest
from tests import command
from tests.configs import AXOLOTL


class Command:
    """Runs ``oomlint ARGUMENTS`` in a folder, in this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: str, stdin: bytes | None = None) -> command.Result:
        return command.oomlint(*arguments, stdin=stdin)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """An empty folder that is the working directory."""
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def oomlint(project):
    return Command(project)


@pytest.fixture
def axolotl(project):
    """A config whose activations do not fit an H100."""
    file = project / "axolotl.yaml"
    file.write_text(AXOLOTL)
    return file
