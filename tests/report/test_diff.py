"""The diff of what fixes change."""

import subprocess
from pathlib import Path

import pytest

from oomlint.report import diff

NAMES = ("plain.yaml", "with blank.yaml", "  ##[error]\u200b\x9b31m.yaml", 'a"b\\c.yaml', "é.yaml")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("is_new", [False, True])
def test_git_applies_it_whatever_a_file_is_called(tmp_path: Path, name: str, is_new: bool) -> None:
    before, after = b"a: 1\n", b"a: 2\n"
    if not is_new:
        (tmp_path / name).write_bytes(before)
    text = diff.render({name: after}, {name: None if is_new else before})
    assert "\x9b" not in text
    assert "\u200b" not in text
    subprocess.run(
        ["git", "apply", "-"], input=text.encode(), cwd=tmp_path, check=True, capture_output=True
    )
    assert (tmp_path / name).read_bytes() == after
