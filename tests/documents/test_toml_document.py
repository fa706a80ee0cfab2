"""TOML: values as tomllib reads them, spans, and edits of single values."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from tests.edits import Act, add, append, remove, rename, set_to
from tests.nodes import at, plain

from oomlint.documents.base import Mapping, Sequence
from oomlint.documents.comments import comments
from oomlint.documents.proof import prove_edit
from oomlint.documents.text import Source
from oomlint.documents.toml import TomlDocument, parse_toml
from oomlint.errors import CannotEdit, ParseError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SHARED = Path(__file__).parents[2] / "../shared"
FILES = sorted((SHARED / "corpus-other").rglob("*.toml"))

TITAN = """\
# torchtitan
[model]
name = "llama3"  # flavour below
"flavor" = '8B'
converters = []

[training]
local_batch_size = 8
seq_len = 8_192
lr = 3e-4
steps.warm_up = 0x10

  [training.more]
  on = true
  when = 2024-01-01

[[data]]
path = "c4"
[[data]]
weights = [
  1.5, # first
  2.5,
]
mix = { a = 1, b.c = [2] }
text = \"\"\"
x
y\"\"\"
"""


def parse(text: str) -> TomlDocument:
    return parse_toml(Source("train.toml", text))


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_values_are_those_of_tomllib(newline: str) -> None:
    text = TITAN.replace("\n", newline)
    expected = tomllib.loads(text)
    expected["training"]["more"]["when"] = "2024-01-01"
    assert plain(parse(text).root) == expected


@pytest.mark.parametrize(
    ("path", "spelled"),
    [
        (("model", "name"), '"llama3"'),
        (("model", "flavor"), "'8B'"),
        (("training", "seq_len"), "8_192"),
        (("training", "steps", "warm_up"), "0x10"),
        (("training", "more", "when"), "2024-01-01"),
        (("data", 1, "weights", 1), "2.5"),
        (("data", 1, "mix"), "{ a = 1, b.c = [2] }"),
        (("data", 1, "text"), '"""\nx\ny"""'),
    ],
)
def test_spans(path: tuple[str | int, ...], spelled: str) -> None:
    node = at(parse(TITAN), *path)
    assert TITAN[node.span.start : node.span.end] == spelled


def test_entries_know_their_keys() -> None:
    document = parse(TITAN)
    model = at(document, "model")
    assert isinstance(model, Mapping)
    entry = model.entries["flavor"]
    assert TITAN[entry.key_span.start : entry.key_span.end] == '"flavor"'
    assert TITAN[entry.span.start : entry.span.end] == "\"flavor\" = '8B'"


@pytest.mark.skipif(not FILES, reason="needs the corpus of framework configs")
def test_real_files() -> None:
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        assert plain(parse(text).root) == tomllib.loads(text)


VALUES = st.recursive(
    st.booleans() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(VALUES)
def test_any_value_set_reads_back(value: Any) -> None:
    document = parse("[a]\nb = 1 # c\nc = 2\n")
    edited = document.source.edited(document.set_value(at(document, "a", "b"), value))
    assert tomllib.loads(edited.text) == {"a": {"b": value, "c": 2}}
    assert prove_edit(document, parse_toml(edited), {(0, "a", "b")}) is None


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("before", "act", "after"),
    [
        ("a = 1 # c\n", set_to("x", "a"), 'a = "x" # c\n'),
        ("a = [1, 2]\n", set_to(2e-5, "a", 1), "a = [1, 2e-05]\n"),
        ("[t]\na = 1 # c\n\n[u]\n", add("b", True, "t"), "[t]\na = 1 # c\nb = true\n\n[u]\n"),
        ("[t]\na = 1\nc = 2", add("b c", [1], "t", after="a"), '[t]\na = 1\n"b c" = [1]\nc = 2'),
        ("[t] # c\n[t.u]\na = 1\n", add("b", 1, "t"), "[t] # c\nb = 1\n[t.u]\na = 1\n"),
        ("[t]\n  a = 1\n", add("b", {"x": 1}, "t"), "[t]\n  a = 1\n  b = { x = 1 }\n"),
        ("t = { a = 1 }\n", add("b", 2, "t"), "t = { a = 1, b = 2 }\n"),
        ("t = {}\n", add("b", 2, "t"), "t = {b = 2}\n"),
        ("a = 1\nb = 2 # c\n", remove("b"), "a = 1\n"),
        ("a = [\n 1,\n]\nb = 2\n", remove("a"), "b = 2\n"),
        ("t = { a = 1, b = 2 }\n", remove("b", "t"), "t = { a = 1 }\n"),
        ("a = 1\n", rename("a", "b"), "b = 1\n"),
        ("a = [\n  1,\n]\n", append(2, "a"), "a = [\n  1,\n  2,\n]\n"),
        ("a = []\n", append("x", "a"), 'a = ["x"]\n'),
    ],
)
def test_edit(before: str, act: Act, after: str, newline: str) -> None:
    document = parse(before.replace("\n", newline))
    edited = document.source.edited(act(document)).text
    assert edited == after.replace("\n", newline)
    tomllib.loads(edited)


@pytest.mark.parametrize(
    ("text", "act", "reason"),
    [
        ("a = 1\n", set_to(None, "a"), "no spelling"),
        ("a = '${x}'\n", set_to(1, "a"), "template"),
        ("[t]\na = 1\n", set_to(1, "t"), "lines of its own"),
        ("[t]\na = 1\n", remove("t"), "is a table"),
        ("a.b = 1\n", rename("a", "c"), "dotted key"),
        ("a.b = 1\n", add("c", 1, "a"), "no header"),
        ("[[t]]\na = 1\n", append({}, "t"), "list of tables"),
        ("a = 1\n", add("a", 1), "already there"),
        ("a = 1\n", remove("b"), "not there"),
    ],
)
def test_refusals_say_why(text: str, act: Act, reason: str) -> None:
    with pytest.raises(CannotEdit) as caught:
        act(parse(text))
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [("a = 1\nb = \n", 2, 5), ("a = 1\na = 2\n", 2, 6), ('a = "x', 1, 7), ("= 1", 1, 1)],
)
def test_errors_say_where(text: str, line: int, column: int) -> None:
    with pytest.raises(ParseError, match="not valid TOML") as caught:
        parse(text)
    assert (caught.value.line, caught.value.column) == (line, column)


@pytest.mark.parametrize(
    "text",
    ["a = " + "[" * 100_000, "a = " + "[" * 200 + "]" * 200, "[" + "a." * 300 + "b]", "#" * 2**21],
)
def test_files_built_to_exhaust_a_reader(text: str) -> None:
    with pytest.raises(ParseError):
        parse(text)


def test_a_table_is_added_at_the_end() -> None:
    document = parse_toml(Source.from_bytes("a.toml", b"[a]\nx = 1\n[b.c]\ny = 2"))
    (edit,) = document.add_entry(document.root, "d", {"z": 3, "w": "v"})
    assert edit.start == edit.end == len(document.source.text)
    assert edit.replacement == '\n\n[d]\nz = 3\nw = "v"\n'


def test_comments_of_toml_are_those_outside_strings() -> None:
    text = b'# one\n[a] # two\nx = "# none"#three\ny = """\n# none\n""" # four\n'
    source = Source.from_bytes("a.toml", text)
    found = [source.text[c.start : c.end] for c in comments(source, parse_toml(source))]
    assert found == ["# one", "# two", "#three", "# four"]


TOKENS = (
    "0", "+1", "-17", "1_000", "0x1F", "0o17", "0b11", "1.0", "-0.0", "+1e5", "6.626e-34", "1_0.2_5E+1_0", "inf",
    "-inf", "true", "false", '"plain"', "'literal \\n'", '"esc\\n\\u00e9"', '""', "''", '"""a\nb"""', "'''a\nb'''",
    '"""a"""', "'''it''s'''", '"a # b"', "[]", "{}", "9" * 4000,
)  # fmt: skip


@pytest.mark.parametrize("token", TOKENS)
def test_a_value_is_what_tomllib_reads(token: str) -> None:
    text = f"a = {token} # x\nb = [ {token} ,{token}]\n'k.1' = {{ \"q\\u0041\" = {token} }}\n"
    found, wanted = plain(parse(text).root), tomllib.loads(text)
    assert repr(found) == repr(wanted)


def test_a_long_line_of_fractions_is_no_long_key() -> None:
    node = parse("betas = [" + "0.5, -1.25e-3," * 3000 + "]\n").root.entries["betas"].value
    assert isinstance(node, Sequence)
    assert len(node.items) == 6000


@pytest.mark.parametrize("key", ["1." * 9000 + "1", "1.1 . " * 5000 + "1", '"a". ' * 5000 + "a"])
def test_a_long_key_of_digits_is_one(key: str) -> None:
    with pytest.raises(ParseError, match="too many dots"):
        parse(f"{key} = 1\n")
