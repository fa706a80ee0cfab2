"""Checks answer from the cache for as long as nothing that they looked at has changed."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from oomlint.cli import app, main
from oomlint.session import cache
from oomlint.session.cache import folder

RUN = "base_model: meta-llama/Llama-3.2-1B\ndatasets:\n  - path: a\nmicro_batch_size: 1\ndeepspeed: ds/zero.json\n"


@pytest.fixture
def check(tmp_path, monkeypatch, capfdbinary):
    """Check the working directory; the answer, and whether it was worked out anew."""
    monkeypatch.setenv("OOMLINT_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    (work / "run.yaml").write_text(RUN)
    made = []

    def run(arguments):
        made.append(arguments)
        return original(arguments)

    original = app.run
    monkeypatch.setattr(app, "run", run)

    def check(*arguments):
        made.clear()
        monkeypatch.setattr(sys, "argv", ["oomlint", *(arguments or (".",))])
        status = main()
        return status, capfdbinary.readouterr(), bool(made)

    return check


def test_the_same_check_is_answered_from_the_cache(check):
    *first, was_made = check()
    *second, was_made_again = check()
    assert (was_made, was_made_again) == (True, False)
    assert first == second
    assert b"zero.json" in first[1].out


def test_verbose_is_another_check(check):
    *_, brief, _ = check(".", "--hardware", "H100")
    *_, told, was_made = check(".", "--hardware", "H100", "--verbose")
    *_, again, was_made_again = check(".", "--hardware", "H100", "--verbose")
    assert b"predicted peak" not in brief.out
    assert b"predicted peak" in told.out
    assert told == again
    assert (was_made, was_made_again) == (True, False)


@pytest.mark.parametrize(
    "change",
    [
        lambda work: (work / "run.yaml").write_text(RUN.replace("size: 1", "size: 64")),
        lambda work: (work / "ds").mkdir() or (work / "ds" / "zero.json").write_text("{}"),
        lambda work: (work / "oomlint.toml").write_text('ignore = ["referenced-file-missing"]\n'),
        lambda work: (work / "other.yaml").write_text("a: 1\n"),
        lambda work: (work / "requirements.txt").write_text("transformers==4.40.0\n"),
        lambda work: (work / "run.yaml").unlink(),
        lambda work: (work / "notes").unlink() or (work / "notes" / "a").mkdir(parents=True),
        lambda work: (work / "run.yaml").rename(work / "other.yaml"),
    ],
    ids=["file", "missing file", "settings", "new file", "pinned versions", "file removed", "file is a folder now",
         "file renamed"],
)  # fmt: skip
def test_what_the_answer_depends_on_is_looked_at_again(check, tmp_path, change):
    (tmp_path / "work" / "notes").touch()
    check()
    assert not check()[2]
    change(tmp_path / "work")
    assert check()[2]
    assert not check()[2]


@pytest.mark.skipif(sys.platform == "win32", reason="needs pipes and devices")
@pytest.mark.parametrize("what", ["pipe", "device", "hole"])
def test_a_file_that_became_one_without_end(check, tmp_path, what):
    check()
    run = tmp_path / "work" / "run.yaml"
    run.unlink()
    if what == "pipe":
        os.mkfifo(run)
    elif what == "device":
        run.symlink_to("/dev/zero")
    else:
        run.touch()
        os.truncate(run, 2**40)  # it takes no room on the disk
    assert check()[2]


def test_other_options_are_another_check(check):
    check()
    assert check(".", "--hardware", "8xA100-80GB")[2]
    assert check(".", "--output-format", "json")[2]
    assert not check()[2]


@pytest.mark.parametrize("damage", [b"", b"{}", b"0\n{}", b"\xff\xfe"])
def test_damaged_entries_are_as_good_as_none(check, damage):
    *first, _ = check()
    (entry,) = folder().glob("*.check")
    entry.write_bytes(damage)
    *second, was_made = check()
    assert was_made
    assert first == second
    assert not check()[2]


def test_an_entry_whose_bytes_were_changed_is_not_believed(check):
    check()
    (entry,) = folder().glob("*.check")
    entry.write_bytes(entry.read_bytes().replace(b'"status": 1', b'"status": 0'))
    assert check()[2]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--no-cache", "."),
        ("--fix", "."),
        ("--diff", "."),
        ("--profile", "."),
        ("--output-file", "o", "."),
    ],
)
def test_what_does_more_than_answer_is_not_kept(check, arguments):
    for _ in range(2):
        assert check(*arguments)[2]
    assert not list(folder().glob("*"))


def test_errors_are_not_kept(check, tmp_path):
    (tmp_path / "work" / "bad.yaml").write_text("base_model: [\n")
    for _ in range(2):
        status, _, was_made = check()
        assert (status, was_made) == (3, True)


def test_a_cache_that_cannot_be_written_is_no_error(check, tmp_path):
    (tmp_path / "cache").write_text("in the way")
    assert check()[0] == check()[0]


def test_clean_removes_every_entry(check):
    check()
    status, said, _ = check("clean")
    assert (status, said.out[:25]) == (0, b"removed 1 kept answer fro")
    assert check()[2]


def test_clean_removes_what_a_killed_writer_left(check):
    check()
    (folder() / f"{'0f' * 16}.4711.part").write_bytes(b"half of an entry")
    check("clean")
    assert not list(folder().iterdir())


def test_a_full_disk_leaves_no_part_of_an_entry(check, monkeypatch):
    def full(self, data):
        self.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert check()[0] == 1
    assert not list(folder().iterdir())


def test_another_version_checks_anew(check, monkeypatch):
    check()
    monkeypatch.setattr(cache, "__version__", "99.0")
    assert check()[2]
    assert not check()[2]


def test_a_changed_module_is_seen_beside_one_from_the_future(tmp_path, monkeypatch):
    own = tmp_path / "oomlint" / "cli"
    own.mkdir(parents=True)
    for name in ("cache.py", "other.py"):
        (own / name).touch()
    os.utime(own / "other.py", (4e9, 4e9))
    monkeypatch.setattr(cache, "__file__", str(own / "cache.py"))
    code_of_a_start = cache._code.__wrapped__
    before = code_of_a_start()
    assert code_of_a_start() == before
    (own / "__pycache__").mkdir()
    (own / "__pycache__" / "other.cpython-311.pyc").touch()
    assert code_of_a_start() == before
    os.utime(own / "cache.py", (1e9, 1e9))
    assert code_of_a_start() != before


def test_what_a_process_runs_is_what_was_there_as_it_began(tmp_path, monkeypatch):
    assert cache.identity() == cache.identity()
    before = cache.identity()
    monkeypatch.setattr(cache, "__file__", str(tmp_path / "oomlint" / "cli" / "cache.py"))
    assert cache.identity() == before


def test_the_page_of_a_github_step_is_written_each_time(check, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    check()
    assert not check()[2]
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "page.md"))
    assert check()[2]
    assert (tmp_path / "page.md").read_bytes()


def test_hardware_of_the_settings_is_looked_at_again(check, tmp_path):
    settings = tmp_path / "work" / "oomlint.toml"
    settings.write_text('hardware = "lab"\n[profiles.lab]\nhardware = "8xH100-80GB"\n')
    check(".", "--output-format", "json")
    *roomy, was_made = check(".", "--output-format", "json")
    assert not was_made
    settings.write_text('hardware = "lab"\n[profiles.lab]\nhardware = "T4-16GB"\n')
    *tight, was_made = check(".", "--output-format", "json")
    assert was_made
    assert tight != roomy


def test_a_project_root_that_went_is_told_of(check, tmp_path):
    root = tmp_path / "work" / "root"
    root.mkdir()
    arguments = ("run.yaml", "--project-root", "root")
    check(*arguments)
    assert not check(*arguments)[2]
    root.rmdir()
    assert check(*arguments)[0] == 2


def test_an_entry_under_the_name_of_another_check_is_not_believed(check):
    check()
    (first,) = folder().glob("*.check")
    check(".", "--output-format", "json")
    (second,) = set(folder().glob("*.check")) - {first}
    second.replace(first)
    assert check()[2]


@pytest.mark.skipif(sys.platform == "win32", reason="needs owners of files")
def test_an_entry_of_another_user_is_not_believed(check, monkeypatch):
    check()
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    assert check()[2]


@pytest.mark.skipif(sys.platform == "win32", reason="needs links and pipes")
@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_what_is_no_file_of_ours_in_place_of_an_entry(check, tmp_path, kind):
    *first, _ = check()
    (entry,) = folder().glob("*.check")
    whole = entry.read_bytes()
    entry.unlink()
    if kind == "pipe":
        os.mkfifo(entry)
    elif kind == "link":
        (tmp_path / "elsewhere").write_bytes(whole)
        entry.symlink_to(tmp_path / "elsewhere")
    else:
        entry.mkdir()
    *second, was_made = check()
    assert was_made
    assert first == second
    if kind == "link":
        assert (tmp_path / "elsewhere").read_bytes() == whole
    assert [path.suffix for path in folder().iterdir()] == [".check"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs links")
def test_a_cache_behind_a_link(check, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "cache").symlink_to("real", target_is_directory=True)
    check()
    assert not check()[2]
    assert b"removed 1 kept answer from" in check("clean")[1].out
    assert not list((tmp_path / "real").iterdir())


def test_clean_removes_nothing_of_others(check, monkeypatch, tmp_path):
    """``OOMLINT_CACHE_DIR`` may name a folder that is used for more."""
    check()
    others = ("health.check", "train.part", "0f.4711.part", "g" * 32 + ".check", "oomlint.toml")
    for name in others:
        (folder() / name).touch()
    check("clean")
    assert sorted(path.name for path in folder().iterdir()) == sorted(others)


def test_clean_without_a_cache(check):
    assert check("clean")[:2][0] == 0
    assert not folder().exists()


@pytest.mark.skipif(sys.platform == "win32", reason="starts processes the POSIX way")
def test_many_at_once_on_a_cache_that_is_not_there(tmp_path):
    """All say the same, and the next one reads what they kept."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "run.yaml").write_text(RUN)
    environ = {**os.environ, "OOMLINT_CACHE_DIR": str(tmp_path / "deep" / "cache")}
    words = [sys.executable, "-c", "from oomlint.cli import command; command()", "--isolated", "."]
    crowd = [
        subprocess.Popen(
            words,
            cwd=tmp_path / "work",
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(6)
    ]
    said = {(*process.communicate(timeout=120), process.returncode) for process in crowd}
    assert len(said) == 1
    ((out, _, status),) = said
    assert (b"zero.json" in out, status) == (True, 1)
    (entry,) = (tmp_path / "deep" / "cache").iterdir()
    assert entry.suffix == ".check"
    assert stat.S_IMODE(entry.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("kept", [False, True], ids=["anew", "from the cache"])
def test_output_that_cannot_be_written(tmp_path, kept):
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    (tmp_path / "run.yaml").write_text(RUN)
    environ = {**os.environ, "OOMLINT_CACHE_DIR": str(tmp_path / "cache")}
    words = [sys.executable, "-c", "from oomlint.cli import command; command()", "run.yaml"]
    if kept:
        with (tmp_path / "out").open("wb") as out:
            subprocess.run(words, cwd=tmp_path, env=environ, stdout=out, check=False)
        assert list((tmp_path / "cache").iterdir())
    with open("/dev/full", "wb") as full:
        result = subprocess.run(
            words, cwd=tmp_path, env=environ, stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert result.returncode == 3
    assert b"cannot be written: No space left on device" in result.stderr
    assert b"Traceback" not in result.stderr
    assert b"internal error" not in result.stderr
