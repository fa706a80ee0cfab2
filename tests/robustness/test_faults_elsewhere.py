"""Faults injected where commands other than ``--fix`` write: whole files or none, a clear error."""

from __future__ import annotations

import errno
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Oomlint = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="injects faults the POSIX way"),
    pytest.mark.slow,
]

H100 = ("--isolated", "--hardware", "8xA100-80GB")
FULL = "raise OSError(errno.ENOSPC, 'No space left on device')"
DENIED = "raise PermissionError(errno.EACCES, 'Permission denied')"
KILLED = "os.kill(os.getpid(), signal.SIGKILL)"


def fault(call: str, what: str, number: int = 1) -> str:
    """Python under which the ``number``-th call of ``os.CALL`` or ``tempfile.mkstemp`` fails."""
    module = "tempfile" if call == "mkstemp" else "os"
    return (
        f"import errno, os, signal, tempfile\nreal, calls = {module}.{call}, []\n"
        f"def broken(*a, **k):\n    calls.append(a)\n    if len(calls) == {number}: {what}\n"
        f"    return real(*a, **k)\n{module}.{call} = broken\n"
    )


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.is_file()}


@pytest.mark.parametrize(
    ("call", "what"), [("fsync", FULL), ("replace", DENIED), ("mkstemp", FULL)]
)
def test_fit_apply(call: str, what: str, project: Path, oomlint: Oomlint) -> None:
    before = files(project)
    result = oomlint("fit", *H100, "train.yaml", "--apply", "1", before=fault(call, what))
    assert result.returncode == 3, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    assert re.search("No space left on device|Permission denied", result.stderr)
    assert files(project) == before


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_fit_apply_killed(call: str, project: Path, oomlint: Oomlint) -> None:
    before = files(project)
    arguments = ("fit", *H100, "train.yaml", "--apply", "1")
    assert oomlint(*arguments, before=fault(call, KILLED)).returncode == -9
    left = files(project)
    assert {name: left[name] for name in before} == before
    assert all(
        name.startswith(".") and name.endswith(".tmp") for name in left.keys() - before.keys()
    )
    assert oomlint(*arguments).returncode in (0, 1)


@pytest.mark.parametrize(("call", "what"), [("fsync", FULL), ("link", DENIED), ("mkstemp", FULL)])
def test_writing_a_baseline(call: str, what: str, project: Path, oomlint: Oomlint) -> None:
    broken = fault(call, what)
    if call == "link":  # and what stands in for it where there are no links
        broken = broken.replace("== 1", ">= 1") + "os.rename = broken\n"
    before = files(project)
    result = oomlint("check", *H100, "--baseline", "write=base.json", ".", before=broken)
    assert result.returncode == 3, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    assert "base.json" in result.stderr
    assert files(project) == before


def test_a_baseline_killed_while_it_is_written_anew(project: Path, oomlint: Oomlint) -> None:
    old = '{\n  "version": 1,\n  "findings": []\n}\n'
    (project / "base.json").write_text(old)
    arguments = ("check", *H100, "--baseline", "write=base.json", ".")
    assert oomlint(*arguments, before=fault("replace", KILLED)).returncode == -9
    assert (project / "base.json").read_text() == old
    (left,) = project.glob(".base.json.*")
    result = oomlint(*arguments)
    assert result.returncode == 3
    assert f"{left.name}: error: was made by an oomlint that was killed" in result.stderr
    assert json.loads((project / "base.json").read_bytes())["findings"]


@pytest.mark.parametrize("what", [FULL, DENIED, KILLED])
def test_the_cache(what: str, project: Path, tmp_path: Path, oomlint: Oomlint) -> None:
    """It is a convenience: what it cannot keep costs nothing, and half of it is nothing."""
    environ = {"OOMLINT_CACHE_DIR": str(tmp_path / "cache")}
    wanted = oomlint("check", *H100, "--no-cache", ".", environ=environ)
    broken = (
        "import errno, os, signal, pathlib\n"
        f"def broken(self, *a, **k):\n    if '.check' in str(a[0]): {what}\n    return real(self, *a, **k)\n"
        "real = pathlib.Path.replace\npathlib.Path.replace = broken\n"
    )
    faulty = oomlint("check", *H100, ".", before=broken, environ=environ)
    if what != KILLED:
        assert (faulty.returncode, faulty.stdout, faulty.stderr) == (
            wanted.returncode, wanted.stdout, wanted.stderr,
        )  # fmt: skip
    again = oomlint("check", *H100, ".", environ=environ)
    assert (again.returncode, again.stdout) == (wanted.returncode, wanted.stdout)


def test_cache_entries_that_are_cut_off_or_foreign(
    project: Path, tmp_path: Path, oomlint: Oomlint
) -> None:
    environ = {"OOMLINT_CACHE_DIR": str(tmp_path / "cache")}
    wanted = oomlint("check", *H100, ".", environ=environ)
    entries = list((tmp_path / "cache").glob("*.check"))
    assert entries
    for entry in entries:
        whole = entry.read_bytes()
        for data in (
            whole[: len(whole) // 2],
            b"",
            b"\x80\x04.",
            whole.replace(b"train", b"other"),
            b"{}\n{}",
        ):
            entry.write_bytes(data)
            again = oomlint("check", *H100, ".", environ=environ)
            assert (again.returncode, again.stdout) == (wanted.returncode, wanted.stdout)


@pytest.mark.parametrize(("call", "what"), [("fsync", FULL), ("replace", DENIED)])
def test_a_report_in_a_file(call: str, what: str, project: Path, oomlint: Oomlint) -> None:
    (project / "report.json").write_text("old")
    arguments = (
        "check",
        *H100,
        "--no-cache",
        "--output-format",
        "json",
        "--output-file",
        "report.json",
        ".",
    )
    result = oomlint(*arguments, before=fault(call, what))
    assert result.returncode == 3, result.stderr
    assert "report.json" in result.stderr
    assert "Traceback" not in result.stderr
    assert (project / "report.json").read_text() == "old"


def test_a_full_disk_under_the_tree_of_a_review(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree of which a file is missing would be reviewed as if it had none."""
    from oomlint.errors import ReadError
    from oomlint.review.trees import write_tree

    real = Path.write_bytes

    def full(self: Path, data: bytes) -> int:
        if self.name == "ds.json":
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, data)

    tree = [("train.yaml", b"a: 1\n"), ("n" * 300 + ".yaml", b"b: 1\n")]
    assert write_tree(tree, tmp_path / "whole").digests.keys() == {"train.yaml"}
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ReadError, match="No space left on device"):
        write_tree([*tree, ("ds.json", b"{}")], tmp_path / "full")


def test_a_new_file_and_a_changed_one_are_written_together(tmp_path: Path) -> None:
    """``Edit.creates``: where the second file fails, the first one, new, goes again."""
    from oomlint.documents.write import write_all
    from oomlint.errors import CannotEdit

    (tmp_path / "train.yaml").write_text("saved meanwhile")
    texts = {"ds.json": b"{}", "train.yaml": b"deepspeed: ds.json"}
    originals = {"ds.json": None, "train.yaml": b"as it was read"}
    with pytest.raises(CannotEdit, match="changed by another program"):
        write_all(texts, originals, tmp_path, [tmp_path])
    assert files(tmp_path) == {"train.yaml": b"saved meanwhile"}
    (tmp_path / "ds.json").write_text("a file that came meanwhile")
    with pytest.raises(CannotEdit, match="exists already"):
        write_all(texts, originals, tmp_path, [tmp_path])
    assert (tmp_path / "ds.json").read_text() == "a file that came meanwhile"


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_standard_streams_that_are_closed(closed: str, oomlint: Oomlint) -> None:
    """As services are started by some supervisors: the status says the same, and nothing breaks."""
    for cached in ((), ("--no-cache",)):
        arguments = ("check", *H100, *cached, "train.yaml")
        wanted = oomlint(*arguments)
        result = oomlint(*arguments, wrap=["bash", "-c", f'"$0" "$@" {closed}'])
        assert result.returncode == wanted.returncode, result.stderr
        assert result.stdout == ("" if closed.startswith(">") else wanted.stdout)
        assert "Traceback" not in result.stderr


@pytest.mark.parametrize(("words", "status"), [(("nothere.yaml",), 2), (("--nonsense",), 2)])
def test_an_error_that_cannot_be_written(
    words: tuple[str, ...], status: int, oomlint: Oomlint
) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    result = oomlint(*words, wrap=["bash", "-c", '"$0" "$@" 2>/dev/full'])
    assert result.returncode == status


@pytest.mark.parametrize("command", ["check", "estimate", "fit"])
def test_a_working_directory_that_is_gone(command: str, oomlint: Oomlint) -> None:
    script = 'mkdir gone && cd gone && rmdir ../gone; "$0" "$@"'
    result = oomlint(command, "train.yaml", wrap=["bash", "-c", script])
    assert result.returncode == 2, result.stderr
    assert "the working directory does not exist any more" in result.stderr
    assert "internal error" not in result.stderr
