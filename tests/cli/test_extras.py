"""What editors and reviews need is an extra; without it their commands say how to get it."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("command", "absent", "extra"),
    [("lsp", "pygls", "editor"), ("lsp", "pydantic", "editor"), ("review", "pydantic", "review")],
)
def test_a_command_without_its_extra_says_how_to_get_it(project, command, absent, extra):
    code = f"import sys; sys.modules['{absent}'] = None; from oomlint.cli import main; sys.exit(main(['{command}']))"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert ran.returncode == 2
    assert f"oomlint {command} needs the package {absent}" in ran.stderr
    assert f"pip install '.[{extra}]'" in ran.stderr
    assert "Traceback" not in ran.stderr
