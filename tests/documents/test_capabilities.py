"""What each kind of document can be asked, and what it answers where it holds nothing of the sort."""

from __future__ import annotations

import json

import pytest

from oomlint.documents import parse
from oomlint.documents.base import (
    DataDocument,
    Document,
    HeldCode,
    PythonDocument,
    ShellDocument,
    parser_of,
    root_of,
    roots,
)
from oomlint.documents.text import Source

_SCRIPT = """\
from transformers import Trainer, TrainingArguments

Trainer(model="gpt2", args=TrainingArguments(output_dir="out"))
"""
_LAUNCH = "torchrun --nproc_per_node 8 train.py --bf16 True"
_NOTEBOOK = json.dumps(
    {
        "cells": [
            {"cell_type": "code", "source": _SCRIPT},
            {"cell_type": "code", "source": f"!{_LAUNCH}"},
        ]
    }
)
_KINDS = (DataDocument, ShellDocument, PythonDocument, HeldCode)


def _parsed(name: str, text: str) -> Document:
    document = parse(Source(name, text))
    assert document is not None
    return document


def _kinds(document: Document) -> set[type[Document]]:
    return {kind for kind in _KINDS if isinstance(document, kind)}


@pytest.mark.parametrize(
    ("name", "text", "kinds"),
    [
        ("a.yaml", "bf16: true\n", {DataDocument}),
        ("a.json", '{"bf16": true}', {DataDocument}),
        ("a.toml", "bf16 = true\n", {DataDocument}),
        ("train.py", _SCRIPT, {PythonDocument}),
        ("train.sh", f"{_LAUNCH}\n", {ShellDocument}),
        ("Makefile", f"train:\n\t{_LAUNCH}\n", {ShellDocument, HeldCode}),
        ("Dockerfile", f"FROM ubuntu\nCMD {_LAUNCH}\n", {ShellDocument, HeldCode}),
    ],
)
def test_files_of_one_language(name: str, text: str, kinds: set[type[Document]]) -> None:
    document = _parsed(name, text)
    assert _kinds(document) == kinds
    assert document.parts == (document,)
    assert bool(document.roots) == (DataDocument in kinds)
    assert bool(document.commands) == document.dotted_keys == (ShellDocument in kinds)
    assert bool(document.calls) == bool(document.imports) == (PythonDocument in kinds)
    assert (parser_of(document) is not None) == (PythonDocument in kinds)


def test_a_notebook_holds_both_kinds_of_code() -> None:
    code, commands = _parsed("a.ipynb", _NOTEBOOK).parts
    assert _kinds(code) == {PythonDocument, HeldCode}
    assert _kinds(commands) == {ShellDocument, HeldCode}
    assert [call.callee for call in code.calls] == ["TrainingArguments", "Trainer"]
    assert "transformers.Trainer" in code.imports
    assert code.commands == commands.calls == ()
    assert isinstance(code, HeldCode)
    assert code.language == ".py"
    assert code.place_of(code.calls[1].span.start) == "cell 1, line 3"
    assert parser_of(code) is None, "only a file of Python is started from a command line"


def test_a_stream_of_documents_has_trees_and_no_root() -> None:
    stream = _parsed("a.yaml", "a: 1\n---\nb: 2\n")
    assert [list(root.entries) for root in roots(stream)] == [["a"], ["b"]]
    assert root_of(stream) is None


def test_json_and_toml_have_one_root_a_file() -> None:
    for name, text in (("a.json", '{"a": 1}'), ("a.toml", "a = 1\n")):
        document = _parsed(name, text)
        assert root_of(document) is next(roots(document))


def test_only_json_can_be_relaxed() -> None:
    kept = {"a.json": '{"a": 1}', "a.yaml": "a: 1 # one\n", "a.toml": "a = 1 # one\n"}
    for name, text in kept.items():
        document = _parsed(name, text)
        assert isinstance(document, DataDocument)
        assert not document.relaxed
    relaxed = _parsed("a.json", '{"a": 1,}')
    assert isinstance(relaxed, DataDocument)
    assert relaxed.relaxed


def test_documents_can_be_kept_by_who_asks() -> None:
    """Answers are remembered by document, so it is its identity that counts."""
    first, second = _parsed("a.sh", _LAUNCH), _parsed("a.sh", _LAUNCH)
    assert len({first, second, first}) == 2
