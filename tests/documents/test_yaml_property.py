"""Any edit of any mapping, in any layout, changes the one leaf that it names."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from oomlint.documents.base import Mapping, Node, Scalar, Sequence
from oomlint.documents.proof import leaves, prove_edit
from oomlint.documents.scalars import emit
from oomlint.documents.text import Source
from oomlint.documents.yaml.document import YamlDocument, parse_yaml
from oomlint.errors import CannotEdit, ParseError

pytestmark = pytest.mark.slow

KEYS = st.sampled_from(["lr", "model", "on", "a b", "x.y", "1", "größe", "😀", "deep", "last"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6)
    | st.sampled_from(["1e-5", "no", "two words", "tail\n", "a\nb", "# x", "x: y", "- z"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
ROOTS = st.dictionaries(KEYS, VALUES, min_size=1, max_size=4)


@dataclass
class Layout:
    """Draws how each piece of a file is written."""

    draw: Any
    step: int

    def pick(self, *choices: str) -> str:
        return self.draw(st.sampled_from(choices))

    def mapping(self, value: dict[str, Any], column: int) -> str:
        return "".join(self.entry(key, item, column) for key, item in value.items())

    def entry(self, key: str, value: Any, column: int) -> str:
        return f"{self.own_line(column)}{' ' * column}{emit(key)}:{self.value(value, column)}"

    def value(self, value: Any, column: int) -> str:
        """The rest of the line behind a colon, and what follows below it."""
        if (
            isinstance(value, (dict, list))
            and value
            and self.pick("block", "block", "flow") == "block"
        ):
            head = self.comment() + "\n"
            if isinstance(value, dict):
                return head + self.mapping(value, column + self.step)
            inner = column + self.draw(st.sampled_from([0, self.step]))
            return head + "".join(self.item(item, inner) for item in value)
        if isinstance(value, str) and value.strip("ab\n") == "" and value.rstrip("\n"):
            return self.text_block(value, column)
        return " " + self.spelled(value, column) + self.comment() + "\n"

    def item(self, value: Any, column: int) -> str:
        lead = " " * column + "-"
        if isinstance(value, dict) and value and self.pick("block", "flow") == "block":
            body = "".join(
                f"{' ' * (column + 2)}{emit(key)}:{self.value(item, column + 2)}"
                for key, item in value.items()
            )
            return f"{lead} {body[column + 2 :]}"
        return f"{lead} {self.spelled(value, column)}{self.comment()}\n"

    def spelled(self, value: Any, column: int) -> str:
        if value is None:
            return self.pick("null", "~", "")
        if (
            isinstance(value, str)
            and value.isprintable()
            and self.pick("same", "single") == "single"
        ):
            return "'" + value.replace("'", "''") + "'"
        text = emit(value)
        if isinstance(value, (dict, list)) and value and self.pick("one", "many") == "many":
            return self.brackets(value, column + self.step)
        return text

    def brackets(self, value: Any, column: int) -> str:
        pad = "\n" + " " * (column + 2)
        parts = (
            [f"{emit(key)}: {emit(item)}" for key, item in value.items()]
            if isinstance(value, dict)
            else list(map(emit, value))
        )
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        body = ("," + self.pick("", "  # flow\ttab") + pad).join(parts)
        return (
            opening + pad + body + self.pick("", ",") + self.pick("", f"\n{' ' * column}") + closing
        )

    def text_block(self, value: str, column: int) -> str:
        stripped = value.rstrip("\n")
        chomping = {0: "-", 1: ""}.get(len(value) - len(stripped), "+")
        lines = value if chomping == "+" else stripped + "\n"
        pad = " " * (column + self.step)
        body = "".join(pad + line if line.strip("\n") else line for line in lines.splitlines(True))
        return f" |{self.step}{chomping}{self.comment()}\n{body}"

    def comment(self) -> str:
        return self.pick("", "", "  # 😀\tnote")

    def own_line(self, column: int) -> str:
        return self.pick("", "", "", "\n", f"{' ' * column}# own line\n")


@st.composite
def files(draw: Any) -> tuple[dict[str, Any], bytes]:
    value = draw(ROOTS)
    text = Layout(draw, draw(st.sampled_from([2, 4]))).mapping(value, 0)
    if draw(st.booleans()):
        text = text.removesuffix("\n")
    if draw(st.booleans()):
        text = text.replace("\n", "\r\n")
    mark = b"\xef\xbb\xbf" if draw(st.booleans()) else b""
    return value, mark + text.encode()


def nodes(path: tuple[str | int, ...], node: Node) -> list[tuple[tuple[str | int, ...], Node]]:
    found = [(path, node)]
    if isinstance(node, Mapping):
        for key, entry in node.entries.items():
            found += nodes((*path, key), entry.value)
    elif isinstance(node, Sequence):
        for index, item in enumerate(node.items):
            found += nodes((*path, index), item)
    return found


def change(value: Any, path: tuple[str | int, ...], new: Any, *, drop: bool = False) -> Any:
    result = copy.deepcopy(value)
    inner = result
    for step in path[:-1]:
        inner = inner[step]
    if drop:
        del inner[path[-1]]
    elif isinstance(inner, list) and path[-1] == len(inner):
        inner.append(new)
    else:
        inner[path[-1]] = new
    return result


def loaded(document: YamlDocument) -> Any:
    ruamel = pytest.importorskip("ruamel.yaml")
    return ruamel.YAML(typ="safe", pure=True).load(document.source.text)


@settings(max_examples=300, deadline=None)
@given(files(), st.data())
def test_one_edit_changes_one_leaf(file: tuple[dict[str, Any], bytes], data: st.DataObject) -> None:
    value, content = file
    before = parse_yaml(Source.from_bytes("train.yaml", content))
    assert repr(loaded(before)) == repr(value)
    path, node = data.draw(st.sampled_from(nodes((), before.roots[0])))
    choices = ["set"] if path else []
    if isinstance(node, Mapping):
        choices += ["add", "remove"] if node.entries else ["add"]
    elif isinstance(node, Sequence):
        choices.append("append")
    action = data.draw(st.sampled_from(choices))
    new = data.draw(VALUES)
    try:
        if action == "set":
            target, edits = path, before.set_value(node, new)
            expected = change(value, target, new)
        elif isinstance(node, Mapping) and action == "add":
            after = data.draw(st.sampled_from([None, *node.entries]))
            target, edits = (*path, "new key"), before.add_entry(node, "new key", new, after=after)
            expected = change(value, target, new)
        elif isinstance(node, Mapping):
            key = data.draw(st.sampled_from(list(node.entries)))
            target, edits = (*path, key), before.remove_entry(node, key)
            expected = change(value, target, None, drop=True)
        else:
            assert isinstance(node, Sequence)
            target, edits = (*path, len(node.items)), before.append_item(node, new)
            expected = change(value, target, new)
    except CannotEdit as refusal:
        reason = str(refusal)
    else:
        reason = None
    if reason is not None:
        assert "ends inside" in reason or "template" in reason
        return
    after_edit = before.source.edited(edits)
    after_document = parse_yaml(after_edit)
    assert prove_edit(before, after_document, {(0, *target)}) is None
    # An independent loader finds the value, and everything else, as it should be.
    assert loaded(after_document) == expected
    if before.source.newline == "\r\n" and "\n" in before.source.text:
        assert "\n" not in after_edit.text.replace("\r\n", "")
    again = Source.from_bytes("train.yaml", after_edit.to_bytes())
    assert leaves(parse_yaml(again)) == leaves(after_document)


@settings(max_examples=100, deadline=None)
@given(files(), st.data())
def test_renaming_changes_the_key_alone(
    file: tuple[dict[str, Any], bytes], data: st.DataObject
) -> None:
    value, content = file
    before = parse_yaml(Source.from_bytes("train.yaml", content))
    root = before.roots[0]
    assert isinstance(root, Mapping)
    key = data.draw(st.sampled_from(list(root.entries)))
    edited = parse_yaml(before.source.edited(before.rename_entry(root, key, "no")))
    assert loaded(edited) == {("no" if name == key else name): item for name, item in value.items()}


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab:-?#[]{},&*!|>'\"%@` \t\n\r0.e~<=_$", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Only ParseError may come out, and what can be set can be read back."""
    try:
        document = parse_yaml(Source("any.yaml", text))
    except ParseError:
        return
    for root in document.roots:
        for _, node in nodes((), root):
            assert 0 <= node.span.start <= node.span.end <= len(text)
            if isinstance(node, Scalar) and node.locked is None:
                try:
                    edits = document.set_value(node, 7)
                except CannotEdit:
                    continue
                edited = parse_yaml(document.source.edited(edits))
                assert ("str", "7", True) in leaves(edited).values()


def test_a_value_right_behind_its_anchor() -> None:
    document = parse_yaml(Source("any.yaml", "&0:0"))
    (root,) = document.roots
    assert isinstance(root, Scalar)
    assert root.value == ":0"
    with pytest.raises(CannotEdit, match="no blank"):
        document.set_value(root, 7)
