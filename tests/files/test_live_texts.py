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
