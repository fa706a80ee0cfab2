"""Real configs of 15 frameworks: every edit changes the one leaf that it names."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from oomlint.documents.base import Mapping, Node, Scalar, Sequence
from oomlint.documents.json import JsonDocument, parse_json
from oomlint.documents.proof import Path as TreePath, compare, leaves, prove_edit
from oomlint.documents.scalars import resolve
from oomlint.documents.text import Edit, Source
from oomlint.documents.yaml.document import YamlDocument, parse_yaml
from oomlint.errors import CannotEdit, ParseError

SHARED = Path(__file__).parents[2] / "../shared"
FOLDERS = [SHARED / "corpus", SHARED / "corpus-other"]
FILES = sorted(
    path
    for folder in FOLDERS
    for path in folder.rglob("*")
    if path.suffix in {".yaml", ".yml", ".json"} and path.is_file()
)
# A quick run takes every fourth file in each variant; OOMLINT_CORPUS_EVERY=1 takes all.
EVERY = int(os.environ.get("OOMLINT_CORPUS_EVERY", "4"))
SCALARS_PER_FILE = 20 if EVERY == 1 else 6
COLLECTIONS_PER_FILE = 5 if EVERY == 1 else 2

pytestmark = [
    pytest.mark.skipif(not FILES, reason="needs the corpus of framework configs"),
    pytest.mark.slow,
]

Document: TypeAlias = YamlDocument | JsonDocument


def parse(source: Source) -> Document:
    return parse_json(source) if source.path.endswith(".json") else parse_yaml(source)


def lf(data: bytes) -> bytes:
    return data


def crlf(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def bom(data: bytes) -> bytes:
    return b"\xef\xbb\xbf" + data.removeprefix(b"\xef\xbb\xbf")


def no_final_newline(data: bytes) -> bytes:
    return data.rstrip(b"\r\n")


VARIANTS = [lf, crlf, bom, no_final_newline]


def documents(variant: Any) -> Iterator[Document]:
    for path in FILES[VARIANTS.index(variant) % EVERY :: EVERY]:
        source = Source.from_bytes(str(path), variant(path.read_bytes()))
        try:
            yield parse(source)
        except ParseError:
            continue


def walk(path: TreePath, node: Node) -> Iterator[tuple[TreePath, Node]]:
    yield path, node
    if isinstance(node, Mapping):
        for key, entry in node.entries.items():
            yield from walk((*path, key), entry.value)
    elif isinstance(node, Sequence):
        for index, item in enumerate(node.items):
            yield from walk((*path, index), item)


def nodes(document: Document) -> list[tuple[TreePath, Node]]:
    return [found for index, root in enumerate(document.roots) for found in walk((index,), root)]


def test_all_but_broken_files_are_read() -> None:
    refused = []
    for path in FILES:
        try:
            document = parse(Source.from_bytes(str(path), path.read_bytes()))
        except ParseError:
            refused.append(path.name)
            continue
        assert document.source.to_bytes() == path.read_bytes()
    # Its "\." is no JSON escape: json.load refuses it too.
    assert set(refused) <= {"markdown_link_check_config.json"}


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.__name__)
def test_set_value_changes_one_leaf(variant: Any) -> None:
    choose = random.Random(variant.__name__)
    done = 0
    for document in documents(variant):
        before = leaves(document)
        scalars = [(path, node) for path, node in nodes(document) if isinstance(node, Scalar)]
        for path, node in choose.sample(scalars, min(len(scalars), SCALARS_PER_FILE)):
            try:
                edits = document.set_value(node, 7654)
            except CannotEdit:
                continue
            after = leaves(parse(document.source.edited(edits)))
            assert compare(before, after, [path]) is None, document.source.path
            assert str(after[path][1]) == "7654"
            done += 1
    assert done > len(FILES) // EVERY


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.__name__)
def test_adding_and_removing_changes_one_entry(variant: Any) -> None:
    choose = random.Random(variant.__name__)
    values = [5, 2e-5, "two words", {"p": {"q": [1, {"r": 2}]}}, [1, "a"], {}]
    done = 0
    for document in documents(variant):
        collections = [found for found in nodes(document) if not isinstance(found[1], Scalar)]
        chosen = choose.sample(collections, min(len(collections), COLLECTIONS_PER_FILE))
        for path, node in chosen:
            for target, edits in _changes(document, path, node, choose, values):
                edited = document.source.edited(edits)
                reason = prove_edit(document, parse(edited), {target})
                assert reason is None, (document.source.path, edits)
                if variant is crlf:
                    assert "\n" not in edited.text.replace("\r\n", "")
                done += 1
    assert done > len(FILES) // EVERY


def _changes(
    document: Document, path: TreePath, node: Node, choose: random.Random, values: list[Any]
) -> Iterator[tuple[TreePath, list[Edit]]]:
    value = choose.choice(values)
    try:
        if isinstance(node, Sequence):
            yield (*path, len(node.items)), document.append_item(node, value)
        elif isinstance(node, Mapping):
            after = choose.choice([None, *node.entries])
            yield (*path, "new_key"), document.add_entry(node, "new_key", value, after=after)
            for key in {*list(node.entries)[:1], *list(node.entries)[-1:]}:
                yield (*path, key), document.remove_entry(node, key)
    except CannotEdit:
        return


def test_ruamel_finds_the_same_values_after_an_edit() -> None:
    """An independent judge: ruamel's round-trip loader, on a sample of files."""
    ruamel = pytest.importorskip("ruamel.yaml")
    choose = random.Random(3)
    done = 0
    for path in choose.sample(FILES, min(len(FILES), 60)):
        if path.suffix == ".json":
            continue
        document = parse(Source.from_bytes(str(path), path.read_bytes()))
        if len(document.roots) != 1:
            continue
        reader = ruamel.YAML()
        try:
            expected = reader.load(document.source.text)
        except ruamel.error.YAMLError:
            continue
        scalars = [found for found in nodes(document) if isinstance(found[1], Scalar)]
        if not scalars:
            continue
        tree_path, node = choose.choice(scalars)
        try:
            edits = document.set_value(node, 7654)
        except CannotEdit:
            continue
        inner = expected
        for step in tree_path[1:-1]:
            inner = inner[_key(inner, step)]
        inner[_key(inner, tree_path[-1])] = 7654
        found = ruamel.YAML().load(document.source.edited(edits).text)
        assert repr(found) == repr(expected)
        done += 1
    assert done > 20


def _key(inner: Any, step: str | int) -> Any:
    """ruamel keeps ``true`` and ``8`` as typed keys; oomlint keeps their text."""
    return resolve(step, "yaml12") if isinstance(step, str) and step not in inner else step
