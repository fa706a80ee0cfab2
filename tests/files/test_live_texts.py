"""Which functions of a project anybody may call."""

from __future__ import annotations

from pathlib import Path

import pytest

from oomlint.files.live_texts import LiveTexts
from oomlint.files.workspace import Workspace


def _uncalled(files: dict[str, str], path: str, line: int) -> str:
    texts = {name: text.encode() for name, text in files.items()}
    return LiveTexts(Workspace(Path("/p"), texts)).uncalled(path, line)


@pytest.mark.parametrize(("start", "uncalled"), [("", "first"), ("third()\n", "")])
def test_functions_that_only_call_each_other_nobody_calls(start: str, uncalled: str) -> None:
    names = ("first", "second", "third")
    ring = "".join(
        f"def {name}():\n    {names[number - 1]}()\n" for number, name in enumerate(names)
    )
    assert _uncalled({"a.py": ring + start}, "a.py", 2) == uncalled


def test_many_that_all_call_each_other_are_each_looked_at_once(monkeypatch) -> None:
    names = [f"function_{number}" for number in range(24)]
    calls = "".join(f"    {name}()\n" for name in names)
    text = "".join(f"def {name}():\n{calls}" for name in names)
    asked: list[str] = []
    uses = LiveTexts._uses

    def counted(self, path, named):
        asked.append(named.name)
        return uses(self, path, named)

    monkeypatch.setattr(LiveTexts, "_uses", counted)
    assert _uncalled({"a.py": text}, "a.py", 2) == names[0]
    assert sorted(asked) == sorted(names)


@pytest.mark.parametrize(
    ("start", "uncalled"),
    [("import sys; main(sys.argv[1])", ""), ("from b import main", "main")],
)
def test_a_line_that_imports_may_call_as_well(start: str, uncalled: str) -> None:
    text = f"def main(path):\n    train(path)\n\nif __name__ == '__main__':\n    {start}\n"
    assert _uncalled({"a.py": text}, "a.py", 2) == uncalled


def _asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions and options of which it is asked who names them, in turn."""
    asked: list[str] = []
    uses = LiveTexts._uses

    def counted(self, path, named):
        asked.append(named.name)
        return uses(self, path, named)

    monkeypatch.setattr(LiveTexts, "_uses", counted)
    return asked


_NAMING = {
    "sft.yaml": b"a: 1\n",
    "run.sh": b"train sft.yaml\n",
    "deep/use.py": b"def used():\n    train('sft.yaml')\n\ndef idle():\n    train('dpo.yaml')\n\nused()\n",
}


def test_only_who_calls_what_names_the_file_is_asked(monkeypatch) -> None:
    asked = _asked(monkeypatch)
    texts = LiveTexts(Workspace(Path("/p"), _NAMING))
    assert list(texts.naming("sft.yaml")) == ["run.sh", "deep/use.py"]
    assert asked == ["used"]
    assert list(texts.naming("dpo.yaml")) == []
    assert asked == ["used", "idle"]


def test_of_texts_further_off_nothing_is_asked_before_they_are_wanted(monkeypatch) -> None:
    asked = _asked(monkeypatch)
    texts = LiveTexts(Workspace(Path("/p"), _NAMING))
    assert next(texts.naming("sft.yaml")) == "run.sh"
    assert not asked


@pytest.mark.parametrize(("read", "naming"), [("", []), ("print(args.config)\n", ["a.py"])])
def test_the_default_of_an_option_that_nobody_reads_is_no_use(read: str, naming: list[str]) -> None:
    text = f"parser.add_argument(\n    '--config',\n    default='sft.yaml',\n)\n{read}"
    texts = {"a.py": text.encode(), "sft.yaml": b"a: 1\n"}
    assert list(LiveTexts(Workspace(Path("/p"), texts)).naming("sft.yaml")) == naming
