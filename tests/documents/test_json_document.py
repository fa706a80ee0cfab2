"""JSON as json.load and hjson read it, and edits that keep its layout."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st
from tests.nodes import at, mapping, plain

from oomlint import documents
from oomlint.documents.base import Node, Sequence
from oomlint.documents.json import JsonDocument, parse_json
from oomlint.documents.text import Edit, Source
from oomlint.errors import CannotEdit, ParseError


def parse(text: str) -> JsonDocument:
    return parse_json(Source.from_bytes("ds.json", text.encode()))


def spelled(document: JsonDocument, node: Node) -> str:
    return document.source.text[node.span.start : node.span.end]


def test_values_and_spans() -> None:
    document = parse('{"a": [1, -2.5e3, "x\\ty"], "b": {"c": null}, "d": true, "😀": 1}\n')
    assert plain(document.root) == {"a": [1, -2500.0, "x\ty"], "b": {"c": None}, "d": True, "😀": 1}
    assert spelled(document, at(document, "a", 1)) == "-2.5e3"
    assert spelled(document, at(document, "a", 2)) == '"x\\ty"'
    assert spelled(document, at(document, "b")) == '{"c": null}'
    entry = mapping(document).entries["b"]
    assert document.source.text[entry.span.start : entry.span.end] == '"b": {"c": null}'
    assert document.source.text[entry.key_span.start : entry.key_span.end] == '"b"'
    assert document.roots == (document.root,)
    assert not document.relaxed


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(JSON, st.sampled_from([None, 2, "\t"]), st.booleans())
def test_reads_whatever_json_writes(value: Any, indent: int | str | None, ascii_only: bool) -> None:
    document = parse(json.dumps(value, indent=indent, ensure_ascii=ascii_only))
    assert repr(plain(document.root)) == repr(value)
    assert not document.relaxed


@pytest.mark.parametrize(
    ("text", "value", "at_text"),
    [
        ('{"a": 1, // c\n "b": 2}', {"a": 1, "b": 2}, "// c\n "),
        ('# head\n{"a": 1}', {"a": 1}, "# head\n"),
        ('{/* x\n y */ "a": 1}', {"a": 1}, "/* x\n y */ "),
        ('{"a": [1, 2,],}', {"a": [1, 2]}, ","),
        ("{a: 1}", {"a": 1}, "a"),
        ("{'a': 'it\\'s \"x\"'}", {"a": 'it\'s "x"'}, "'a'"),
        ('{"a": 1\n"b": 2}', {"a": 1, "b": 2}, ""),
        ('{"a": bf16\n}', {"a": "bf16"}, "bf16"),
        ('{"a": 5 apples, pears\n}', {"a": "5 apples, pears"}, "5 apples, pears"),
        ('{"a": 012\n}', {"a": "012"}, "012"),
        ('{"a": "x\ty"}', {"a": "x\ty"}, "\t"),
        ("{\"a\": '''\nx\n'''}", {"a": "x"}, "'''\nx\n'''"),
    ],
)
def test_relaxed_forms_are_read_and_reported(text: str, value: object, at_text: str) -> None:
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)
    document = parse(text)
    assert plain(document.root) == value
    assert document.relaxed
    assert document.relaxed_at is not None
    span = document.relaxed_at
    assert text[span.start : span.end] == at_text


def test_the_first_relaxed_place_counts() -> None:
    document = parse('{"a": 1, "b": [2,], // c\n}')
    assert document.relaxed_at is not None
    assert document.relaxed_at.start == 16


def test_byte_order_mark_stops_json_load() -> None:
    data = b'\xef\xbb\xbf{"a": 1}'
    with pytest.raises(ValueError, match="BOM"):
        json.loads(data.decode())
    assert parse_json(Source.from_bytes("ds.json", data)).relaxed


def test_nan_and_infinity_are_what_python_reads() -> None:
    values = plain(parse("[NaN, Infinity, -Infinity, 1e999]").root)
    assert math.isnan(values[0])
    assert values[1:] == [math.inf, -math.inf, math.inf]


def test_duplicates() -> None:
    document = parse('{"a": 1, "b": 2, "a": 3}')
    assert plain(document.root) == {"b": 2, "a": 3}
    assert [plain(entry.value) for entry in mapping(document).duplicates] == [1]


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("", 1, 1, "empty"),
        ("// nothing\n", 2, 1, "empty"),
        ('{"a": 1', 1, 8, "ends before the closing }"),
        ('{"a" 1}', 1, 6, "expected a colon after the key 'a'"),
        ('{"a": }', 1, 7, "a value is missing"),
        ('{"a": 1 "b": 2}', 1, 8, ""),
        ("[1, 2]]", 1, 7, "after the end"),
        ("[1 2]", 1, 2, ""),
        ('["x]\n', 1, 2, "no closing quote"),
        ('["\\q"]', 1, 2, "an escape that JSON does not know"),
        ('{"a": 1,, "b": 2}', 1, 9, "expected a key"),
        ("hello", 1, 1, "expected { or ["),
        ("/* never closed", 1, 1, "expected { or ["),
        ("[" + "9" * 5000 + "]", 1, 2, "too many digits"),
    ],
)
def test_errors_say_where_and_why(text: str, line: int, column: int, words: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert words in caught.value.message
    if words:
        assert (caught.value.line, caught.value.column) == (line, column)


@pytest.mark.parametrize("text", ["[" * 10**6, '{"a":' * 10**5, " " * 5 * 2**20])
def test_files_built_to_exhaust_a_reader(text: str) -> None:
    with pytest.raises(ParseError):
        parse(text)


VOCABULARY = json.dumps({word: number for number, word in enumerate("!\"#$%&'(")})[:-1]
TOKENIZER = '{\n  "version": "1.0",\n  "truncation": null,\n'


@pytest.mark.parametrize(
    ("name", "text", "is_read"),
    [
        ("final/vocab.json", VOCABULARY + ', "swift": 8, "megatron": 9}', False),
        ("gpt2-vocab.json", VOCABULARY + ', "swift": 8}', False),
        ("added_tokens.json", VOCABULARY + ', "</s>": 8}', False),
        ("tokenizer.json", TOKENIZER + " " * 5 * 2**20, False),
        ("ds.json", VOCABULARY + ', "train_batch_size": 8}', True),
        ("vocab.json", '{"train_batch_size": 8, "zero_optimization": {"stage": 3}}', True),
        ("tokenizer.json", '{"model_name_or_path": "gpt2"}', True),
    ],
)
def test_the_tokens_of_a_tokenizer_are_no_config(name: str, text: str, is_read: bool) -> None:
    assert (documents.parse(Source.from_bytes(name, text.encode())) is not None) == is_read


Act = Callable[[JsonDocument], list[Edit]]


def set_to(value: Any, *path: str | int) -> Act:
    return lambda document: document.set_value(at(document, *path), value)


def add(key: str, value: Any, *path: str | int, after: str | None = None) -> Act:
    return lambda document: document.add_entry(mapping(document, *path), key, value, after=after)


def remove(key: str, *path: str | int) -> Act:
    return lambda document: document.remove_entry(mapping(document, *path), key)


def rename(key: str, new: str) -> Act:
    return lambda document: document.rename_entry(mapping(document), key, new)


def append(value: Any, *path: str | int) -> Act:
    def act(document: JsonDocument) -> list[Edit]:
        node = at(document, *path)
        assert isinstance(node, Sequence)
        return document.append_item(node, value)

    return act


EDITS = [
    ('{"a": 5e8, "b": 1}', set_to(1000000, "b"), '{"a": 5e8, "b": 1e6}'),
    ('{"a": 5e8, "b": 1}', set_to(12_000_000, "b"), '{"a": 5e8, "b": 12e6}'),
    ('{"a": 5e8, "b": 1}', set_to(1234567, "b"), '{"a": 5e8, "b": 1234567}'),
    ('{"a": 5e8, "b": 1}', set_to(20000, "b"), '{"a": 5e8, "b": 20000}'),
    ('{"a": 5e-8, "b": 1}', set_to(1000000, "b"), '{"a": 5e-8, "b": 1000000}'),
    ('{"a": 1}', set_to(2e-5, "a"), '{"a": 2e-05}'),
    ('{"a": "x"}', set_to("é\u2028", "a"), '{"a": "\\u00e9\\u2028"}'),
    ('{"a": "x"}', set_to("é", "a"), '{"a": "é"}'),
    ('{"a": [1, 2]}', set_to(None, "a", 1), '{"a": [1, null]}'),
    ('{"a": {"b": 1}}', set_to("auto", "a"), '{"a": "auto"}'),
    ('{"a": 1}', set_to({"b": [1, 2]}, "a"), '{"a": {"b": [1, 2]}}'),
    (
        '{\n    "a": 1\n}',
        set_to({"b": {"c": True}, "d": []}, "a"),
        '{\n    "a": {\n        "b": {\n            "c": true\n        },\n        "d": []\n    }\n}',
    ),
    ('{\n\t"a": 1\n}\n', add("b", {"c": 1}), '{\n\t"a": 1,\n\t"b": {\n\t\t"c": 1\n\t}\n}\n'),
    (
        '{\n  "a": 1,\n  "b": 2\n}\n',
        add("c", 3, after="a"),
        '{\n  "a": 1,\n  "c": 3,\n  "b": 2\n}\n',
    ),
    (
        '{\n  "a": 1,  // one\n  "b": 2\n}',
        add("c", 3),
        '{\n  "a": 1,  // one\n  "b": 2,\n  "c": 3\n}',
    ),
    ('{\n  "a": 1  # one\n}', add("c", 3), '{\n  "a": 1,  # one\n  "c": 3\n}'),
    ('{\n  "a": 1,\n}', add("c", 3), '{\n  "a": 1,\n  "c": 3,\n}'),
    ('{"a":1,"b":2}', add("c", 3), '{"a":1,"b":2, "c":3}'),
    ('{ "a": 1 }', add("c", [3]), '{ "a": 1, "c": [3] }'),
    ("{}", add("a", 1), '{"a": 1}'),
    ('{\n  "a": {}\n}', add("b", 1, "a"), '{\n  "a": {\n    "b": 1\n  }\n}'),
    ("{\n}", add("b", 1), '{\n  "b": 1\n}'),
    ('{\n  "a": 1,\n  "b": 2\n}\n', remove("a"), '{\n  "b": 2\n}\n'),
    ('{\n  "a": 1, // one\n  "b": 2\n}\n', remove("b"), '{\n  "a": 1 // one\n}\n'),
    ('{"a": 1, "b": 2}', remove("b"), '{"a": 1}'),
    ('{"a": 1, "b": 2}', remove("a"), '{"b": 2}'),
    ('{\n  "a": {\n    "b": 1\n  },\n  "c": 2\n}', remove("b", "a"), '{\n  "a": {},\n  "c": 2\n}'),
    ('{\n  "a": {\n    "b": 1\n  },\n  "c": 2\n}', remove("a"), '{\n  "c": 2\n}'),
    ('{"a": 1}', rename("a", "b"), '{"b": 1}'),
    ("{a: 1}", rename("a", "b"), '{"b": 1}'),
    ('{"a": bf16\n}', set_to("fp16", "a"), '{"a": "fp16"\n}'),
    ("[1, 2]", append(3), "[1, 2, 3]"),
    ("[]", append(3), "[3]"),
    ("[\n  1,\n  2\n]", append({"a": 1}), '[\n  1,\n  2,\n  {\n    "a": 1\n  }\n]'),
]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("tail", ["", "\n", "\n// 😀\tend"])
@pytest.mark.parametrize(("before", "act", "after"), EDITS)
def test_edit(before: str, act: Act, after: str, newline: str, mark: bytes, tail: str) -> None:
    data = mark + (before + tail).replace("\n", newline).encode()
    document = parse_json(Source.from_bytes("ds.json", data))
    expected = mark + (after + tail).replace("\n", newline).encode()
    assert document.source.edited(act(document)).to_bytes() == expected


@pytest.mark.parametrize(
    ("text", "act", "reason"),
    [
        ('{"a": 1}', set_to(math.nan, "a"), "no spelling"),
        ('{"a": 1}', set_to(object(), "a"), "no spelling"),
        ('{"a": "${X}"}', set_to(1, "a"), "template"),
        ('{"a": 1, "a": 2}', remove("a"), "given twice"),
        ('{"a": 1, "a": 2}', rename("a", "b"), "given twice"),
        ('{"a": 1, "b": 2}', rename("a", "b"), "already there"),
        ('{"a": 1}', add("a", 2), "already there"),
        ('{"a": 1}', remove("b"), "not there"),
        ('{\n"a": bf16\n}', add("b", 2), "swallow a comma"),
        ('{\n"a": 1\n"b": 2\n}', add("c", 3, after="a"), "not separated by commas"),
        ('{\n"a": 1\n"b": 2\n}', remove("a"), "not separated by commas"),
        ('{\n"a": 1\n"b": 2\n}', remove("b"), "not separated by commas"),
        ("{\"a\": '''x'''}", set_to(1, "a"), "block of text"),
        ("{ // none\n}", add("a", 1), "comment between the brackets"),
    ],
)
def test_refusals_say_why(text: str, act: Act, reason: str) -> None:
    with pytest.raises(CannotEdit) as caught:
        act(parse(text))
    assert reason in str(caught.value)
