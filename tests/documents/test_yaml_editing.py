"""Edits of YAML files: exact results, over newline styles, marks and missing final newlines."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml
from tests.edits import Act, add, append, remove, rename, set_to
from tests.nodes import at, mapping

from oomlint.documents.text import Edit, Source
from oomlint.documents.yaml.document import parse_yaml
from oomlint.errors import CannotEdit


def lf(text: str) -> bytes:
    return text.encode()


def crlf(text: str) -> bytes:
    return text.replace("\n", "\r\n").encode()


def bom(text: str) -> bytes:
    return b"\xef\xbb\xbf" + text.encode()


def no_final_newline(text: str) -> bytes:
    return text.removesuffix("\n").encode()


def busy(text: str) -> bytes:
    """Between a line of emoji and tabs and one more entry that must stay as it is."""
    return f"# 😀\ttab\n{text}".encode()


VARIANTS = [lf, crlf, bom, busy]


def apply(data: bytes, act: Act) -> bytes:
    document = parse_yaml(Source.from_bytes("train.yaml", data))
    return document.source.edited(act(document)).to_bytes()


SET = [
    ("a: 1\n", set_to(2, "a"), "a: 2\n"),
    ("a:    1  # c\n", set_to(2e-5, "a"), "a:    2.0e-5  # c\n"),
    ("a: x y\n", set_to("z", "a"), "a: z\n"),
    ("a: x\n  y\nb: 1\n", set_to(True, "a"), "a: true\nb: 1\n"),
    ('a: "x"  # c\n', set_to("no", "a"), 'a: "no"  # c\n'),
    ("a: 'x'\n", set_to("it's", "a"), "a: 'it''s'\n"),
    ("a: 'x'\n", set_to("b\nc", "a"), 'a: "b\\nc"\n'),
    ('a: "auto"\n', set_to(4, "a"), "a: 4\n"),
    ("a: x\n", set_to("no", "a"), 'a: "no"\n'),
    ("a: x\n", set_to(None, "a"), "a: null\n"),
    ("a:\nb: 1\n", set_to(2, "a"), "a: 2\nb: 1\n"),
    ("a:  # c\nb: 1\n", set_to(2, "a"), "a: 2  # c\nb: 1\n"),
    ("a: \nb: 1\n", set_to(2, "a"), "a: 2\nb: 1\n"),
    ("a: &x\nb: 1\n", set_to(2, "a"), "a: &x 2\nb: 1\n"),
    ("a: &x 1\n", set_to(2, "a"), "a: &x 2\n"),
    ("a: !!int 1\n", set_to(2, "a"), "a: !!int 2\n"),
    ("- 1\n-\n- 3\n", set_to(2, 1), "- 1\n- 2\n- 3\n"),
    ("a: |\n  x\n  y\n\nb: 1\n", set_to("z", "a"), "a: z\n\nb: 1\n"),
    ("a: >-  # c\n  x\nb: 1\n", set_to(3, "a"), "a: 3  # c\nb: 1\n"),
    ("a: [1, 2]  # c\n", set_to(3, "a"), "a: 3  # c\n"),
    ("a: [1,\n  # in\n  2]\nb: 1\n", set_to(3, "a"), "a: 3\nb: 1\n"),
    ("a: [1, 2]\n", set_to(5, "a", 0), "a: [5, 2]\n"),
    ("a: {b: 1, c: 2}\n", set_to("x, y", "a", "b"), 'a: {b: "x, y", c: 2}\n'),
    ('a: {"b":1}\n', set_to(2, "a", "b"), 'a: {"b":2}\n'),
    ("a: {b: }\n", set_to(2, "a", "b"), "a: {b: 2 }\n"),
    ("a:  # head\n  b: 1  # one\n  c: 2  # two\nd: 3\n", set_to(4, "a"), "a: 4  # head\nd: 3\n"),
    ("a:\n  # own\n  - 1\n  - 2\nd: 3\n", set_to([4], "a"), "a: [4]\nd: 3\n"),
    ("a:\n- 1\n- 2\nd: 3\n", set_to({"x": 1, "z": None}, "a"), "a: {x: 1, z: null}\nd: 3\n"),
    ("- a: 1\n  b: 2\n- c: 3\n", set_to("x", 0), "- x\n- c: 3\n"),
    ("- a: 1  # c\n- b: 2\n", set_to("x", 0), "- x  # c\n- b: 2\n"),
    ("- - 1\n  - 2\n- 3\n", set_to(7, 0), "- 7\n- 3\n"),
    ("a: 1\n", set_to([], "a"), "a: []\n"),
    ("a: 1\n", set_to({"b": [1, {"c": "d"}]}, "a"), "a: {b: [1, {c: d}]}\n"),
    ("? a\n: 1\n", set_to(2, "a"), "? a\n: 2\n"),
    ("a: 'x'# c\n", set_to(2, "a"), "a: 2 # c\n"),
    ("a: [1]# c\n", set_to(2, "a"), "a: 2 # c\n"),
]

ADD = [
    ("a: 1\nb: 2\n", add("c", 3), "a: 1\nb: 2\nc: 3\n"),
    ("a: 1  # one\nb: 2\n", add("c", 3, after="a"), "a: 1  # one\nc: 3\nb: 2\n"),
    ("a: 1\n\n# about b\nb: 2\n", add("c", 3, after="a"), "a: 1\nc: 3\n\n# about b\nb: 2\n"),
    (
        "a:\n    b: 1\n    # more\nd: 2\n",
        add("c", 3, "a"),
        "a:\n    b: 1\n    c: 3\n    # more\nd: 2\n",
    ),
    ("a:\n  b:\n  - 1\n  - 2\nd: 2\n", add("c", 3, "a"), "a:\n  b:\n  - 1\n  - 2\n  c: 3\nd: 2\n"),
    ("- a: 1\n- b: 2\n", add("c", "x", 0), "- a: 1\n  c: x\n- b: 2\n"),
    ("-   a: 1\n", add("c", "x", 0), "-   a: 1\n    c: x\n"),
    ("a: |\n  x\n\nb: 1\n", add("c", 3, after="a"), "a: |\n  x\nc: 3\n\nb: 1\n"),
    ("a: |+\n  x\n\nb: 1\n", add("c", 3, after="a"), "a: |+\n  x\n\nc: 3\nb: 1\n"),
    ("a: [1,\n  2]\nb: 1\n", add("c", 3, after="a"), "a: [1,\n  2]\nc: 3\nb: 1\n"),
    ("a:\nb: 1\n", add("c", 3, after="a"), "a:\nc: 3\nb: 1\n"),
    ("? a\n: 1\n", add("c", 3), "? a\n: 1\nc: 3\n"),
    ("a: 1\n", add("no", "yes"), 'a: 1\n"no": "yes"\n'),
    (
        "a:\n    b: 1\n",
        add("c", {"d": {"e": 1, "f": []}, "g": [1, {"h": 2, "i": [3]}]}),
        "a:\n    b: 1\nc:\n    d:\n        e: 1\n        f: []\n    g:\n      - 1\n      - h: 2\n        i:\n          - 3\n",
    ),
    ("a:\n- 1\n", add("c", [2]), "a:\n- 1\nc:\n- 2\n"),
    ("a: {b: 1}\n", add("c", 3, "a"), "a: {b: 1, c: 3}\n"),
    ("a: { b: 1 }  # c\n", add("c", [3], "a"), "a: { b: 1, c: [3] }  # c\n"),
    ("a: {b: 1,}\n", add("c", 3, "a"), "a: {b: 1, c: 3,}\n"),
    ("a: {b: 1, d: 2}\n", add("c", 3, "a", after="b"), "a: {b: 1, c: 3, d: 2}\n"),
    ("a: {b: }\n", add("c", 3, "a"), "a: {b: , c: 3 }\n"),
    ("a: {}\n", add("c", {"d": 1}, "a"), "a: {c: {d: 1}}\n"),
    ("{}\n", add("c", 1), "{c: 1}\n"),
    (
        "a: {\n  b: 1,\n  d: 2  # two\n}\n",
        add("c", 3, "a"),
        "a: {\n  b: 1,\n  d: 2,  # two\n  c: 3\n}\n",
    ),
    (
        "a: {\n  b: 1,  # one\n  d: 2,\n}\n",
        add("c", 3, "a"),
        "a: {\n  b: 1,  # one\n  d: 2,\n  c: 3,\n}\n",
    ),
    (
        "a: {\n  b: 1,  # one\n  d: 2 }\n",
        add("c", 3, "a", after="b"),
        "a: {\n  b: 1,  # one\n  c: 3,\n  d: 2 }\n",
    ),
    ("a: {\n  b: 1 }\n", add("c", 3, "a"), "a: {\n  b: 1,\n  c: 3 }\n"),
    ("a: {\n  b: 1, d: 2\n  }\n", add("c", 3, "a", after="b"), "a: {\n  b: 1, c: 3, d: 2\n  }\n"),
]

REMOVE = [
    ("a: 1\nb: 2\nc: 3\n", remove("b"), "a: 1\nc: 3\n"),
    ("a: 1\nb: 2  # two\n# about c\nc: 3\n", remove("b"), "a: 1\n# about c\nc: 3\n"),
    ("a: 1\nb: 2\n", remove("a"), "b: 2\n"),
    ("a: 1\nb: 2\n", remove("b"), "a: 1\n"),
    ("a:\n  b: 1\n  c:\n  - 1\n\nd: 2\n", remove("c", "a"), "a:\n  b: 1\n\nd: 2\n"),
    ("a:  # head\n  b: 1  # one\nd: 2\n", remove("b", "a"), "a: {}  # head\nd: 2\n"),
    ("- a: 1\n  b: 2\n", remove("a", 0), "- b: 2\n"),
    ("- a: 1  # one\n  b: 2\n", remove("a", 0), "- b: 2\n"),
    ("- a: 1\n  # about b\n  b: 2\n", remove("a", 0), "-\n  # about b\n  b: 2\n"),
    ("- a: 1\n  b: 2\n", remove("b", 0), "- a: 1\n"),
    ("- a: 1\n- b: 2\n", remove("a", 0), "- {}\n- b: 2\n"),
    ("a: |\n  x\n\nb: 1\n", remove("a"), "\nb: 1\n"),
    ("a: |+\n  x\n\nb: 1\n", remove("a"), "b: 1\n"),
    ("a: {b: 1, c: 2, d: 3}\n", remove("b", "a"), "a: {c: 2, d: 3}\n"),
    ("a: {b: 1, c: 2, d: 3}\n", remove("c", "a"), "a: {b: 1, d: 3}\n"),
    ("a: {b: 1, c: 2, d: 3}\n", remove("d", "a"), "a: {b: 1, c: 2}\n"),
    ("a: {b: 1, c: 2,}\n", remove("c", "a"), "a: {b: 1,}\n"),
    ("a: { b: 1 }\n", remove("b", "a"), "a: {}\n"),
    ("a: {\n  b: 1,  # one\n  c: 2\n}\n", remove("b", "a"), "a: {\n  c: 2\n}\n"),
    ("a: {\n  b: 1,  # one\n  c: 2  # two\n}\n", remove("c", "a"), "a: {\n  b: 1  # one\n}\n"),
    ("a: {b: 1,\n  c: 2}\n", remove("c", "a"), "a: {b: 1}\n"),
    ("a: {b: 1, c: 2,\n  d: 3}\n", remove("c", "a"), "a: {b: 1,\n  d: 3}\n"),
    ("x: &x {p: 1}\nb: *x\nc: 3\n", remove("b"), "x: &x {p: 1}\nc: 3\n"),
]

OTHER = [
    ("a : 1  # c\n", rename("a", "b"), "b : 1  # c\n"),
    ("'a': 1\n", rename("a", "b"), "'b': 1\n"),
    ('{"a":1}\n', rename("a", "b"), '{"b":1}\n'),
    ("a: 1\n", rename("a", "on"), '"on": 1\n'),
    ("? a\n: 1\n", rename("a", "b"), "? b\n: 1\n"),
    ("a:\n- 1  # one\n- 2\nb: 3\n", append(4, "a"), "a:\n- 1  # one\n- 2\n- 4\nb: 3\n"),
    (
        "a:\n  - x: 1\n    y: 2\n",
        append({"x": 3, "z": [4]}, "a"),
        "a:\n  - x: 1\n    y: 2\n  - x: 3\n    z:\n      - 4\n",
    ),
    (
        "a:\n  b:\n    c: 1\n    # d: 2\n  # of e\n  e: 3\n",
        add("x", 4, "a", after="b"),
        "a:\n  b:\n    c: 1\n    # d: 2\n  x: 4\n  # of e\n  e: 3\n",
    ),
    ("- - 1\n  - 2\n", append(3, 0), "- - 1\n  - 2\n  - 3\n"),
    ("-\n", append(3), "-\n- 3\n"),
    ("a: [1, 2]\n", append("x", "a"), "a: [1, 2, x]\n"),
    ("a: []\n", append("x", "a"), "a: [x]\n"),
    ("a: [\n  1,\n  2,\n]\n", append(3, "a"), "a: [\n  1,\n  2,\n  3,\n]\n"),
]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.__name__)
@pytest.mark.parametrize(("before", "act", "after"), SET + ADD + REMOVE + OTHER)
def test_edit(before: str, act: Act, after: str, variant: Callable[[str], bytes]) -> None:
    assert apply(variant(before), act) == variant(after)


@pytest.mark.parametrize(
    ("before", "act", "after"),
    [
        case
        for case in SET + ADD + REMOVE + OTHER
        # Blocks of text are refused there, and removing the last line leaves the one above.
        if "|" not in case[0] and ">" not in case[0] and case not in REMOVE
    ],
)
def test_edit_without_final_newline(before: str, act: Act, after: str) -> None:
    assert apply(no_final_newline(before), act) == no_final_newline(after)


def test_removing_the_last_line_keeps_the_newline_above() -> None:
    assert apply(b"a: 1\nb: 2", remove("b")) == b"a: 1\n"


@pytest.mark.parametrize(
    ("text", "act", "reason"),
    [
        ("a: &x 1\nb: *x\n", set_to(2, "b"), "line 2 takes the same value through the anchor &x"),
        ("a: &x 1\nb: *x\n", set_to(2, "a"), "anchor &x"),
        ("a: &x 1\nb: *x\n", remove("a"), "anchor that line 2 refers to"),
        ("a: {b: &x 1}\nc: *x\n", set_to(2, "a"), "anchor that line 2 refers to"),
        ("x: &x {p: 1}\nm:\n  <<: *x\n", set_to(2, "m", "p"), "anchor &x"),
        ("x: &x {p: 1}\nm:\n  <<: *x\n", remove("p", "m"), "merge key"),
        ("x: &x {p: 1}\nm:\n  <<: *x\n", rename("p", "q", "m"), "merge key"),
        ("x: &x {p: 1}\nm:\n  <<: *x\n  p: 2\n", remove("p", "m"), "merge key"),
        ("x: &x {p: 1}\nm:\n  <<: *x\n  p: 2\n", rename("p", "q", "m"), "merge key"),
        ("x: &x\n  p: 1\nm: *x\n", add("q", 2, "x"), "anchor &x"),
        ("a: ${b}\n", set_to(2, "a"), "interpolation"),
        ("a: {{ b }}\n", set_to(2, "a"), "template"),
        ("a: !env X\n", set_to(2, "a"), "tag !env"),
        ("a: !!int 1\n", set_to("x", "a"), "tag !!int does not fit"),
        ("a: !!int 1\n", set_to(True, "a"), "tag !!int does not fit"),
        ("a: 1\na: 2\n", remove("a"), "given twice"),
        ("a: 1\na: 2\n", rename("a", "b"), "given twice"),
        ("a: 1\nb: 2\n", rename("a", "b"), "already there"),
        ("a: 1\n", add("a", 2), "already there"),
        ("a: 1\n", remove("b"), "is not there"),
        ("? [a]\n: 1\n", rename("[a]", "b"), "not a plain or quoted"),
        ("a: 1\nb: 2\n", set_to(3), "whole document"),
        ("a: |\n  x", set_to(2, "a"), "without a new line"),
        ("b: 1\na: |\n  x", add("c", 2), "ends inside a block of text"),
        ("a: [b: 1]\n", add("c", 2, "a", 0), "pair inside a list"),
        ("a: [b: 1]\n", remove("b", "a", 0), "pair inside a list"),
        ("a: {b, c}\n", set_to(1, "a", "b"), "no colon"),
        ("a: {  # empty\n}\n", add("b", 1, "a"), "a comment between the brackets"),
        ("a: 1\n", set_to(object(), "a"), "type object"),
    ],
)
def test_refusals_say_why(text: str, act: Act, reason: str) -> None:
    with pytest.raises(CannotEdit) as caught:
        apply(text.encode(), act)
    assert reason in str(caught.value)


def test_a_node_of_another_document_is_refused() -> None:
    one, other = (parse_yaml(Source("a.yaml", "a: 1\n")) for _ in range(2))
    with pytest.raises(CannotEdit, match="not written in the file"):
        one.set_value(at(other, "a"), 2)


def test_own_key_may_override_a_merged_one() -> None:
    text = b"x: &x {p: 1}\nm:\n  <<: *x\n"
    assert apply(text, add("p", 2, "m")) == text + b"  p: 2\n"


def test_edits_name_the_file() -> None:
    document = parse_yaml(Source("conf/train.yaml", "a: 1\n"))
    assert document.set_value(at(document, "a"), 2) == [Edit("conf/train.yaml", 3, 4, "2")]


def test_a_value_beside_keys_in_double_quotes_keeps_its_characters() -> None:
    document = parse_yaml(Source("a.yaml", 'a: {"b": null}\n'))
    edits = document.add_entry(mapping(document, "a"), "c", "\U00010000\u2028")
    text = document.source.edited(edits).text
    assert yaml.safe_load(text) == {"a": {"b": None, "c": "\U00010000\u2028"}}
