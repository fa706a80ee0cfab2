"""Python files that are configs: what their statements set."""

from __future__ import annotations

from pathlib import Path

from oomlint.documents.base import UNKNOWN, Mapping, Scalar
from oomlint.documents.python.assignments import settings_of
from oomlint.documents.python.document import PythonScript
from oomlint.files.workspace import Workspace


def _settings(text: str) -> Mapping:
    # The word makes it a file that is read at all.
    data = f"# xtuner\n{text}".encode()
    document = Workspace(Path("/x"), {"a.py": data}).document("a.py")
    assert isinstance(document, PythonScript)
    return settings_of(document)


def _value(text: str, key: str) -> object:
    head, *rest = key.split(".")
    entry = _settings(text).entries[head]
    for part in rest:
        assert isinstance(entry.value, Mapping)
        entry = entry.value.entries[part]
    assert isinstance(entry.value, Scalar)
    return entry.value.value


def test_names_and_what_they_stand_for() -> None:
    text = "size = 4\nmodel = dict(type=Model, inner=dict(rows=size, text='a'))\n"
    assert _value(text, "size") == 4
    assert _value(text, "model.inner.rows") == 4
    assert _value(text, "model.inner.text") == "a"


def test_a_later_statement_that_changes_a_number() -> None:
    text = "ranks = 4\nsteps = 16\nsteps *= ranks\nloop = dict(steps=steps)\n"
    assert _value(text, "steps") == 64
    assert _value(text, "loop.steps") == 64


def test_what_several_statements_decide() -> None:
    assert _value("a = 1\na = 2\n", "a") is UNKNOWN
    assert _value("a = 1\nif b:\n    a = 2\n", "a") is UNKNOWN
    assert _value("for a in range(3):\n    pass\nb = a\n", "b") is UNKNOWN


def test_a_dict_that_is_changed_in_place() -> None:
    entry = _settings("a = dict(b=1)\na['b'] = 2\n").entries["a"]
    assert isinstance(entry.value, Scalar)
    assert entry.value.value is UNKNOWN
