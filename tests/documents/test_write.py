"""Writing back: whole or not at all, and never over somebody else's change."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from oomlint.documents.staged import clear
from oomlint.documents.write import write_atomically
from oomlint.errors import CannotEdit, ReadError

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX permissions and links")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "train.yaml"
    path.write_bytes(b"a: 1\r\n")
    return path


def assert_only(folder: Path, *names: str) -> None:
    assert sorted(entry.name for entry in folder.iterdir()) == sorted(names)


def test_replaces_the_bytes(config: Path) -> None:
    write_atomically(config, b"a: 2\r\n", expected=b"a: 1\r\n")
    assert config.read_bytes() == b"a: 2\r\n"
    assert_only(config.parent, "train.yaml")


def test_refuses_a_file_that_changed(config: Path) -> None:
    with pytest.raises(CannotEdit, match="was changed by another program"):
        write_atomically(config, b"a: 2\n", expected=b"a: 0\n")
    assert config.read_bytes() == b"a: 1\r\n"
    assert_only(config.parent, "train.yaml")


def test_refuses_a_file_that_went_away(tmp_path: Path) -> None:
    with pytest.raises(CannotEdit, match="was deleted"):
        write_atomically(tmp_path / "gone.yaml", b"", expected=b"a: 1\n")
    assert_only(tmp_path)


def test_refuses_a_file_that_changes_while_it_writes(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow_sync(_: int) -> None:
        config.write_bytes(b"a: 9\n")

    monkeypatch.setattr(os, "fsync", slow_sync)
    with pytest.raises(CannotEdit, match="was changed by another program"):
        write_atomically(config, b"a: 2\n", expected=b"a: 1\r\n")
    assert config.read_bytes() == b"a: 9\n"
    assert_only(config.parent, "train.yaml")


def test_creates_a_new_file_but_never_over_one(tmp_path: Path) -> None:
    path = tmp_path / "oomlint.toml"
    write_atomically(path, b"x = 1\n", expected=None)
    assert path.read_bytes() == b"x = 1\n"
    with pytest.raises(CannotEdit, match="exists already"):
        write_atomically(path, b"x = 2\n", expected=None)
    assert path.read_bytes() == b"x = 1\n"


@posix_only
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_keeps_the_mode(config: Path, mode: int) -> None:
    config.chmod(mode)
    write_atomically(config, b"a: 2\n", expected=b"a: 1\r\n")
    assert stat.S_IMODE(config.stat().st_mode) == mode


@posix_only
def test_keeps_the_owner(config: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may give files away")
    os.chown(config, 1234, 2345)
    write_atomically(config, b"a: 2\n", expected=b"a: 1\r\n")
    assert (config.stat().st_uid, config.stat().st_gid) == (1234, 2345)


@posix_only
def test_new_files_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "new", b"", expected=None)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


@posix_only
def test_writes_through_a_link_within_the_roots(config: Path) -> None:
    link = config.parent / "sub" / "link.yaml"
    link.parent.mkdir()
    link.symlink_to("../train.yaml")
    write_atomically(link, b"a: 2\n", expected=b"a: 1\r\n", roots=[config.parent])
    assert link.is_symlink()
    assert config.read_bytes() == b"a: 2\n"


@posix_only
def test_refuses_a_link_out_of_the_roots(config: Path) -> None:
    inside = config.parent / "inside"
    inside.mkdir()
    link = inside / "link.yaml"
    link.symlink_to(config)
    for roots in ([inside], []):
        with pytest.raises(CannotEdit, match="outside of the folders"):
            write_atomically(link, b"a: 2\n", expected=b"a: 1\r\n", roots=roots)
    assert config.read_bytes() == b"a: 1\r\n"


@posix_only
@pytest.mark.parametrize("target", ["nowhere.yaml", "link.yaml"])
def test_a_link_that_leads_nowhere(tmp_path: Path, target: str) -> None:
    link = tmp_path / "link.yaml"
    link.symlink_to(target)
    with pytest.raises(ReadError, match="leads nowhere"):
        write_atomically(link, b"", expected=b"", roots=[tmp_path])


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="not a regular file"):
        write_atomically(tmp_path, b"", expected=b"")


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="cannot be written"):
        write_atomically(tmp_path / "no" / "train.yaml", b"", expected=None)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(
    config: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, full)
    with pytest.raises(ReadError, match="No space left") as caught:
        write_atomically(config, b"a: 2\n", expected=b"a: 1\r\n")
    assert caught.value.path == str(config)
    assert config.read_bytes() == b"a: 1\r\n"
    assert_only(config.parent, "train.yaml")


@posix_only
def test_a_writer_killed_at_any_moment_leaves_the_old_or_the_new_file(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    old, new = b"a: 1\n" * 200_000, b"b: 2\n" * 200_000
    code = (
        "import sys; from pathlib import Path; from oomlint.documents.write import write_atomically\n"
        "path, old, new = Path(sys.argv[1]), b'a: 1\\n' * 200_000, b'b: 2\\n' * 200_000\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    write_atomically(path, new, expected=old); write_atomically(path, old, expected=new)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "lint")}
    for delay in (0.0, 0.003, 0.011, 0.017, 0.031):
        path.write_bytes(old)
        command = [sys.executable, "-c", code, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            time.sleep(delay)
            child.kill()
        assert path.read_bytes() in (old, new)


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="has no extended attributes")
def test_keeps_extended_attributes(config: Path) -> None:
    try:
        os.setxattr(config, "user.origin", b"here")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    write_atomically(config, b"a: 2\n", expected=b"a: 1\r\n")
    assert os.getxattr(config, "user.origin") == b"here"


@posix_only
def test_a_new_text_that_was_taken_for_one_left_behind_is_made_anew(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tempfile

    real, calls = tempfile.mkstemp, []

    def cleared(**where: Any) -> tuple[int, str]:
        descriptor, path = real(**where)
        calls.append(path)
        if len(calls) == 1:  # another oomlint finds it before it is locked
            assert clear(Path(path))
        return descriptor, path

    monkeypatch.setattr(tempfile, "mkstemp", cleared)
    write_atomically(config, b"a: 2\n", expected=b"a: 1\r\n")
    assert len(calls) == 2
    assert config.read_bytes() == b"a: 2\n"
    assert_only(config.parent, "train.yaml")
