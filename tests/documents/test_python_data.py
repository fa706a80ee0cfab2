"""Which data sets a script trains on, and where its text leaves that open."""

from __future__ import annotations

import pytest

from oomlint.documents.python.document import parse_python
from oomlint.documents.text import Source

LOADS = "from datasets import load_dataset\nfrom transformers import Trainer\n"


def sets_of(text: str) -> list[tuple[str, ...]]:
    document = parse_python(Source.from_bytes("train.py", (LOADS + text).encode()))
    assert document is not None
    return [fact.detail["names"] for fact in document.facts if fact.kind == "loads-sets"]


def keys_of(text: str) -> tuple[str, ...]:
    document = parse_python(Source.from_bytes("train.py", (LOADS + text).encode()))
    assert document is not None
    (fact,) = (fact for fact in document.facts if fact.kind == "loads-sets")
    keys: tuple[str, ...] = fact.detail["keys"]
    return keys


def test_a_set_that_a_script_loads_by_its_name() -> None:
    text = "NAME = 'yahma/alpaca-cleaned'\nd = load_dataset(NAME, split='train[:500]').map(lambda e: e)\n"
    assert sets_of(text) == [("yahma/alpaca-cleaned",)]


def test_every_set_counts() -> None:
    text = "a = load_dataset('openai/gsm8k', 'main')\nb = load_dataset(path='acme/talk')\n"
    assert sets_of(text) == [("openai/gsm8k", "acme/talk")]


@pytest.mark.parametrize(
    "text",
    [
        "d = load_dataset(args.name)\n",
        "d = load_dataset('json', data_files='mine/*.jsonl')\n",
        "d = load_dataset('acme/talk')\ne = load_dataset(args.other)\n",
        "d = load_dataset('acme/talk')\ne = load_from_disk('tokens')\n",
        "d = load_dataset('acme/talk')\ne = Dataset.from_list(mine)\n",
        "d = load_dataset('acme/talk')\ne = PromptDataset(d)\n",
        "d = load_dataset('acme/talk')\ndef group(e):\n    return {k: sum(e[k], []) for k in e}\n",
        "import itertools\nd = load_dataset('acme/talk')\ndef group(e):\n    return list(itertools.chain(*e))\n",
    ],
    ids=["option", "pattern", "one open", "disk", "list", "own class", "sums", "chains"],
)
def test_where_the_text_leaves_it_open_nothing_is_said(text: str) -> None:
    assert sets_of(text) == []


OPENS = "with open('mine.json', encoding='utf-8') as f:\n    rows = json.load(f)\n"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("d = load_dataset('json', data_files='mine.jsonl')\n", ("mine.jsonl",)),
        ("d = load_dataset('json', data_files={'train': 'a.json', 'test': ['b.json']})\n", None),
        ("d = load_dataset('json', data_files=['a.json', 'b.json'])\n", ("a.json", "b.json")),
        ("d = Dataset.from_json('mine.json')\n", ("mine.json",)),
        (f"import json\n{OPENS}d = Dataset.from_list(rows)\n", ("mine.json",)),
        (
            f"import json\n{OPENS}open('log.txt', 'w')\nd = Dataset.from_list(rows)\n",
            ("mine.json",),
        ),
        (f"import json\n{OPENS}open('more.txt')\nd = Dataset.from_list(rows)\n", None),
        (f"import json\n{OPENS}P = '{'Be kind. ' * 60}'\nd = Dataset.from_list(rows)\n", None),
    ],
    ids=["data_files", "nested", "several", "from_json", "opened", "a log", "text", "long prompt"],
)
def test_files_of_the_project(text: str, names: tuple[str, ...] | None) -> None:
    assert sets_of(text) == ([] if names is None else [names])


def test_keys_that_are_read_of_a_sample_are_told_unless_all_of_it_may_be() -> None:
    loads = "d = load_dataset('json', data_files='a.json')\n"
    reads = "d.map(lambda e: {'text': e['question'] + e.get('answer', '')})\n"
    assert keys_of(loads + reads) == ("question", "answer")
    assert keys_of(loads + reads + "d.map(lambda e: P.format(**e))\n") == ()
