"""What parse_yaml sees: values, spans, locks, merge keys, and how it fails."""

from __future__ import annotations

from typing import Any

import pytest
from tests.nodes import at

from oomlint.documents.base import UNKNOWN, Mapping, Node, Scalar, Sequence
from oomlint.documents.text import Source
from oomlint.documents.yaml.document import YamlDocument, parse_yaml
from oomlint.errors import ParseError


def parse(text: str) -> YamlDocument:
    return parse_yaml(Source.from_bytes("train.yaml", text.encode()))


def scalar(document: YamlDocument, *path: str | int) -> Scalar:
    node = at(document, *path)
    assert isinstance(node, Scalar)
    return node


def written(document: YamlDocument, node: Node) -> str:
    return document.source.text[node.span.start : node.span.end]


@pytest.mark.parametrize(
    ("text", "value", "plain", "spelled"),
    [
        ("a: 1e-5", "1e-5", True, "1e-5"),
        ("a: no  # c", "no", True, "no"),
        ("a: two words", "two words", True, "two words"),
        ("a: two\n  lines", "two lines", True, "two\n  lines"),
        ("a: 'it''s'", "it's", False, "'it''s'"),
        ('a: "\\u263a"', "☺", False, '"\\u263a"'),
        ("a:", "", True, ""),
        ("a:  # c", "", True, ""),
        ('a: ""', "", False, '""'),
        ("a: |\n  x\n  y\n\nb: 1", "x\ny\n", False, "|\n  x\n  y"),
        ("a: >-  # c\n  x\n  y\n# d\nb: 1", "x y", False, ">-  # c\n  x\n  y"),
        ("a: &x 3", "3", True, "3"),
        ("a: !!int 3", 3, False, "3"),
        ("a: !!float 1e-5", 1e-5, False, "1e-5"),
        ("a: &x !!str 3", "3", False, "3"),
        ("a: !!str &x 3", "3", False, "3"),
        ("a: !!bool no", False, False, "no"),
        ("a: !!null x", None, False, "x"),
        ("a: ! 3", "3", False, "3"),
        ("a: !!str", "", False, ""),
        ("a: !<tag:yaml.org,2002:int> 3", 3, False, "3"),
        ("# 😀 é\na: 'ü'", "ü", False, "'ü'"),
        ('{"a":1}', "1", True, "1"),
        ("{a: x y, b: 1}", "x y", True, "x y"),
        ("? a\n: 5", "5", True, "5"),
        ("a:\n  # own line\n  7", "7", True, "7"),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_scalars_and_their_spans(
    text: str, value: Any, plain: bool, spelled: str, newline: str
) -> None:
    document = parse(text.replace("\n", newline))
    node = scalar(document, "a")
    assert (node.value, type(node.value), node.plain) == (value, type(value), plain)
    assert written(document, node) == spelled.replace("\n", newline)


def test_empty_value_stands_behind_the_colon() -> None:
    document = parse("a:   # later\nb: 1\n")
    assert scalar(document, "a").span.start == 2


def test_collections_span_their_real_tokens() -> None:
    document = parse("a:\n  b: 1\n  c: [1, 2]  # two\n  # about d\n\nd:\n- 1\n-\n- x: 2\n  y: 3\n")
    assert written(document, at(document, "a")) == "b: 1\n  c: [1, 2]"
    assert written(document, at(document, "a", "c")) == "[1, 2]"
    assert written(document, at(document, "d")) == "- 1\n-\n- x: 2\n  y: 3"
    assert written(document, at(document, "d", 2)) == "x: 2\n  y: 3"
    assert scalar(document, "d", 1).value == ""


def test_entries_know_key_and_extent() -> None:
    document = parse('"a b" : [1]\nc:\n  d: 1  # x\n')
    root = at(document)
    assert isinstance(root, Mapping)
    text = document.source.text
    spans = [(entry.key, entry.key_span, entry.span) for entry in root.entries.values()]
    assert [(key, text[k.start : k.end], text[s.start : s.end]) for key, k, s in spans] == [
        ("a b", '"a b"', '"a b" : [1]'),
        ("c", "c", "c:\n  d: 1"),
    ]


def test_keys_that_are_no_strings_become_text() -> None:
    document = parse("1: a\ntrue: b\n? [x, y]\n: c\n&k d: 1\n*k : 2\n")
    root = at(document)
    assert isinstance(root, Mapping)
    assert list(root.entries) == ["1", "true", "[x, y]", "d"]
    assert [entry.key for entry in root.duplicates] == ["d"]


def test_last_duplicate_wins() -> None:
    document = parse("a: 1\nb: 2\na: 3\n")
    root = at(document)
    assert isinstance(root, Mapping)
    assert scalar(document, "a").value == "3"
    assert [written(document, entry.value) for entry in root.duplicates] == ["1"]


def test_several_documents() -> None:
    document = parse("---\na: 1\n...\n---\n- 2\n--- 3\n")
    assert [type(root) for root in document.roots] == [Mapping, Sequence, Scalar]


@pytest.mark.parametrize("text", ["", "# only a comment\n", "\n\n"])
def test_nothing_there(text: str) -> None:
    assert parse(text).roots == ()


def test_alias_keeps_its_own_place_and_locks_both_ends() -> None:
    document = parse("a: &x 4\nb: *x\n")
    node = scalar(document, "b")
    assert node.value == "4"
    assert node.via is not None
    assert document.source.text[node.via.start : node.via.end] == "*x"
    assert written(document, node) == "4"
    assert node.locked == "shared: line 2 takes the same value through the anchor &x"
    assert scalar(document, "a").locked == node.locked


def test_an_anchor_that_nobody_uses_locks_nothing() -> None:
    assert scalar(parse("a: &x 4\n"), "a").locked is None


def test_anchor_names_can_be_used_again() -> None:
    document = parse("a: &x 1\nb: *x\nc: &x 2\nd: *x\n")
    assert [scalar(document, key).value for key in "abcd"] == ["1", "1", "2", "2"]


def test_aliased_collections_are_locked_throughout() -> None:
    document = parse("a: &x {p: 1, q: [2]}\nb: *x\n")
    assert at(document, "b").locked
    assert scalar(document, "b", "q", 0).locked


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("m: {<<: *x, p: 9}", {"p": "9", "q": "2"}),
        ("m: {p: 9, <<: *x}", {"p": "9", "q": "2"}),
        ("m: {<<: [*x, *y]}", {"p": "1", "q": "2", "r": "4"}),
        ("m: {<<: [*y, *x]}", {"p": "3", "q": "2", "r": "4"}),
        ("m: {<<: {p: 7, s: 8}}", {"p": "7", "s": "8"}),
        ('m: {"<<": 1}', {"<<": "1"}),
        ("m: {<<: 1}", {"<<": "1"}),
    ],
)
def test_merge_keys(text: str, expected: dict[str, str]) -> None:
    document = parse(f"x: &x {{p: 1, q: 2}}\ny: &y {{p: 3, r: 4}}\n{text}\n")
    node = at(document, "m")
    assert isinstance(node, Mapping)
    values = {key: scalar(document, "m", key).value for key in node.entries}
    assert values == expected


def test_merge_keys_mean_what_pyyaml_says() -> None:
    """But for a key of its own that a merged mapping has beside one that it merges: PyYAML takes the mapping's own up to
    6.0.3, as YAML's merge key says, and the other from 6.0.4 on."""
    yaml = pytest.importorskip("yaml")
    text = "x: &x {p: 1, q: 2}\ny: &y\n  <<: *x\n  s: 3\nm:\n  r: 4\n  <<: [*y, {q: 5, t: 6}]\n  t: 7\n"
    document = parse(text)
    node = at(document, "m")
    assert isinstance(node, Mapping)
    values = {key: int(scalar(document, "m", key).value) for key in node.entries}
    assert values == yaml.safe_load(text)["m"]


def test_merged_values_are_locked_and_own_ones_are_not() -> None:
    document = parse("x: &x {p: 1}\nm:\n  <<: *x\n  q: 2\nn:\n  <<: {r: 3}\n")
    assert scalar(document, "m", "p").locked
    assert scalar(document, "m", "q").locked is None
    assert scalar(document, "n", "r").locked == "it comes from a merge key (<<)"


@pytest.mark.parametrize(
    "value", ["${a.b}", "'${oc.env:X}'", "x-{{ y }}", '"{% if x %}"', "|\n  {{ m }}\n"]
)
def test_templated_text_is_locked(value: str) -> None:
    locked = scalar(parse(f"a: {value}\n"), "a").locked
    assert locked is not None
    assert "template" in locked


def test_bare_jinja_is_one_unknown_value() -> None:
    document = parse("a: {{ size }}\nb: 1\n")
    assert scalar(document, "a").value is UNKNOWN
    assert written(document, at(document, "a")) == "{{ size }}"
    assert scalar(document, "b").value == "1"


@pytest.mark.parametrize(
    "value", ["!custom x", "!!python/name:os.system ''", "!!int x", "!!binary aGk="]
)
def test_odd_tags_are_unknown_and_locked(value: str) -> None:
    node = scalar(parse(f"a: {value}\n"), "a")
    assert node.value is UNKNOWN
    assert node.locked is not None
    assert "tag" in node.locked


def test_odd_tags_lock_collections() -> None:
    assert scalar(parse("a: !!python/tuple [1, 2]\n"), "a", 0).locked


def test_block_of_text_at_the_end_without_newline_is_locked() -> None:
    assert scalar(parse("a: |\n  x"), "a").locked
    assert scalar(parse("a: |-\n  x"), "a").locked is None
    assert scalar(parse("a: |\n  x\n"), "a").locked is None


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("a: 1\n\tb: 2\n", 2, 1, "a tab where YAML allows only spaces"),
        ("a: *x\n", 1, 4, "the alias *x has no anchor &x before it"),
        ("a: &x [1, *x]\n", 1, 11, "stands inside of what it refers to"),
        ("a: 1\n---\nb: *x\n", 3, 4, "no anchor"),
        ('a: "x\nb: 1\n', 3, 1, "ends inside a quoted text"),
        ("a: [1, 2\nb: 3\n", 2, 2, "not valid YAML"),
        ("a: 1\n b: 2\n", 2, 3, "a colon that makes no sense here"),
        ("a: b\nc: \x07\n", 2, 4, "control characters"),
        ("{% if x %}\na: 1\n{% endif %}\n", 1, 2, "a template"),
        ("a: {{ x }}b\n", 1, 11, "a template"),
    ],
)
def test_errors_say_where_and_why(text: str, line: int, column: int, words: str) -> None:
    with pytest.raises(ParseError, match=None) as caught:
        parse(text)
    assert words in caught.value.message
    assert (caught.value.line, caught.value.column) == (line, column)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        "{a: " * 50_000,
        "- " * 50_000 + "a",
        "? " * 1000 + "a",
        "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{f'*a{i - 1}, ' * 9}]\n" for i in range(1, 40)),
        "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 2000)),
        "a0: &a0 {k: 1}\n"
        + "".join(f"a{i}: &a{i}\n  <<: *a{i - 1}\n  k{i}: 1\n" for i in range(1, 3000)),
        "a" * 2**21,
    ],
    ids=["brackets", "braces", "dashes", "marks", "bomb", "chain", "merges", "large"],
)
def test_files_built_to_exhaust_a_reader(text: str) -> None:
    with pytest.raises(ParseError):
        parse(text)


def test_reads_the_same_without_the_c_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a: &x !!int 3\nb:\nc: |\n  t\n\nd: [1, {e: 2}, ]\n? f\n: - 1\n  -\ng: !!str\n"

    def spans(document: YamlDocument) -> list[tuple[str, object]]:
        def walk(path: str, node: Node) -> list[tuple[str, object]]:
            found: list[tuple[str, object]] = [(path, node.span)]
            if isinstance(node, Mapping):
                for key, entry in node.entries.items():
                    found += [(path, entry.span), *walk(f"{path}.{key}", entry.value)]
            elif isinstance(node, Sequence):
                for index, item in enumerate(node.items):
                    found += walk(f"{path}.{index}", item)
            else:
                found.append((path, node.value))
            return found

        return walk("", document.roots[0])

    fast = spans(parse(text))
    monkeypatch.setitem(__import__("sys").modules, "ruamel.yaml.cyaml", None)
    assert spans(parse(text)) == fast
    with pytest.raises(ParseError):
        parse("a: [1\n")
