"""``check --watch``: again when something changes, not for its own writing, until Ctrl-C."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from oomlint.cli import watch
from oomlint.cli.output import emit
from oomlint.cli.watch import Watched
from oomlint.files.dependencies import recording

H100 = ("--hardware", "H100-80GB", "--output-format", "concise")


@pytest.fixture
def watching(oomlint, monkeypatch):
    """Runs ``--watch`` with a list of edits, one for each time that it waits, then Ctrl-C."""

    def run(edits, *arguments):
        todo = list(edits)
        changes = []

        def wait(watched):
            if not todo:
                raise KeyboardInterrupt
            todo.pop(0)()
            changes.append(watched.changed())
            return changes[-1]

        monkeypatch.setattr(watch, "wait_for_change", wait)
        return oomlint("--watch", *arguments), changes

    return run


def rewrite(file, old, new):
    def edit():
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    return edit


def test_a_change_is_linted_again_and_ctrl_c_ends_with_0(watching, axolotl):
    result, changes = watching(
        [
            rewrite(
                axolotl, "micro_batch_size: 8", "micro_batch_size: 1\ngradient_checkpointing: true"
            )
        ],
        "axolotl.yaml",
        *H100,
    )
    assert result.exit_code == 0
    assert result.stdout.count("no-gradient-checkpointing") == 1
    assert changes == [(str(axolotl),)]
    assert "axolotl.yaml changed" in result.stderr
    assert result.stderr.count("Ctrl-C ends it") == 2


def test_a_screen_shows_the_last_report_until_the_next_is_there(
    tmp_path, capsysbinary, monkeypatch
):
    shown = []
    changes = iter([(str(tmp_path / "a.yaml"),), (str(tmp_path),)])

    def check():
        shown.append(capsysbinary.readouterr().out)  # on the screen since it was looked at last
        emit("a report\n")
        return 0

    def wait(_watched):
        try:
            return next(changes)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(watch, "wait_for_change", wait)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert watch.keep_checking(check) == 0
    said = capsysbinary.readouterr()
    assert shown == [b"", b"a report\n", b"\x1b[H\x1b[2Ja report\n"]
    assert said.out == b"\x1b[H\x1b[2Ja report\n"
    assert b"a file of this folder changed" in said.err


def test_a_change_in_a_referenced_file_is_one_of_the_run(watching, project, axolotl):
    zero = project / "zero.json"
    zero.write_text('{"zero_optimization": {"stage": 2}}\n')
    axolotl.write_text(axolotl.read_text() + "deepspeed: zero.json\n")
    _, changes = watching([rewrite(zero, '"stage": 2', '"stage": 3')], "axolotl.yaml", *H100)
    assert changes == [(str(zero),)]


def test_a_referenced_file_that_appears_is_a_change(watching, project, axolotl):
    axolotl.write_text(axolotl.read_text() + "deepspeed: zero.json\n")
    zero = project / "zero.json"
    result, changes = watching(
        [lambda: zero.write_text('{"zero_optimization": {"stage": 3}}\n')], "axolotl.yaml", *H100
    )
    assert str(zero) in changes[0]
    assert result.stdout.count("referenced-file-missing") == 1


def test_new_files_in_a_folder_are_seen_and_editors_leavings_are_not(watching, project, axolotl):
    def leave():
        for name in (".axolotl.yaml.swp", "axolotl.yaml~", ".#axolotl.yaml", "4913"):
            (project / name).write_text("x")

    def add():
        (project / "other.yaml").write_text(axolotl.read_text())

    result, changes = watching([leave, add], ".", *H100)
    assert changes[0] == ()
    assert str(project) in changes[1]
    assert "other.yaml:" in result.stdout


def test_what_fix_writes_is_no_change(watching, axolotl):
    result, changes = watching([lambda: None], "--fix", "axolotl.yaml", *H100)
    assert "gradient_accumulation_steps: 4" in axolotl.read_text()
    assert changes == [()]
    assert result.exit_code == 0


def test_every_check_tells_what_it_was_asked_to_tell(watching, axolotl):
    asked = ("--hardware=H100-80GB", "--verbose", "--show-fixes")
    result, _ = watching([lambda: None], "--fix", "axolotl.yaml", *asked)
    assert result.stdout.count("predicted peak") == 2
    assert "fixed axolotl.yaml: OOM" in result.stdout


def test_a_file_that_changes_during_the_check_is_checked_again(watching, axolotl, monkeypatch):
    from oomlint.cli import checking

    edit = rewrite(axolotl, "micro_batch_size: 8", "micro_batch_size: 2")
    original = checking.write_summary
    edits = [edit]

    def late(report):
        if edits:
            edits.pop()()
        original(report)

    monkeypatch.setattr(checking, "write_summary", late)
    _, changes = watching([lambda: None], "axolotl.yaml", *H100)
    assert changes == [(str(axolotl),)]


def test_settings_that_break_on_the_way_are_told_and_watched_on(watching, project, axolotl):
    settings = project / "oomlint.toml"
    settings.write_text('hardware = "H100-80GB"\n')
    result, _ = watching(
        [
            rewrite(settings, "H100-80GB", "H10O-80GB"),
            rewrite(settings, "H10O-80GB", "H200-141GB"),
        ],
        "axolotl.yaml",
        "--output-format",
        "concise",
    )
    assert result.exit_code == 0
    assert "error: " in result.stderr
    assert "of 140 GiB per GPU" in result.stdout  # what an H200 gives


def test_wrong_usage_at_the_start_exits_with_2(watching, axolotl):
    assert watching([], "--select", "no-such-rule")[0].exit_code == 2
    assert watching([], "-", "--stdin-filename", "a.yaml")[0].exit_code == 2
    assert watching([], "--baseline", "write")[0].exit_code == 2


def test_the_report_that_it_writes_is_no_change(watching, project, axolotl):
    _, changes = watching([lambda: None], ".", *H100, "--output-file", "report.txt")
    assert changes == [()]
    assert (project / "report.txt").exists()


def test_only_what_was_looked_at_counts(project):
    seen, other = project / "seen.yaml", project / "other.yaml"
    seen.write_text("a: 1\n")
    other.write_text("a: 1\n")
    from oomlint.files.workspace import Workspace

    with recording() as sights:
        Workspace(project).read("seen.yaml")
    watched = Watched(sights)
    assert len(watched) == 1
    assert watched.folders == (str(project),)
    other.write_text("a: 2\n")
    assert watched.changed() == ()
    seen.write_text("a: 12\n")
    assert watched.changed() == (str(seen),)
    assert watched.changed() == ()


@pytest.mark.skipif(os.name == "nt", reason="signals are Unix's here")
@pytest.mark.parametrize("has_watchfiles", [True, False])
def test_the_real_command_sees_a_change_and_ends_on_ctrl_c(project, axolotl, has_watchfiles):
    if has_watchfiles:
        pytest.importorskip("watchfiles")
    without = "import sys; sys.modules['watchfiles'] = None; " if not has_watchfiles else ""
    code = f"{without}from oomlint.cli import main; import sys; sys.exit(main(sys.argv[1:]))"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "axolotl.yaml", "--watch", *H100],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A shell that starts the tests in the background has them ignore Ctrl-C, and so their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = threading.Timer(600, process.kill)
    deadline.start()
    try:
        said = []
        for line in process.stdout:
            said.append(line)
            if "Ctrl-C ends it" in line:
                if sum("Ctrl-C ends it" in text for text in said) == 2:
                    process.send_signal(signal.SIGINT)
                else:
                    rewrite(axolotl, "micro_batch_size: 8", "micro_batch_size: 4")()
        assert process.wait() == 0
    finally:
        deadline.cancel()
        process.kill()
    assert any("axolotl.yaml changed" in line for line in said)
    assert "Traceback" not in "".join(said)
