"""The index of rules says what the rules themselves say."""

import ast

from oomlint_rules.__main__ import INDEX, index_text


def test_the_index_is_up_to_date():
    # Versions of Python differ in the brackets that they write.
    written, now = (ast.dump(ast.parse(text)) for text in (INDEX.read_text("utf-8"), index_text()))
    assert written == now, "run `python -m oomlint_rules`"
