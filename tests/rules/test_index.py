"""The index of rules says what the rules themselves say."""

import ast

import pytest

from oomlint.linting.rule import Rule
from oomlint_rules import __main__ as index
from oomlint_rules.__main__ import INDEX, index_text


def test_the_index_is_up_to_date():
    # Versions of Python differ in the brackets that they write.
    written, now = (ast.dump(ast.parse(text)) for text in (INDEX.read_text("utf-8"), index_text()))
    assert written == now, "run `python -m oomlint_rules`"


def test_no_two_rules_have_one_code(monkeypatch: pytest.MonkeyPatch) -> None:
    class Copied(Rule, code="OOM101", name="copied"):
        summary = "it was copied from another rule, with its code"

    every = index._rules()
    monkeypatch.setattr(index, "_rules", lambda: [*every, Copied])
    with pytest.raises(ValueError, match=r"^OOM101 is a rule of oomlint_rules\.gpu\.\w+ and of "):
        index.index_text()
