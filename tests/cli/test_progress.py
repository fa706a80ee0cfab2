"""A bar for work that takes a while, and for nobody who does not watch; colours where wanted."""

import io
from contextlib import contextmanager
from threading import Event
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from oomlint.cli import progress
from oomlint.cli.group import app
from oomlint.report.paint import wants_color


class Terminal(io.StringIO):
    def __init__(self):
        super().__init__()
        self.has_bar = Event()

    def isatty(self):
        return True

    def write(self, text):
        written = super().write(text)
        if "checking [" in text:
            self.has_bar.set()
        return written


@pytest.fixture
def terminal(monkeypatch):
    for name in ("CI", "NO_COLOR", "FORCE_COLOR", "TERM", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = Terminal()
    # pytest puts a stream of its own in place of sys.stderr before each test runs.
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=stream))
    monkeypatch.setattr(progress, "_PATIENCE_SECONDS", 0.0)
    return stream


def work(stream):
    with progress.shown("checking") as tick:
        tick(1, 4)
        stream.has_bar.wait()
        tick(3, 4)


def test_long_work_shows_a_bar_that_is_gone_afterwards(terminal):
    work(terminal)
    text = terminal.getvalue()
    assert "checking [" in text
    assert text.endswith("\r\x1b[2K"), "erased"
    assert "\n" not in text


def test_the_bar_says_how_far_it_is_and_how_long_it_took():
    assert progress._line("checking", 1, 3, 4.2) == f"checking [{'=' * 10}>{' ' * 19}] 33 %, 4 s"
    assert progress._line("checking", 3, 3, 61) == f"checking [{'=' * 30}] 100 %, 61 s"
    assert progress._line("checking", 0, None, 2) == "checking, 2 s"


def test_a_terminal_that_went_away_stops_no_work(terminal, monkeypatch):
    def write(_text):
        raise OSError("gone")

    monkeypatch.setattr(terminal, "write", write)
    with progress.shown("checking") as tick:
        tick(1, 2)


def test_short_work_shows_nothing(terminal, monkeypatch):
    monkeypatch.setattr(progress, "_PATIENCE_SECONDS", 60.0)
    with progress.shown("checking") as tick:
        tick(1, 2)
    assert terminal.getvalue() == ""


@pytest.mark.parametrize(("name", "value"), [("CI", "true"), ("TERM", "dumb")])
def test_nobody_watches_in_ci_or_on_a_dumb_terminal(terminal, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with progress.shown("checking") as tick:
        assert tick is progress.ignore


def test_nobody_watches_a_pipe_or_wants_to_be_quiet(terminal, monkeypatch):
    with progress.shown("checking", quiet=True) as tick:
        assert tick is progress.ignore
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=io.StringIO()))
    with progress.shown("checking") as tick:
        assert tick is progress.ignore


@pytest.mark.parametrize(
    ("choice", "environ", "is_terminal", "wanted"),
    [
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": ""}, True, True),
        ("auto", {"FORCE_COLOR": "1"}, False, True),
        ("auto", {"FORCE_COLOR": ""}, False, False),
        ("auto", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
        ("auto", {"TERM": "dumb"}, True, False),
        ("always", {"NO_COLOR": "1"}, False, True),
        ("never", {"FORCE_COLOR": "1"}, True, False),
    ],
)
def test_colours_are_for_those_who_want_them(monkeypatch, choice, environ, is_terminal, wanted):
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert wants_color(choice, Terminal() if is_terminal else io.StringIO()) is wanted


@pytest.fixture
def ticks(monkeypatch):
    """What the bars of commands are told."""
    told = []

    @contextmanager
    def shown(what, *, quiet=False):
        yield lambda done, total: told.append((what, done, total))

    monkeypatch.setattr(progress, "shown", shown)
    return told


CONFIG = "base_model: meta-llama/Llama-3.2-1B\ndatasets: [{path: d, type: alpaca}]\nmicro_batch_size: 1\n"


def test_estimate_and_fit_count_the_runs(ticks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(CONFIG)
    for command, what in (("estimate", "predicting"), ("fit", "looking for ways")):
        ticks.clear()
        result = CliRunner().invoke(app, [command, "--hardware", "1xA100-80GB", "a.yaml", "b.yaml"])
        assert result.exit_code == 0, result.output
        assert ticks == [(what, 0, 2), (what, 1, 2), (what, 2, 2)]
    ticks.clear()
    CliRunner().invoke(app, ["estimate", "a.yaml"])
    assert ticks[0] == ("predicting", 0, None), "of one run there is no share that is done"


def test_plans_by_the_line_are_counted(ticks):
    CliRunner().invoke(app, ["estimate", "--plan", "-", "--jsonl"], input='{"name": "a"}\n{}\n{}\n')
    assert ticks[-1] == ("predicting", 3, 3)
