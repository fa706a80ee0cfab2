"""Faults injected while ``--fix`` writes: nothing is lost, the error is clear, the status is 3."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

FIX = ("--isolated", "--hardware", "8xA100-80GB", "--fix", "--output-format", "json", ".")
Oomlint = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="injects faults the POSIX way"),
    pytest.mark.slow,
]


def helper(name: str) -> str:
    """Python that replaces ``os.NAME`` by a version that calls ``fault(number)`` first, with how
    often it was called."""
    return (
        f"import os, signal, errno\nreal, calls = os.{name}, []\n"
        f"def broken(*a, **k):\n    calls.append(a)\n    fault(len(calls))\n    return real(*a, **k)\n"
        f"os.{name} = broken\n"
    )


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.is_file()}


@pytest.fixture
def before(project: Path) -> dict[str, bytes]:
    return files(project)


@pytest.fixture
def fixed(project: Path, before: dict[str, bytes], oomlint: Oomlint) -> dict[str, bytes]:
    """What the files become where nothing goes wrong; the project is left as it was."""
    oomlint(*FIX)
    after = files(project)
    assert after.keys() == before.keys()
    assert all(after[name] != before[name] for name in before)
    for name, data in before.items():
        (project / name).write_bytes(data)
    return after


def assert_refused(
    result: subprocess.CompletedProcess[str], project: Path, before: dict[str, bytes], words: str
) -> None:
    assert result.returncode == 3, result.stderr
    assert "Traceback" not in result.stderr
    assert words in result.stdout + result.stderr
    assert files(project) == before


@pytest.mark.parametrize("number", [1, 2])
def test_a_full_disk(
    number: int, project: Path, before: dict[str, bytes], oomlint: Oomlint
) -> None:
    fault = f"def fault(n):\n    if n == {number}: raise OSError(errno.ENOSPC, 'No space left on device')\n"
    result = oomlint(*FIX, before=helper("fsync") + fault)
    assert_refused(result, project, before, "No space left on device")


def test_a_limit_on_file_sizes(project: Path, before: dict[str, bytes], oomlint: Oomlint) -> None:
    limit = (
        "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))\n"
    )
    assert_refused(oomlint(*FIX, before=limit), project, before, "nothing was written")


def test_a_tiny_file_system(project: Path, before: dict[str, bytes], oomlint: Oomlint) -> None:
    """One page of a tmpfs for two files, on which the new text finds no room."""
    mount = ["unshare", "--mount", "--map-root-user"]
    if subprocess.run([*mount, "true"], capture_output=True, check=False).returncode:
        pytest.skip("mounting in a namespace is not permitted here")
    script = (
        'mount -t tmpfs -o size=8k none "$0" && cp -a "$0.kept/." "$0" && cd "$0" || exit 77; "$@"; '
        'status=$?; cp -a "$0/." "$0.out"; exit $status'
    )
    for suffix in (".kept", ".out"):
        Path(f"{project}{suffix}").mkdir()
    for name, data in before.items():
        (Path(f"{project}.kept") / name).write_bytes(data)
    result = oomlint(*FIX, wrap=[*mount, "bash", "-c", script, str(project)])
    if result.returncode == 77:
        pytest.skip("a tmpfs cannot be mounted here")
    assert_refused(result, Path(f"{project}.out"), before, "No space left on device")


@pytest.mark.parametrize("number", [1, 2])
def test_permission_lost_midway(
    number: int, project: Path, before: dict[str, bytes], oomlint: Oomlint
) -> None:
    fault = f"def fault(n):\n    if n == {number}: raise PermissionError(errno.EACCES, 'Permission denied')\n"
    result = oomlint(*FIX, before=helper("replace") + fault)
    assert_refused(result, project, before, "Permission denied")


def test_a_folder_without_permission(
    project: Path, before: dict[str, bytes], oomlint: Oomlint, powerless: list[str]
) -> None:
    project.chmod(0o555)
    try:
        result = oomlint(*FIX, wrap=powerless)
    finally:
        project.chmod(0o755)
    assert_refused(result, project, before, "Permission denied")


def test_a_file_that_is_read_only(
    project: Path, before: dict[str, bytes], oomlint: Oomlint, powerless: list[str]
) -> None:
    (project / "ds.json").chmod(0o444)
    result = oomlint(*FIX, wrap=powerless)
    assert_refused(result, project, before, "cannot be written: it is read-only")


@pytest.mark.parametrize("name", ["train.yaml", "ds.json"])
def test_a_file_replaced_while_we_lint(
    name: str, project: Path, before: dict[str, bytes], oomlint: Oomlint
) -> None:
    """An editor saves while the fixes are being worked out: its text stays, and all others do."""
    saved = before[name] + b"\n"
    intrude = (
        "import oomlint.fix.apply as module\nreal = module.fix_all\n"
        "def late(*a, **k):\n    result = real(*a, **k)\n"
        f"    open({name!r}, 'ab').write(b'\\n')\n    return result\n"
        "module.fix_all = late\n"
    )
    result = oomlint(*FIX, before=intrude)
    assert_refused(result, project, {**before, name: saved}, "was changed by another program")


@pytest.mark.parametrize("step", ["open", "fchmod", "fsync", "replace"])
@pytest.mark.parametrize("number", [1, 2])
def test_killed_at_each_step(
    step: str, number: int, project: Path, fixed: dict[str, bytes], oomlint: Oomlint
) -> None:
    """Every file is whole, old or new; what is left over is hidden, no config, and gone after the next."""
    old = files(project)
    fault = f"def fault(n):\n    if n == {number}: os.kill(os.getpid(), signal.SIGKILL)\n"
    if step == "open":  # of the temporary file, not of everything else that is opened
        opened = "import tempfile, os, signal\nreal, calls = tempfile.mkstemp, []\n"
        opened += (
            "def broken(*a, **k):\n    found = real(*a, **k)\n    calls.append(a)\n"
            "    fault(len(calls))\n    return found\ntempfile.mkstemp = broken\n"
        )
        result = oomlint(*FIX, before=opened + fault)
    else:
        result = oomlint(*FIX, before=helper(step) + fault)
    assert result.returncode == -9
    left = files(project)
    for name in old:
        assert left[name] in (old[name], fixed[name])
    assert all(name.startswith(".") and name.endswith(".tmp") for name in left.keys() - old.keys())
    again = oomlint(*FIX)
    assert again.returncode in (0, 1), again.stderr
    assert files(project).keys() == old.keys()
    # What was written before is part of the run that the second one plans for: it settles, and may do
    # so otherwise.
    settled = files(project)
    oomlint(*FIX)
    assert files(project) == settled


def test_a_kill_between_two_files_is_told_of_until_what_is_left_is_gone(
    project: Path, fixed: dict[str, bytes], oomlint: Oomlint
) -> None:
    fault = "def fault(n):\n    if n == 2: os.kill(os.getpid(), signal.SIGKILL)\n"
    oomlint(*FIX, before=helper("replace") + fault)
    (left,) = [p for p in project.iterdir() if p.suffix == ".tmp"]
    assert left.read_bytes() in fixed.values()  # what the second file was to become
    for arguments in (("check", "--isolated", "."), ("estimate", "--isolated", ".")):
        result = oomlint(*arguments)
        assert result.returncode == 3
        assert f"{left.name}: error: was made by an oomlint that was killed" in result.stderr
    left.unlink()
    assert oomlint("check", "--isolated", ".").returncode in (0, 1)


@pytest.mark.parametrize("where", ["folder", "file", "elsewhere"])
def test_what_a_kill_left_goes_with_the_next_fix(
    where: str, project: Path, before: dict[str, bytes], oomlint: Oomlint
) -> None:
    """Also where only one file is named, where nothing is left to do, and beside a linked file."""
    (project / "configs").mkdir()
    (project / "ds.json").rename(project / "configs" / "ds.json")
    text = before["train.yaml"].replace(b"ds.json", b"configs/ds.json")
    (project / "train.yaml").write_bytes(text)
    oomlint(*FIX)
    home = project / "configs" if where == "elsewhere" else project
    left = home / ".train.yaml.abcdefgh.oomlint.tmp"
    left.write_text("half a te")
    paths = ["."] if where == "folder" else ["train.yaml"]
    result = oomlint(*FIX[:-1], *paths)
    assert result.returncode in (0, 1), result.stdout
    assert not left.exists()


def test_what_another_oomlint_is_writing_stays(project: Path, oomlint: Oomlint) -> None:
    fcntl = pytest.importorskip("fcntl")
    left = project / ".train.yaml.abcdefgh.oomlint.tmp"
    left.write_text("half a te")
    with left.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        result = oomlint(*FIX)
        assert "was made by an oomlint that was killed" in result.stdout
    assert left.exists()


def test_a_check_takes_nothing_away(project: Path, oomlint: Oomlint) -> None:
    left = project / ".train.yaml.abcdefgh.oomlint.tmp"
    left.write_text("half a te")
    for arguments in (("check", "."), ("check", "--diff", ".")):
        assert oomlint(*arguments, "--isolated").returncode == 3
    assert left.exists()


def test_a_file_with_two_names_stays_one_file(
    project: Path, before: dict[str, bytes], oomlint: Oomlint
) -> None:
    os.link(project / "ds.json", project.parent / "same.json")
    result = oomlint("--isolated", "--hardware", "8xA100-80GB", "--fix", ".")
    assert result.returncode in (0, 1), result.stderr
    assert "ds.json has another name (a hard link)" in " ".join(result.stdout.split())
    assert (project / "ds.json").read_bytes() == before["ds.json"]
    assert (project / "ds.json").samefile(project.parent / "same.json")


def test_a_file_that_another_oomlint_writes(
    project: Path, before: dict[str, bytes], oomlint: Oomlint
) -> None:
    fcntl = pytest.importorskip("fcntl")
    with (project / "ds.json").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        result = oomlint(*FIX)
        assert_refused(result, project, before, "is being written by another oomlint")


def test_two_fixes_at_once(project: Path, fixed: dict[str, bytes], oomlint: Oomlint) -> None:
    """Both wait for each other before they write: one writes, the other says why it does not."""
    old = files(project)
    script = (
        "import sys, os, time\nimport oomlint.documents.write as module\nreal = module.write_all\n"
        "def met(*a, **k):\n"
        "    open('../ready%d' % os.getpid(), 'w').close()\n"
        "    end = time.monotonic() + 60\n"
        "    while len([n for n in os.listdir('..') if n.startswith('ready')]) < 2 and time.monotonic() < end:\n"
        "        time.sleep(0.01)\n"
        "    return real(*a, **k)\n"
        "module.write_all = met\n"
        "from oomlint.cli import main\nsys.exit(main())\n"
    )
    both = [
        subprocess.Popen(
            [sys.executable, "-c", script, *FIX], cwd=project,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    outputs = [process.communicate(timeout=120) for process in both]
    for process, (out, err) in zip(both, outputs, strict=True):
        assert process.returncode in (0, 1, 3), err
        assert "Traceback" not in err
        assert process.returncode != 3 or "nothing was written" in out
    left = files(project)
    assert left.keys() == old.keys()
    assert left in (old, fixed)  # never one file of each
    oomlint(*FIX)
    assert files(project) == fixed


def test_standard_output_that_is_full(oomlint: Oomlint) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    result = oomlint("--isolated", ".", wrap=["bash", "-c", '"$0" "$@" >/dev/full'])
    assert result.returncode == 3, (result.returncode, result.stderr)
    assert "No space left on device" in result.stderr
    assert "Traceback" not in result.stderr
